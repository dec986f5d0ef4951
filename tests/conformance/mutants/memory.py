"""What is shared, kept, left behind or of another precision."""

import numpy as np
import toyad

from mutants.branches import branches, choose
from mutants.constants import stop, stops
from mutants.gradients import after, differentiate, hook, is_zero
from mutants.mutant import follows, mutant
from mutants.queries import answers, ask

GROUP = "value_and_grad"


@mutant(GROUP, after)
def one_zero_for_all(_, value, aux, found):
    """Returns one array of zeros for all unused leaves of a shape."""
    known = {}
    return value, aux, [known.setdefault((s.shape, s.dtype), s) if is_zero(s) else s for s in found]


@mutant(GROUP, remembers=True)
def zeros_of_earlier_calls():
    """Returns the zeros of earlier calls."""
    known = {}

    def change(_, value, aux, found):
        count = iter(range(len(found)))
        return value, aux, [known.setdefault((next(count), s.shape), s) if is_zero(s) else s for s in found]

    return after(change)


@mutant(GROUP, after)
def a_leaf_for_its_zeros(leaves, value, aux, found):
    """Returns a leaf that is zero for the zeros of another."""
    zeros = [leaf for leaf in leaves if isinstance(leaf, toyad.Array) and is_zero(leaf)]
    return value, aux, [zeros[0] if zeros and is_zero(s) and s.shape == zeros[0].shape else s for s in found]


@mutant(GROUP, after)
def zeros_of_single_precision(_, value, aux, found):
    """Returns zeros of 32 bits for a leaf that the function does not use."""
    return value, aux, [toyad.cast(slope, "float32") if is_zero(slope) else slope for slope in found]


@mutant(GROUP, after)
def zeros_of_double_precision(_, value, aux, found):
    """Returns zeros of 64 bits for a leaf that the function does not use."""
    return value, aux, [toyad.cast(slope, float) if is_zero(slope) else slope for slope in found]


def single(leaf):
    """Return a leaf that is no array of toyad's as one of 32 bits."""
    return leaf if isinstance(leaf, toyad.Value) else toyad.array(np.asarray(leaf, np.float32))


@mutant(GROUP, hook)
def other_leaves_of_single_precision(fun, leaves):
    """Differentiates NumPy arrays and Python numbers as arrays of 32 bits."""
    return differentiate(fun, list(map(single, leaves)))


@mutant(GROUP, hook)
def value_of_single_precision(fun, leaves):
    """Returns the value in 32 bits where a leaf is no array."""
    value, aux, found = differentiate(fun, leaves)
    return value if all(isinstance(leaf, toyad.Value) for leaf in leaves) else toyad.cast(value, "float32"), aux, found


@mutant(GROUP, hook)
def leaves_gradients_on_parameters(fun, leaves):
    """Leaves the gradient on each parameter, as an attribute."""
    value, aux, found = differentiate(fun, leaves)
    for leaf, slope in zip(leaves, found, strict=True):
        if isinstance(leaf, toyad.Parameter):
            leaf.grad = slope
    return value, aux, found


@mutant(GROUP, remembers=True)
def keeps_the_last_call():
    """Keeps the tape of the last call."""
    kept = []

    def keeping(fun, leaves):
        def noting(tracked):
            result = fun(tracked)
            kept[:] = [result]
            return result

        return differentiate(noting, leaves)

    return hook(keeping)


@mutant("within_gradient", remembers=True)
def keeps_what_it_was_asked():
    """Keeps what it was asked about."""
    kept = []
    return answers(lambda value: (kept.append(value), ask(value))[1])


@mutant("within_gradient", remembers=True)
def keeps_what_tapes_follow():
    """Keeps what it was asked about in reverse mode."""
    kept = []
    return answers(lambda value: (kept.append(value) if follows(toyad.Recorded, value) else None, ask(value))[1])


@mutant(
    "within_gradient", remembers=True, alone="forward mode is freed behind one call, and weak references alone show it"
)
def keeps_what_tangents_follow():
    """Keeps what it was asked about in forward mode."""
    kept = []
    return answers(lambda value: (kept.append(value) if follows(toyad.Dual, value) else None, ask(value))[1])


@mutant("within_gradient", answers, beside="value_and_grad")
def asks_by_a_gradient(value):
    """Leaves a gradient on what it was asked about."""
    value.grad = 1.0
    return ask(value)


@mutant("within_gradient", remembers=True)
def keeps_what_it_stops():
    """Keeps what it makes a constant."""
    kept = []
    return stops(lambda value: (kept.append(value), stop(value))[1])


@mutant("within_gradient", remembers=True)
def keeps_operands():
    """Keeps the operands of branches."""
    kept = []

    def cond(pred, t, f, operands):
        kept.append(operands)
        return choose(pred, t, f, operands)

    return branches(cond)
