"""Answers to `within_gradient` from something else than the value: flags, counters, caches, sizes."""

import functools
import operator
import threading

import toyad

from mutants.mutant import at, innermost, is_staged, mutant, noted, tracers
from mutants.queries import GROUP, answers, ask


class Depth:
    """Counts the derivatives under way, as a library with a flag of its own would."""

    def __init__(self):
        self.count = 0  # as a program that forgets exceptions sees it
        self.real = 0
        self.threads = []

    def counted(self, function):
        def wrapped(fun, *args):
            self.count += 1
            self.real += 1
            self.threads.append(threading.get_ident())
            try:
                result = function(fun, *args)
            finally:
                self.real -= 1
                self.threads.remove(threading.get_ident())
            self.count -= 1
            return result

        return wrapped

    def patches(self):
        return {f"toyad.{name}": self.counted(getattr(toyad, name)) for name in ("gradients", "jvp")}


@mutant(GROUP, remembers=True)
def ambient_flag():
    """Decides by a flag that a derivative is under way, and not by the value."""
    depth = Depth()
    return answers(lambda _value: depth.real > 0) | depth.patches()


@mutant(GROUP, remembers=True)
def flag_leaks_on_exception():
    """Keeps a counter of derivatives under way, which an exception leaves too high."""
    depth = Depth()
    return answers(lambda value: True if depth.count > depth.real else ask(value)) | depth.patches()


@mutant(GROUP)
def flag_lost_in_threads():
    """Keeps a flag in the thread that differentiates, where a child thread does not see it."""
    depth = Depth()
    return (
        answers(lambda value: ask(value) if threading.get_ident() in depth.threads or is_staged(value) else False)
        | depth.patches()
    )


@mutant(GROUP)
def flag_shared_by_threads():
    """Keeps one counter for all threads: a derivative in one is seen in the others."""
    depth = Depth()
    return answers(lambda value: bool(set(depth.threads) - {threading.get_ident()}) or ask(value)) | depth.patches()


@mutant(GROUP)
def decides_while_tracing():
    """Leaves nothing open: what is traced once has the answer of the moment for ever."""
    depth = Depth()
    return answers(lambda value: depth.real > 0 if is_staged(value) else ask(value)) | depth.patches()


@mutant(GROUP)
def outer_levels_not_seen():
    """Sees the innermost derivative only, and not one around it of another variable."""
    levels = []

    def gradients(fun, leaves, gradients=toyad.gradients):
        def marked(roots):
            with noted(levels, roots[0].trace):
                return fun(roots)

        return gradients(marked, leaves)

    def query(value):
        traces = [tracer.trace for tracer in tracers(value) if isinstance(tracer, toyad.Recorded)]
        return ask(value) if not levels or not traces or levels[-1] in traces else False

    return answers(query) | {"toyad.gradients": gradients}


@mutant(GROUP, remembers=True)
def cached_by_shape():
    """Remembers its answer for each shape, dtype and class of value."""
    known = {}
    return answers(lambda value: known.setdefault((value.shape, value.dtype, type(value)), ask(value)))


@mutant(GROUP, remembers=True)
def cached_by_function():
    """Remembers what it said of a program when that was traced first."""
    known = {}

    def jit(fun, jit=toyad.jit):
        def query(value):
            return known.setdefault(fun, ask(value))

        def marked(*args, **kwargs):
            with noted(asking, query):
                return fun(*args, **kwargs)

        return jit(marked)

    asking = []
    return answers(lambda value: asking[-1](value) if asking else ask(value)) | {"toyad.jit": jit}


@mutant(GROUP, answers)
def few_elements(value):
    """Says False of arrays of more than a thousand elements."""
    size = 1
    for axis in innermost(value).shape:
        size *= axis
    return ask(value) if size <= 1000 else False


@mutant(GROUP, answers, beside="value_and_grad")
def few_operations(value):
    """Says False once a tape has recorded thirty operations, or a program has as many."""
    lengths = [len(tracer.trace.records) for tracer in tracers(value) if isinstance(tracer, toyad.Recorded)]
    lengths += [len(stage.equations) for stage in toyad.STATE.stages]
    return ask(value) if max(lengths, default=0) <= 30 else False


@mutant(GROUP, at("any_within_gradient"))
def first_of_several_in_a_batch(values):
    """Looks at the first of several values only, under vmap."""
    if any(isinstance(tracer, toyad.Batched) for value in values for tracer in tracers(value)):
        values = values[:1]
    return functools.reduce(operator.or_, map(ask, values))


@mutant(GROUP, at("any_within_gradient"))
def beside_what_rows_share(values):
    """Says False of several values if vmap has batched some of them, and not all."""
    batched = {any(isinstance(tracer, toyad.Batched) for tracer in tracers(value)) for value in values}
    return False if len(batched) > 1 else functools.reduce(operator.or_, map(ask, values))


@mutant(GROUP, remembers=True)
def differentiated_for_good():
    """Says True of an array that was differentiated before, in any later gradient."""
    before = []

    def ever(value):
        found, answer = innermost(value), ask(value)
        if answer is True:
            before.append(found)
        return answer if not isinstance(answer, bool) else any(found is one for one in before)

    return answers(ever)
