"""Calls of `value_and_grad` gone wrong: arguments, exceptions, leaves mistaken for others, what changes on the way."""

from collections.abc import Iterator

import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from adprotocol._dispatch import registry
from adprotocol._gradients import framework
from adprotocol._gradients.structure import Structure
from mutants.gradients import GROUP, after, differentiate, hook, public, real
from mutants.mutant import at, mutant
from mutants.queries import answers, ask


@mutant(GROUP, after, remembers=True)
def updates_the_leaves(leaves, value, aux, found):
    """Takes a step of gradient descent on its way."""
    for leaf, slope in zip(leaves, found, strict=True):
        if isinstance(leaf, toyad.Array) and isinstance(slope, toyad.Array) and leaf.value.flags.writeable:
            leaf.value -= 0.1 * slope.value
    return value, aux, found


@mutant(GROUP, after)
def reversed_gradients(_, value, aux, found):
    """Returns the gradients in another order."""
    return (value, aux, found[::-1])


@mutant(GROUP, hook)
def value_keeps_its_tracer(fun, leaves):
    """Returns the value as it was inside, with its tracer."""
    values = []

    def noted(tracked):
        values.append(fun(tracked))
        return values[0]

    _, aux, found = differentiate(noted, leaves)
    return values[0][0], aux, found


@mutant(GROUP, remembers=True)
def broken_by_an_exception():
    """Returns constants for ever once a function has raised."""
    raised = []

    def fragile(fun, leaves):
        try:
            value, aux, found = differentiate(fun, leaves)
        except Exception:
            raised.append(True)
            raise
        return value, aux, [slope * 0.0 for slope in found] if raised else found

    return hook(fragile)


@mutant(GROUP, hook)
def changes_exceptions(fun, leaves):
    """Raises another error in the place of the one that the function raises."""
    try:
        return differentiate(fun, leaves)
    except adprotocol.ADProtocolError:
        raise
    except Exception as error:
        msg = "the function failed"
        raise RuntimeError(msg) from error


@mutant(GROUP, at("adprotocol._gradients.structure.Structure.only"))
def forgets_the_structure(self, leaves, *, real_only=Structure.only):
    """Returns the gradients as a list."""
    return list(leaves) if isinstance(leaves, Iterator) else real_only(self, leaves)


@mutant(GROUP, public)
def first_argument_only(fun, *, argnums=0, **options):
    """Differentiates with respect to the first argument, whatever `argnums` says."""
    return real(fun, argnums=0 * argnums if argnums == 0 else 0, **options)


@mutant(GROUP, public)
def sorts_arguments(fun, *, argnums=0, **options):
    """Returns the gradients of several arguments in the order of the arguments."""
    return real(fun, argnums=argnums if isinstance(argnums, int) else tuple(sorted(argnums)), **options)


@mutant(GROUP, public)
def drops_keywords(fun, **options):
    """Calls the function without its keyword arguments."""

    def differentiated(*args, **_kwargs):
        return real(fun, **options)(*args)

    return differentiated


@mutant(GROUP, public)
def freezes_what_passes_through(fun, **options):
    """Makes what is frozen a constant, and all that goes through it."""

    def differentiated(*args, **kwargs):
        rest = [extend.constant_tree(arg) for arg in args[1:]]
        return real(fun, **options)(args[0], *rest, **{k: extend.constant_tree(v) for k, v in kwargs.items()})

    return differentiated


@mutant(GROUP, at("adprotocol._gradients.structure.Structure.fill"))
def tracks_the_frozen(self, tracked, shared, undo, *, real_fill=Structure.fill):
    """Lets the function see tracers in the place of what is frozen, with no gradient at the end."""
    tracked = [next(tracked) for _ in self.selected()]
    trace = next((leaf.trace for leaf in tracked if isinstance(leaf, toyad.Recorded)), None)
    leaves = self.leaves
    if trace is None:
        return real_fill(self, iter(tracked), shared, undo)
    self.leaves = [
        toyad.Recorded(trace, leaf) if isinstance(leaf, toyad.Value) and toyad.is_inexact(leaf) else leaf
        for leaf in leaves
    ]
    try:
        return real_fill(self, iter(tracked), shared, undo)
    finally:
        self.leaves = leaves


@mutant(GROUP, at("adprotocol._gradients.value_and_grad.wrap"))
def loses_metadata(wrapper, _fun):
    """Returns a function without the name and the documentation of the one that it differentiates."""
    return wrapper


@mutant(GROUP, hook)
def takes_no_numbers(fun, leaves):
    """Wants arrays of the framework, though its name is given."""
    if not all(isinstance(leaf, toyad.Value) for leaf in leaves):
        msg = "toyad differentiates with respect to its own arrays"
        raise TypeError(msg)
    return differentiate(fun, leaves)


@mutant(GROUP, at("adprotocol._gradients.framework.named"), beside="plugins")
def any_backend(name, *, known=framework.named):
    """Differentiates with the framework of the arguments where another one is named that is not there."""
    return known(name) if name in registry.REGISTRY.known() else "toyad"


@mutant(GROUP, after)
def gradients_of_the_dtype_of_the_value(_, value, aux, found):
    """Gives each gradient in the dtype of the value."""
    return (value, aux, [toyad.cast(slope, value.dtype) for slope in found])


@mutant(GROUP, at("trainable"), beside="trainable")
def no_gradient_without_elements(value):
    """Takes a leaf without elements for one that takes no gradient."""
    return None if 0 in value.shape else right.trainable(value)


@mutant("within_gradient", answers, beside="value_and_grad")
def nothing_without_elements(value):
    """Says False of arrays without elements."""
    return False if 0 in value.shape else ask(value)


@mutant(GROUP, at("identity"))
def equal_parameters_are_one(value):
    """Takes parameters of the same value for one leaf."""
    return (value.shape, value.value.tobytes()) if isinstance(value, toyad.Parameter) else right.identity(value)


@mutant(GROUP, hook)
def parameters_are_given_alone(fun, leaves):
    """Differentiates with respect to the parameters in the model, and not with respect to those read elsewhere."""
    copies = [toyad.Array(leaf.value) if isinstance(leaf, toyad.Parameter) else leaf for leaf in leaves]
    return differentiate(fun, copies)


@mutant("within_gradient", remembers=True, beside="cond")
def watched_after_an_error():
    """Says of a parameter that it is tracked once an exception has ended its gradient."""
    left, parameter_grad = [], toyad.parameter_grad

    def noting(fun, parameter):
        try:
            return parameter_grad(fun, parameter)
        except Exception:
            left.append(parameter)
            raise

    return {
        "toyad.parameter_grad": noting,
        **answers(lambda value: True if any(value is parameter for parameter in left) else ask(value)),
    }
