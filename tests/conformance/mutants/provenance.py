"""Answers and constants that depend on how a value was made: by which operation, of which dtype, as a parameter."""

import contextlib
from unittest import mock

import numpy as np
import toyad
import toyad_adprotocol as right

from mutants.branches import branches, each, later
from mutants.carriers import guarded
from mutants.mutant import at, mutant, noted
from mutants.queries import answers, ask, flagged, forgets_results, noting

stop, guard, choose, differentiate = (
    right.non_differentiable, right.prevent_gradient, right.cond, right.value_and_grad
)  # fmt: skip


def maker(value):
    """Return the primitive that a tape has recorded for a value, or None."""
    if not isinstance(value, toyad.Recorded):
        return None
    for keys, _, pull in value.trace.records:
        if value.key in keys:
            names = pull.__code__.co_freevars
            return pull.__closure__[names.index("self")].cell_contents if "self" in names else None
    return None


def forgets(*primitives):
    """Return a mutant that says False of the results of these operations."""
    return answers(lambda value: False if maker(value) in primitives else ask(value))


@mutant("within_gradient")
def after_a_reduction():
    """Loses track at a sum."""
    return forgets(toyad.reduce_sum)


@mutant("within_gradient")
def after_a_selection():
    """Loses track at where."""
    return forgets(toyad.where)


@mutant("within_gradient")
def after_a_cast():
    """Loses track at a cast."""
    return forgets(toyad.convert)


@mutant("within_gradient")
def after_indexing():
    """Loses track at indexing."""
    return forgets(toyad.index)


@mutant("within_gradient")
def after_a_power():
    """Loses track at a power."""
    return forgets(toyad.power)


@mutant("within_gradient")
def after_a_division():
    """Loses track at a division."""
    return forgets(toyad.divide)


@mutant("within_gradient", alone="a harness alone names such an operation, and one scenario asks about what it names")
def after_an_exponential():
    """Loses track at the exponential function."""
    return forgets(toyad.exp)


@mutant("within_gradient", alone="a harness alone names such an operation, and one scenario asks about what it names")
def after_broadcasting():
    """Loses track where a value is repeated along a new axis."""
    return forgets(toyad.expand)


@mutant("within_gradient")
def after_a_call():
    """Loses track at the call of a program in another one."""
    results = []

    def note(result):
        if isinstance(result, toyad.Staged):
            results.append(result)
        return result

    return {**noting(note), **forgets_results(results)}


@mutant("within_gradient", beside="cond")
def first_turn_of_a_loop():
    """Says of the values in a loop what was right in its first turn."""
    turns = []

    def counted(loop):
        def wrapped(fun, *args):
            said = []

            def turn(*values):
                with noted(turns, (said, iter(list(said)))):
                    return fun(*values)

            return loop(turn, *args)

        return wrapped

    scan, plain = toyad.scan, toyad.while_loop
    looped = counted(lambda step, continues, state: plain(continues, step, state))

    def query(value):
        if not turns or not isinstance(answer := ask(value), bool):
            return ask(value)
        said, before = turns[-1]
        earlier = next(before, None)
        if earlier is None:
            said.append(answer)
            return answer
        return earlier

    return {
        "toyad.scan": counted(scan),
        "toyad.while_loop": lambda continues, step, state: looped(step, continues, state),
        **answers(query),
    }


@mutant("within_gradient", answers)
def one_dtype(value):
    """Answers for the default dtype only."""
    return ask(value) if value.dtype == np.float64 else False


@mutant("within_gradient", answers)
def few_axes(value):
    """Answers for scalars and vectors only."""
    return ask(value) if len(value.shape) <= 1 else False


@contextlib.contextmanager
def outside_of_programs():
    """Let toyad forget for a while that it traces."""
    with mock.patch.object(toyad.STATE, "stages", ()):
        yield


@mutant("within_gradient", answers)
def parameter_frozen_in_a_program(value):
    """Decides about a parameter when a program is traced, for all calls of it."""
    if not isinstance(value, toyad.Parameter):
        return ask(value)
    with outside_of_programs():
        return ask(value)


@mutant("within_gradient", answers)
def parameters(value):
    """Says False of parameters, though a tape watches them."""
    return False if isinstance(value, toyad.Parameter) else ask(value)


@mutant("within_gradient", answers)
def parameter_flags(value):
    """Says of every parameter that it is tracked while a tape watches any."""
    return True if isinstance(value, toyad.Parameter) and toyad.STATE.watched else ask(value)


@mutant("within_gradient")
def untracked_in_a_while_loop():
    """Says False of all that is in the body of a while loop."""
    flag = []
    body = flagged(lambda step, continues, state: plain(continues, step, state), flag)
    plain = toyad.while_loop
    return {
        "toyad.while_loop": lambda continues, step, state: body(step, continues, state),
        **answers(lambda value: False if flag else ask(value)),
    }


@mutant("non_differentiable", at("non_differentiable"))
def parameter_is_returned(value):
    """Gives a parameter back as it is."""
    return value if isinstance(value, toyad.Parameter) else stop(value)


@mutant("non_differentiable", at("non_differentiable"), beside="within_gradient")
def constants_of_one_dtype(value):
    """Stops the default dtype only."""
    return stop(value) if value.dtype == np.float64 else value


@mutant("non_differentiable", at("non_differentiable"))
def constants_of_few_axes(value):
    """Stops scalars and vectors only."""
    return stop(value) if len(value.shape) <= 1 else value


@mutant("non_differentiable", beside="within_gradient")
def tracked_once_evaluated():
    """Makes constants that are none any more once they are computed."""
    kept = []

    def constant(value):
        kept.append((stop(value), value))
        return kept[-1][0]

    def evaluate(_harness, array):
        return next((value for made, value in kept if made is array), array)

    return {"non_differentiable": constant, "toyad_harness.ToyHarness.evaluate": evaluate}


@mutant("prevent_gradient", at("prevent_gradient"), beside="value_and_grad")
def unguarded_parameters(value, message):
    """Guards no parameter."""
    return value if isinstance(value, toyad.Parameter) else guard(value, message)


@mutant("prevent_gradient", at("prevent_gradient"))
def unguarded_where_called(value, message):
    """Guards nothing in a program that another one calls."""
    return value if len(toyad.STATE.stages) > 1 else guard(value, message)


@mutant("cond", each)
def numbers_of_one_dtype(fun, *operands):
    """Takes numbers from branches for arrays of the default dtype."""
    result = fun(*operands)
    return toyad.array(result) if isinstance(result, float) else result


@mutant("cond", later)
def selects_under_jit(pred, t, f, operands):
    """Selects between the results of both branches where a program chooses; operands alone are guarded."""
    of_true, of_false = t(*guarded(pred, operands, taken=True)), f(*guarded(pred, operands, taken=False))
    if not isinstance(of_true, toyad.Value) or not isinstance(of_false, toyad.Value):
        return choose(pred, t, f, operands)
    return toyad.where(pred, of_true, of_false)


@mutant("cond", branches)
def takes_one_dtype(pred, t, f, operands):
    """Refuses operands that are not of the default dtype."""
    if any(isinstance(leaf, toyad.Value) and leaf.dtype == np.float32 for leaf in operands):
        raise TypeError("float64 only")
    return choose(pred, t, f, operands)


@mutant("cond", branches)
def reads_parameters_as_constants(pred, t, f, operands):
    """Looks at the values of parameters in branches, which no tape sees."""
    with mock.patch.object(toyad.STATE, "watched", ()):
        return choose(pred, t, f, operands)


@mutant("value_and_grad", at("value_and_grad"))
def gradients_of_one_dtype(fun, leaves):
    """Gives each gradient in the default dtype."""
    value, aux, found = differentiate(fun, leaves)
    return value, aux, [toyad.cast(gradient, np.float64) for gradient in found]
