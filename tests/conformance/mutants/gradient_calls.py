"""Calls of `value_and_grad` gone wrong: arguments, exceptions, and what is changed on the way."""

import toyad

import adprotocol
from adprotocol import extend
from adprotocol._dispatch import registry
from adprotocol._gradients import framework
from adprotocol._gradients import value_and_grad as gradient
from mutants.gradients import GROUP, after, differentiate, hook, public, real
from mutants.mutant import at, mutant


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


@mutant(GROUP, at("adprotocol._gradients.value_and_grad._Argument.gradient"))
def forgets_the_structure(_self, gradients):
    """Returns the gradients as a list."""
    return list(gradients)


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


@mutant(GROUP)
def tracks_the_frozen():
    """Lets the function see tracers in the place of what is frozen, with no gradient at the end."""
    real_fill = gradient._Argument.fill

    def both(self, tracked, replaced, undo):
        tracked = [next(tracked) for _ in self.leaves]
        trace = next((leaf.trace for leaf in tracked if isinstance(leaf, toyad.Recorded)), None)
        leaves = self._structure.leaves
        if trace is None:
            return real_fill(self, iter(tracked), replaced, undo)
        self._structure.leaves = [
            toyad.Recorded(trace, leaf) if isinstance(leaf, toyad.Value) and toyad.is_inexact(leaf) else leaf
            for leaf in leaves
        ]
        try:
            return real_fill(self, iter(tracked), replaced, undo)
        finally:
            self._structure.leaves = leaves

    return {"adprotocol._gradients.value_and_grad._Argument.fill": both}


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


@mutant(GROUP)
def any_backend():
    """Differentiates with the framework of the arguments where another one is named that is not there."""
    known = framework.named
    return {
        "adprotocol._gradients.framework.named": lambda name: (
            known(name) if name in registry.REGISTRY.known() else "toyad"
        )
    }
