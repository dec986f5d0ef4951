"""Guards that let a derivative pass, or hold up what nobody differentiates."""

import toyad
import toyad_adprotocol as right

from adprotocol import NonDifferentiable, errors, extend
from adprotocol._hooks import prevent_gradient as core
from mutants.mutant import at, follows, is_staged, mutant, tracers

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


@mutant(GROUP, guards)
def passes_everything(value, message):
    """Guards nothing."""
    return value


@mutant(GROUP, guards)
def stops_the_gradient(value, message):
    """Makes the value constant, so that the derivative is zero without an error."""
    return toyad.stop_gradient(value)


@mutant(GROUP)
def refuses_everything():
    """Raises for every array, whoever differentiates it."""
    return guards(refused)


@mutant(GROUP, guards)
def refuses_tracers(value, message):
    """Raises for whatever a level follows, batches and programs included."""
    return value if isinstance(value, toyad.Array) else refused(value, message)


@mutant(GROUP, guards)
def refuses_vmap(value, message):
    """Takes batching for differentiation."""
    return (refused if follows(toyad.Batched, value) else guard)(value, message)


@mutant(GROUP, guards)
def refuses_jit(value, message):
    """Takes tracing for differentiation."""
    return (refused if is_staged(value) else guard)(value, message)


@mutant(GROUP)
def passes_jit():
    """Guards nothing in what jit traces."""
    return lets_pass(is_staged)


@mutant(GROUP, lets_pass)
def passes_what_others_call(_value):
    """Guards nothing in a program that is traced in another."""
    return len(toyad.STATE.stages) > 1


@mutant(GROUP, lets_pass)
def passes_vmap(value):
    """Guards nothing that vmap batches."""
    return follows(toyad.Batched, value)


@mutant(GROUP, lets_pass)
def passes_forward_mode(value):
    """Knows of tapes, and not of tangents."""
    return follows(toyad.Dual, value)


@mutant(GROUP, lets_pass)
def passes_reverse_mode(value):
    """Knows of tangents, and not of tapes."""
    return follows(toyad.Recorded, value)


@mutant(GROUP, lets_pass)
def one_level_only(value):
    """Raises only where one level follows the value, so that a second one hides the first."""
    return len(tracers(value)) > 1


@mutant(GROUP, guards)
def loses_the_message(value, message):
    """Raises with a text of its own."""
    return guard(value, "not differentiable")


@mutant(GROUP, guards)
def copies(value, message):
    """Returns a copy."""
    return guard(value + 0 if value.dtype != bool else value, message)


@mutant(GROUP, guards)
def refuses_integers(value, message):
    """Raises for integers."""
    return (guard if toyad.is_inexact(value) else refused)(value, message)


@mutant(GROUP)
def no_hook():
    """Leaves the hook out, although its answers may be staged."""
    return guards(None)


@mutant(GROUP, guards)
def ignores_the_switch(value, message):
    """Raises for what a tape follows, even where the tape is quiet."""
    return (refused if follows(toyad.Recorded, value) else guard)(value, message)


@mutant(GROUP, at("adprotocol._hooks.prevent_gradient._leaf"))
def opens_labels(value, message, *place):
    """Looks into labels."""
    if isinstance(value, NonDifferentiable):
        leaf(value.held, message)
    return leaf(value, message, *place)


@mutant(GROUP, at("adprotocol._hooks.prevent_gradient._placed"))
def whole_containers(message, *_):
    """Takes a container for one value, without paths."""
    return message


@mutant(GROUP, at("adprotocol._hooks.prevent_gradient._leaf"))
def first_leaf_only(value, message, treespec=None, place=0, names=None):
    """Guards the first leaf of a container."""
    return value if place else leaf(value, message, treespec, place, names)


@mutant(GROUP, guards)
def another_error(value, message):
    """Raises an error of another kind."""

    def error(_x):
        return errors.UndecidableError(message)

    return toyad.guard(value, error)


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


@mutant(GROUP, at("adprotocol._hooks.prevent_gradient._leaf"))
def numbers_are_refused(value, message, *place):
    """Raises for Python numbers in a container."""
    if place and isinstance(value, (int, float)) and not isinstance(value, bool):
        refused(value, message)
    return leaf(value, message, *place)


@mutant(GROUP, guards)
def the_wrong_way_round(value, message):
    """Passes what is differentiated, and raises for plain arrays."""
    return refused(value, message) if isinstance(value, toyad.Array) and toyad.is_inexact(value) else value
