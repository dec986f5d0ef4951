"""Wrong answers to `within_gradient`."""

import contextlib
import functools
import threading

import numpy as np
import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import errors
from mutants.mutant import at, follows, is_staged, mutant, noted

GROUP = "within_gradient"
ask = right.within_gradient


def answers(query):
    """Return a mutant with another answer for arrays of floats."""
    return {"within_gradient": lambda value: query(value) if toyad.is_inexact(value) else False}


@mutant(GROUP, answers)
def always_false(_value):
    """Says False, whatever is differentiated."""
    return False


@mutant(GROUP, at("within_gradient"))
def always_true(value):
    """Says True of everything."""
    return True


@mutant(GROUP, at("within_gradient"))
def negated(value):
    """Says the opposite."""
    return not answer if isinstance(answer := ask(value), bool) else ~answer


@mutant(GROUP, answers)
def true_under_jit(value):
    """Takes the tracer of jit for one of a derivative."""
    return True if is_staged(value) else ask(value)


@mutant(GROUP, answers)
def false_under_jit(value):
    """Takes an answer that is left open for False."""
    return ask(value) is True


@mutant(GROUP, answers)
def tracer_class(value):
    """Looks at the class of the tracer."""
    return isinstance(value, (toyad.Dual, toyad.Recorded))


@mutant(GROUP, answers)
def top_level_only(value):
    """Looks at the innermost level only, so that vmap hides a derivative around it."""
    return ask(value) if is_staged(value) else isinstance(value, (toyad.Dual, toyad.Recorded))


@mutant(GROUP, answers)
def ignores_forward_mode(value):
    """Knows of tapes, and not of tangents."""
    return ask(value) if not follows(toyad.Dual, value) else False


@mutant(GROUP, answers)
def ignores_reverse_mode(value):
    """Knows of tangents, and not of tapes."""
    return ask(value) if not follows(toyad.Recorded, value) else False


@mutant(GROUP, answers)
def vmap_is_ad(value):
    """Takes the tracer of vmap for one of a derivative."""
    return follows(toyad.Batched, value) or ask(value)


@mutant(GROUP, answers)
def vmap_hides_ad(value):
    """Says False of what vmap batches."""
    return False if isinstance(value, toyad.Batched) else ask(value)


@mutant(GROUP, at("within_gradient"))
def integers(value):
    """Says True of integers that are traced."""
    return True if value.dtype.kind in "iu" else ask(value)


@mutant(GROUP, at("within_gradient"))
def booleans(value):
    """Says True of booleans."""
    return True if value.dtype.kind == "b" else ask(value)


@mutant(GROUP, answers)
def ignores_no_grad(value):
    """Says True of what no_grad keeps off the tape."""
    return follows(toyad.Recorded, value) or ask(value)


def flagged(function, flag):
    """Return a function of toyad's that takes a function, with a flag up while that runs."""

    def wrapped(fun, *args, **kwargs):
        def marked(*inner, **keywords):
            with noted(flag):
                return fun(*inner, **keywords)

        return function(marked, *args, **kwargs)

    return wrapped


def noting(note, makes=None):
    """Return toyad's compilers, or others made of them, whose programs return ``note(result)``."""

    def changed(make):
        def made(fun):
            program = make(fun)

            @functools.wraps(fun)
            def call(*args):
                return note(program(*args))

            return call

        return made

    makes = makes or {"toyad.jit": toyad.jit, "toyad.compile": toyad.compile}
    return {name: changed(make) for name, make in makes.items()}


def forgets_results(results):
    """Return a query that says False of some values."""
    return answers(lambda value: False if any(value is result for result in results) else ask(value))


def while_inside(name, answer):
    """Return a mutant with another answer inside one of toyad's functions."""
    flag = []
    query = answers(lambda value: answer(value) if flag else ask(value))
    return query | {f"toyad.{name}": flagged(getattr(toyad, name), flag)}


@mutant(GROUP)
def checkpoint_decides_at_once():
    """Answers in a checkpoint for the first pass, in which nothing is recorded."""
    return while_inside("checkpoint", lambda value: ask(value) is True)


@mutant(GROUP)
def compile_decides_at_once():
    """Answers under compile for the moment of compilation."""
    return while_inside("compile", lambda value: ask(value) is True)


@mutant(GROUP)
def scan_hides_ad():
    """Says False in the body of a scan."""
    return while_inside("scan", lambda _value: False)


@mutant(GROUP, beside="prevent_gradient")
def custom_rule_is_ad():
    """Says True in a function with a rule of its own, into which no derivative goes."""
    return while_inside("custom_rule", lambda _value: True)


@mutant(GROUP)
def abstract_is_ad():
    """Says True where a function runs on shapes alone."""
    return while_inside("abstract", lambda _value: True)


@mutant(GROUP)
def no_grad_stops_forward_mode():
    """Says False under no_grad, which does not concern forward mode."""
    flag = []
    plain = toyad.no_grad

    @contextlib.contextmanager
    def no_grad():
        with noted(flag), plain():
            yield

    return answers(lambda value: False if flag else ask(value)) | {"toyad.no_grad": no_grad}


@mutant(GROUP, answers, remembers=True)
def nudges_the_value(value):
    """Tries out whether a derivative comes, and leaves a trace of that in the value."""
    below = value
    while isinstance(below, toyad.Tracer):
        below = below.below
    if isinstance(below, toyad.Array) and below.value.flags.writeable:
        below.value += 1e-3
    return ask(value)


@mutant(GROUP, answers)
def adds_to_the_tangent(value):
    """Tries out whether a derivative comes, and counts it twice from then on."""
    if isinstance(value, toyad.Dual):
        value.tangent = value.tangent * 2.0
    return ask(value)


@mutant(GROUP, answers)
def numpy_answer(value):
    """Answers with a bool of NumPy's."""
    return np.bool_(answer) if isinstance(answer := ask(value), bool) else answer


@mutant(GROUP, answers)
def array_answer(value):
    """Answers with an array even when it knows."""
    return toyad.array(answer) if isinstance(answer := ask(value), bool) else answer


@mutant(GROUP, answers)
def none_for_false(value):
    """Answers None instead of False."""
    return None if (answer := ask(value)) is False else answer


@mutant(GROUP, at("any_within_gradient"))
def first_of_many(values):
    """Looks at the first of several values only."""
    return ask(values[0])


@mutant(GROUP, at("any_within_gradient"))
def last_of_many(values):
    """Looks at the last of several values only."""
    return ask(values[-1])


@mutant(GROUP, at("any_within_gradient"))
def all_of_many(values):
    """Says True of several values only if each of them is differentiated."""
    answer = ask(values[0])
    for value in values[1:]:
        answer = answer & ask(value)
    return answer


@mutant(GROUP, at("adprotocol.within_gradient"))
def first_argument_only(*values, real=adprotocol.within_gradient):
    """Ignores all arguments but the first."""
    return real(*values[:1])


@mutant(GROUP, at("adprotocol.within_gradient"))
def containers_are_false(*values, real=adprotocol.within_gradient):
    """Does not look into containers."""
    return real(*(v for v in (0, *values) if isinstance(v, toyad.Value)), 0)


@mutant(GROUP, answers)
def only_in_the_main_thread(value):
    """Works in the thread in which it was loaded, and says False elsewhere."""
    return ask(value) if threading.current_thread().name == "conformance" else False


@mutant(GROUP, at("adprotocol._hooks.builtins.is_array"), beside="plugins")
def unclaimed_is_false(_cls):
    """Says False of an array that no plugin claims."""
    return False


@mutant(GROUP, at("adprotocol.within_gradient"))
def nothing_is_false(*values, real=adprotocol.within_gradient):
    """Says False when it is asked about nothing."""
    return bool(values) and real(*values)


@mutant(GROUP, answers)
def raises(value):
    """Raises for what jit traces, where it should leave the answer open."""
    if is_staged(value):
        msg = "not known yet"
        raise RuntimeError(msg)
    return ask(value)


@mutant(GROUP, at("adprotocol.within_gradient"), beside="plugins")
def unclaimed_without_remedy(*values, real=adprotocol.within_gradient):
    """Refuses an array that no plugin claims, and does not say what to do."""
    try:
        return real(*values)
    except errors.UnclaimedTypeError as error:
        msg = f"no answer for a {str(error).split()[4]}"
        raise errors.ADProtocolError(msg) from None
