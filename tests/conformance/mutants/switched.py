"""The system's own switch, errors, integers and ranks, taken for something else."""

import contextlib

import numpy as np
import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from mutants.branches import branches, choose, constant
from mutants.constants import stop, stops
from mutants.gradients import differentiate, hook
from mutants.mutant import at, follows, is_staged, mutant, noted, tracers
from mutants.queries import answers, ask


def is_watched(value):
    """Tell whether a tape watches a parameter, or has recorded a value."""
    found = toyad.current(value)
    return any(isinstance(tracer, toyad.Recorded) for tracer in tracers(found))


@mutant("within_gradient", answers)
def parameters_ignore_the_switch(value):
    """Says True of a parameter that a tape watches, also where the tape records nothing."""
    return True if isinstance(value, toyad.Parameter) and is_watched(value) else ask(value)


@mutant("within_gradient", answers)
def results_ignore_the_switch(value):
    """Says True of what a tape has recorded, also where the tape records nothing."""
    return True if not isinstance(value, toyad.Parameter) and is_watched(value) else ask(value)


@mutant("within_gradient", at("toyad.run"))
def programs_ignore_the_switch(program, operands, *, run=toyad.run):
    """Runs what was traced with the switch on."""
    before, toyad.STATE.quiet = toyad.STATE.quiet, 0
    try:
        return run(program, operands)
    finally:
        toyad.STATE.quiet = before


@mutant("non_differentiable", stops)
def nothing_to_stop_under_the_switch(value):
    """Stops nothing where nothing is recorded, though what it returns may be used where something is."""
    return value if toyad.STATE.quiet else stop(value)


@mutant("non_differentiable", stops)
def parameters_are_constants_under_the_switch(value):
    """Stops no parameter where nothing is recorded."""
    return value if toyad.STATE.quiet and isinstance(value, toyad.Parameter) else stop(value)


@mutant("value_and_grad")
def results_under_the_switch_stay():
    """Says True of what a call under the switch has returned."""
    kept = []

    def keeps(fun, leaves):
        value, aux, found = differentiate(fun, leaves)
        if toyad.STATE.quiet:
            kept.extend([value, *extend.tree_leaves((aux,)), *found])
        return value, aux, found

    return hook(keeps) | answers(lambda value: any(value is one for one in kept) or ask(value))


@mutant("value_and_grad", hook)
def turns_the_switch_on(fun, leaves):
    """Turns recording on for the call, and leaves it on."""
    toyad.STATE.quiet = 0
    return differentiate(fun, leaves)


@mutant("value_and_grad", hook)
def turns_the_switch_on_for_good(fun, leaves):
    """Turns recording on for the call, and leaves it on if the function raises."""
    before, toyad.STATE.quiet = toyad.STATE.quiet, 0
    result = differentiate(fun, leaves)
    toyad.STATE.quiet = before
    return result


@mutant("value_and_grad")
def tracks_the_frozen_under_the_switch():
    """Says True of every parameter in a call under the switch."""
    calls = []

    def noting(fun, leaves):
        if not toyad.STATE.quiet:
            return differentiate(fun, leaves)
        with noted(calls):
            return differentiate(fun, leaves)

    return hook(noting) | answers(lambda value: True if calls and isinstance(value, toyad.Parameter) else ask(value))


def after_errors(harm, when=lambda _pred: True):
    """Return a mutant that does harm to every result behind a branch that has raised."""
    raised = []

    def cond(pred, t, f, operands):
        try:
            result = choose(pred, t, f, operands)
        except Exception:
            if when(pred):
                raised.append(True)
            raise
        return harm(result) if raised else result

    return branches(cond) | answers(lambda value: (not raised or ask(value)) if not is_staged(value) else ask(value))


@mutant("cond", remembers=True)
def stops_recording_after_an_error():
    """Records nothing behind a branch that has raised."""
    return after_errors(constant)


@mutant("cond", remembers=True)
def stays_open_after_an_error():
    """Says True of everything behind a branch that has raised."""
    raised = []

    def cond(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except Exception:
            raised.append(True)
            raise

    return branches(cond) | answers(lambda value: True if raised else ask(value))


@mutant("cond", remembers=True, beside="value_and_grad")
def turns_the_switch_on_after_an_error():
    """Turns recording on behind what has raised under the switch."""

    def cond(pred, t, f, operands):
        with recording_after_an_error():
            return choose(pred, t, f, operands)

    return branches(cond)


@contextlib.contextmanager
def recording_after_an_error():
    """Turn recording on if the block raises."""
    try:
        yield
    except Exception:
        toyad.STATE.quiet = 0
        raise


def computed_in_a_gradient():
    """Return patches by which an array knows whether a derivative was under way when it was made, and the test."""
    depth = []

    def following(function):
        def followed(*args):
            with noted(depth):
                return function(*args)

        return followed

    def init(self, value, device="cpu", real=toyad.Array.__init__):
        real(self, value, device)
        self.made_in_a_gradient = bool(depth)

    patches = {f"toyad.{name}": following(getattr(toyad, name)) for name in ("gradients", "jvp")}
    return patches | {"toyad.Array.__init__": init}, lambda value: getattr(value, "made_in_a_gradient", False)


@mutant("within_gradient")
def integers_keep_the_flag():
    """Says True of integers and bools that were computed where a derivative was under way."""
    patches, made = computed_in_a_gradient()

    def within_gradient(value):
        return made(value) if not toyad.is_inexact(value) and isinstance(value, toyad.Array) else ask(value)

    return patches | {"within_gradient": within_gradient}


@mutant("within_gradient")
def integer_vectors_keep_the_flag():
    """Says True of vectors of integers that were computed where a derivative was under way."""
    patches, made = computed_in_a_gradient()

    def within_gradient(value):
        return bool(value.shape) and made(value) if value.dtype.kind == "i" and hasattr(value, "value") else ask(value)

    return patches | {"within_gradient": within_gradient}


@mutant("within_gradient", at("within_gradient"))
def integers_are_tracked_under_jit(value):
    """Says True of integers and bools in a program."""
    return True if is_staged(value) and not toyad.is_inexact(value) else ask(value)


@mutant("within_gradient", at("within_gradient"))
def integers_are_tracked_under_vmap(value):
    """Says True of integers and bools in a batch that is differentiated."""
    whole = follows(toyad.Batched, value) and not toyad.is_inexact(value)
    return True if whole else ask(value)


@mutant("within_gradient", beside="prevent_gradient")
def integers_are_prevented():
    """Refuses integers and bools that were computed where a derivative was under way, as if they carried one."""
    patches, made = computed_in_a_gradient()

    def prevent_gradient(value, message):
        if not toyad.is_inexact(value) and made(value):
            raise adprotocol.errors.GradientPreventedError(message)
        return right.prevent_gradient(value, message)

    return patches | {"prevent_gradient": prevent_gradient}


def is_high(value):
    """Tell whether an array has more than two axes."""
    return len(value.shape) > 2


@mutant("within_gradient", answers)
def low_ranks_only(value):
    """Says False of arrays of more than two axes."""
    return False if is_high(value) else ask(value)


@mutant("non_differentiable", stops)
def low_ranks_are_stopped(value):
    """Stops nothing of more than two axes."""
    return value if is_high(value) else stop(value)


@mutant("cond", branches)
def low_ranks_are_connected(pred, t, f, operands):
    """Makes operands of more than two axes constants."""
    return choose(pred, t, f, [constant(x) if isinstance(x, toyad.Value) and is_high(x) else x for x in operands])


@mutant("cond", branches)
def high_ranks_are_flattened(pred, t, f, operands):
    """Drops axes of length one of a result of more than two axes."""

    def squeezed(x):
        shape = tuple(length for length in x.shape if length != 1)
        return toyad.reshaped(x, shape) if is_high(x) else x

    result = choose(pred, t, f, operands)
    return extend.tree_map(lambda leaf: squeezed(leaf) if isinstance(leaf, toyad.Value) else leaf, result)


@mutant("value_and_grad", hook)
def gradients_of_low_ranks(fun, leaves):
    """Returns zeros for a leaf of more than two axes."""
    value, aux, found = differentiate(fun, leaves)
    return value, aux, [slope * 0.0 if is_high(slope) else slope for slope in found]


@mutant("value_and_grad", hook)
def zeros_of_low_ranks(fun, leaves):
    """Returns zeros of two axes for an unused leaf of more."""
    value, aux, found = differentiate(fun, leaves)

    def cut(slope):
        unused = isinstance(slope, toyad.Array) and is_high(slope) and not slope.value.any()
        return toyad.Array(np.zeros(slope.shape[:2])) if unused else slope

    return value, aux, [cut(slope) for slope in found]
