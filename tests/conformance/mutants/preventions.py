"""Guards that let a derivative pass, or hold up what nobody differentiates."""

import toyad
import toyad_adprotocol as right

from adprotocol import NonDifferentiable, errors, extend
from adprotocol._hooks import prevent_gradient as core
from mutants.mutant import is_staged, mutant, tracers

GROUP = "prevent_gradient"
guard = right.prevent_gradient
leaf = core._leaf


def guards(function):
    """Return a mutant with another guard for a value and a message."""
    return {"prevent_gradient": function}


def refused(value, message):
    """Raise as if the value were differentiated."""
    raise extend.gradient_prevented(value, message, "toyad")


def lets_pass(condition):
    """Return a mutant that guards nothing for which the condition holds."""
    return guards(lambda value, message: value if condition(value) else guard(value, message))


@mutant(GROUP)
def passes_everything():
    """Guards nothing."""
    return guards(lambda value, message: value)


@mutant(GROUP)
def stops_the_gradient():
    """Makes the value constant, so that the derivative is zero without an error."""
    return guards(lambda value, message: toyad.stop_gradient(value))


@mutant(GROUP)
def refuses_everything():
    """Raises for every array, whoever differentiates it."""
    return guards(refused)


@mutant(GROUP)
def refuses_tracers():
    """Raises for whatever a level follows, batches and programs included."""
    return guards(lambda value, message: value if isinstance(value, toyad.Array) else refused(value, message))


@mutant(GROUP)
def refuses_vmap():
    """Takes batching for differentiation."""
    return guards(
        lambda value, message: (refused if any(isinstance(t, toyad.Batched) for t in tracers(value)) else guard)(
            value, message
        )
    )


@mutant(GROUP)
def refuses_jit():
    """Takes tracing for differentiation."""
    return guards(lambda value, message: (refused if is_staged(value) else guard)(value, message))


@mutant(GROUP)
def passes_jit():
    """Guards nothing in what jit traces."""
    return lets_pass(is_staged)


@mutant(GROUP)
def passes_vmap():
    """Guards nothing that vmap batches."""
    return lets_pass(lambda value: any(isinstance(t, toyad.Batched) for t in tracers(value)))


@mutant(GROUP)
def passes_forward_mode():
    """Knows of tapes, and not of tangents."""
    return lets_pass(lambda value: any(isinstance(t, toyad.Dual) for t in tracers(value)))


@mutant(GROUP)
def passes_reverse_mode():
    """Knows of tangents, and not of tapes."""
    return lets_pass(lambda value: any(isinstance(t, toyad.Recorded) for t in tracers(value)))


@mutant(GROUP)
def one_level_only():
    """Raises only where one level follows the value, so that a second one hides the first."""
    return lets_pass(lambda value: len(tracers(value)) > 1)


@mutant(GROUP)
def loses_the_message():
    """Raises with a text of its own."""
    return guards(lambda value, message: guard(value, "not differentiable"))


@mutant(GROUP)
def copies():
    """Returns a copy."""
    return guards(lambda value, message: guard(value + 0 if value.dtype != bool else value, message))


@mutant(GROUP)
def refuses_integers():
    """Raises for integers."""
    return guards(lambda value, message: (guard if toyad.is_inexact(value) else refused)(value, message))


@mutant(GROUP)
def no_hook():
    """Leaves the hook out, although its answers may be staged."""
    return guards(None)


@mutant(GROUP)
def ignores_the_switch():
    """Raises for what a tape follows, even where the tape is quiet."""
    return guards(
        lambda value, message: (refused if any(isinstance(t, toyad.Recorded) for t in tracers(value)) else guard)(
            value, message
        )
    )


@mutant(GROUP)
def opens_labels():
    """Looks into labels."""

    def one(value, message, *place):
        if isinstance(value, NonDifferentiable):
            leaf(value.held, message)
        return leaf(value, message, *place)

    return {"adprotocol._hooks.prevent_gradient._leaf": one}


@mutant(GROUP)
def whole_containers():
    """Takes a container for one value, without paths."""
    return {"adprotocol._hooks.prevent_gradient._placed": lambda message, *_: message}


@mutant(GROUP)
def first_leaf_only():
    """Guards the first leaf of a container."""
    return {
        "adprotocol._hooks.prevent_gradient._leaf": lambda value, message, tree=None, treespec=None, place=0: (
            value if place else leaf(value, message, tree, treespec, place)
        )
    }


@mutant(GROUP)
def another_error():
    """Raises an error of another kind."""

    def other(value, message):
        def error(_x):
            return errors.UndecidableError(message)

        return toyad.guard(value, error)

    return guards(other)


@mutant(GROUP, remembers=True)
def raises_once():
    """Raises once, and never again."""
    raised = []

    def once(value, message):
        def error(x):
            raised.append(x)
            return extend.gradient_prevented(x, message, "toyad")

        return value if raised else toyad.guard(value, error)

    return guards(once)


@mutant(GROUP)
def numbers_are_refused():
    """Raises for Python numbers in a container."""

    def one(value, message, *place):
        if place and isinstance(value, (int, float)) and not isinstance(value, bool):
            refused(value, message)
        return leaf(value, message, *place)

    return {"adprotocol._hooks.prevent_gradient._leaf": one}


@mutant(GROUP)
def the_wrong_way_round():
    """Passes what is differentiated, and raises for plain arrays."""

    def below(value, message):
        return refused(value, message) if isinstance(value, toyad.Array) and toyad.is_inexact(value) else value

    return guards(below)
