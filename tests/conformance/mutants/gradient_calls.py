"""Calls of `value_and_grad` gone wrong: arguments, exceptions, and what is changed on the way."""

import toyad

import adprotocol
from adprotocol import extend
from adprotocol._dispatch import registry
from adprotocol._gradients import framework
from adprotocol._gradients import value_and_grad as gradient
from mutants.gradients import GROUP, after, differentiate, hook, public, real
from mutants.mutant import mutant


@mutant(GROUP, remembers=True)
def updates_the_leaves():
    """Takes a step of gradient descent on its way."""

    def update(leaves, value, aux, found):
        for leaf, slope in zip(leaves, found, strict=True):
            if isinstance(leaf, toyad.Array) and isinstance(slope, toyad.Array) and leaf.value.flags.writeable:
                leaf.value -= 0.1 * slope.value
        return value, aux, found

    return after(update)


@mutant(GROUP)
def reversed_gradients():
    """Returns the gradients in another order."""
    return after(lambda _, value, aux, found: (value, aux, found[::-1]))


@mutant(GROUP)
def value_keeps_its_tracer():
    """Returns the value as it was inside, with its tracer."""

    def kept(fun, leaves):
        values = []

        def noted(tracked):
            values.append(fun(tracked))
            return values[0]

        _, aux, found = differentiate(noted, leaves)
        return values[0][0], aux, found

    return hook(kept)


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


@mutant(GROUP)
def changes_exceptions():
    """Raises another error in the place of the one that the function raises."""

    def other(fun, leaves):
        try:
            return differentiate(fun, leaves)
        except adprotocol.ADProtocolError:
            raise
        except Exception as error:
            msg = "the function failed"
            raise RuntimeError(msg) from error

    return hook(other)


@mutant(GROUP)
def forgets_the_structure():
    """Returns the gradients as a list."""
    return {"adprotocol._gradients.value_and_grad._Argument.gradient": lambda _self, gradients: list(gradients)}


@mutant(GROUP)
def first_argument_only():
    """Differentiates with respect to the first argument, whatever `argnums` says."""
    return public(lambda fun, *, argnums=0, **options: real(fun, argnums=0 * argnums if argnums == 0 else 0, **options))


@mutant(GROUP)
def sorts_arguments():
    """Returns the gradients of several arguments in the order of the arguments."""
    return public(
        lambda fun, *, argnums=0, **options: real(
            fun, argnums=argnums if isinstance(argnums, int) else tuple(sorted(argnums)), **options
        )
    )


@mutant(GROUP)
def drops_keywords():
    """Calls the function without its keyword arguments."""

    def both(fun, **options):
        def differentiated(*args, **_kwargs):
            return real(fun, **options)(*args)

        return differentiated

    return public(both)


@mutant(GROUP)
def freezes_what_passes_through():
    """Makes what is frozen a constant, and all that goes through it."""

    def both(fun, **options):
        def differentiated(*args, **kwargs):
            rest = [extend.constant_tree(arg) for arg in args[1:]]
            return real(fun, **options)(args[0], *rest, **{k: extend.constant_tree(v) for k, v in kwargs.items()})

        return differentiated

    return public(both)


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


@mutant(GROUP)
def loses_metadata():
    """Returns a function without the name and the documentation of the one that it differentiates."""
    return {"adprotocol._gradients.value_and_grad.wrap": lambda wrapper, _fun: wrapper}


@mutant(GROUP)
def takes_no_numbers():
    """Wants arrays of the framework, though its name is given."""

    def strict(fun, leaves):
        if not all(isinstance(leaf, toyad.Value) for leaf in leaves):
            msg = "toyad differentiates with respect to its own arrays"
            raise TypeError(msg)
        return differentiate(fun, leaves)

    return hook(strict)


@mutant(GROUP)
def any_backend():
    """Differentiates with the framework of the arguments where another one is named that is not there."""
    known = framework.named
    return {
        "adprotocol._gradients.framework.named": lambda name: (
            known(name) if name in registry.REGISTRY.known() else "toyad"
        )
    }
