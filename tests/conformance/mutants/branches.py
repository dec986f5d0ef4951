"""Branches that are not those asked for: `cond` gone wrong."""

import toyad
import toyad_adprotocol as right

from adprotocol import extend
from adprotocol._hooks import cond as predicates
from mutants.constants import first_order_constant
from mutants.mutant import is_staged, mutant, tracers

GROUP = "cond"
choose = right.cond


def constant(tree):
    """Return a tree, of which the arrays are constants."""
    return extend.tree_map(lambda leaf: toyad.stop_gradient(leaf) if isinstance(leaf, toyad.Value) else leaf, tree)


def is_known(pred):
    """Tell whether a predicate chooses a branch now."""
    return isinstance(pred, (bool, toyad.Array))


def is_batched(pred):
    """Tell whether a predicate chooses for several examples at once."""
    return any(isinstance(tracer, toyad.Batched) for tracer in tracers(pred)) and not is_staged(pred)


def branches(function):
    """Return a mutant with another way to choose."""

    # pluggy reads the names of the parameters.
    def cond(pred, true_fun, false_fun, operands):
        return function(pred, true_fun, false_fun, operands)

    return {"cond": cond}


def wrapped(change):
    """Return a mutant that does something to the branches: ``change(fun)`` in the place of each."""
    return branches(lambda pred, t, f, operands: choose(pred, change(t), change(f), operands))


@mutant(GROUP)
def both_branches():
    """Runs both branches where one is chosen."""

    def both(pred, t, f, operands):
        if not is_known(pred):
            return choose(pred, t, f, operands)
        results = t(*operands), f(*operands)
        return choose(pred, lambda: results[0], lambda: results[1], ())

    return branches(both)


@mutant(GROUP)
def wrong_branch():
    """Takes the other branch."""
    return branches(lambda pred, t, f, operands: choose(pred, f, t, operands))


@mutant(GROUP)
def wrong_branch_when_batched():
    """Takes the other branch where examples choose."""
    return branches(lambda pred, t, f, operands: choose(pred, *((f, t) if is_batched(pred) else (t, f)), operands))


@mutant(GROUP)
def first_example_chooses():
    """Takes for all examples the branch of the first."""

    def first(pred, t, f, operands):
        return choose(pred.below[0] if is_batched(pred) else pred, t, f, operands)

    return branches(first)


@mutant(GROUP)
def runs_twice():
    """Runs the chosen branch a second time."""

    def twice(fun):
        return lambda *operands: (fun(*operands), fun(*operands))[1]

    return wrapped(twice)


@mutant(GROUP)
def none_runs_again():
    """Runs a branch that returned None again, as not done."""

    def again(fun):
        def run(*operands):
            result = fun(*operands)
            return fun(*operands) if result is None else result

        return run

    return wrapped(again)


@mutant(GROUP)
def true_while_tracing():
    """Takes the first branch where jit does not know yet."""
    return branches(lambda pred, t, f, operands: choose(True if is_staged(pred) else pred, t, f, operands))


@mutant(GROUP)
def false_while_tracing():
    """Takes the second branch where jit does not know yet."""
    return branches(lambda pred, t, f, operands: choose(False if is_staged(pred) else pred, t, f, operands))


@mutant(GROUP, remembers=True)
def remembers_the_branch():
    """Takes the branch that was taken first, for the same functions."""
    known = {}

    def remembered(pred, t, f, operands):
        if is_known(pred):
            pred = known.setdefault((t.__code__, f.__code__), bool(pred))
        return choose(pred, t, f, operands)

    return branches(remembered)


@mutant(GROUP)
def drops_gradients():
    """Returns constants."""
    return branches(lambda pred, t, f, operands: constant(choose(pred, t, f, operands)))


@mutant(GROUP)
def drops_gradients_under_jit():
    """Returns constants where the branch is chosen later."""
    return branches(
        lambda pred, t, f, operands: (
            choose(pred, t, f, operands) if is_known(pred) else constant(choose(pred, t, f, operands))
        )
    )


@mutant(GROUP)
def drops_gradients_of_the_second():
    """Returns a constant from the second branch."""
    return branches(lambda pred, t, f, operands: choose(pred, t, lambda *ops: constant(f(*ops)), operands))


@mutant(GROUP)
def runs_without_recording():
    """Runs the branch under no_grad."""

    def unrecorded(fun):
        def run(*operands):
            with toyad.no_grad():
                return fun(*operands)

        return run

    return wrapped(unrecorded)


@mutant(GROUP)
def ignores_closed_over_values():
    """Differentiates with respect to the operands, and not to what a branch closes over."""

    def of_operands(fun):
        def run(*operands):
            result = fun(*operands)
            if not isinstance(result, toyad.Value) or not toyad.is_inexact(result):
                return result
            return toyad.stop_gradient(result) + (result - fun(*constant(operands)))

        return run

    return wrapped(of_operands)


@mutant(GROUP)
def ignores_operands():
    """Differentiates with respect to what a branch closes over, and not to the operands."""
    return branches(lambda pred, t, f, operands: choose(pred, t, f, constant(operands)))


@mutant(GROUP)
def ignores_later_operands():
    """Differentiates with respect to the first operand only."""
    return branches(lambda pred, t, f, operands: choose(pred, t, f, operands[:1] + constant(operands[1:])))


def selected(guard):
    """Return a mutant that runs both branches for examples that differ, on operands behind a guard."""

    def select(pred, t, f, operands):
        if not is_batched(pred):
            return choose(pred, t, f, operands)

        def guarded(pred):
            return extend.tree_map(
                lambda leaf: guard(pred, leaf) if isinstance(leaf, toyad.Value) and toyad.is_inexact(leaf) else leaf,
                operands,
            )

        first, second = t(*guarded(pred)), f(*guarded(~pred))
        leaves, structure = toyad.flatten((first, second))
        half = len(leaves) // 2
        return toyad.unflatten(
            structure, [toyad.where(pred, x, y) for x, y in zip(leaves[:half], leaves[half:], strict=True)] * 2
        )[0]

    return branches(select)


@mutant(GROUP)
def leaks_nan():
    """Selects between the results of both branches, so that a NaN of the other reaches the gradient."""
    return selected(lambda _pred, x: x)


@mutant(GROUP)
def leaks_nan_in_second_order():
    """Keeps the NaN of the other branch out of first derivatives only."""
    return selected(lambda pred, x: toyad.where(pred, x, first_order_constant(x)))


@mutant(GROUP)
def leaks_nan_under_jit():
    """Runs both branches where the predicate is staged, and selects."""

    def select(pred, t, f, operands):
        if not is_staged(pred):
            return choose(pred, t, f, operands)
        results = t(*operands), f(*operands)
        if not all(isinstance(result, toyad.Value) for result in results):
            return choose(pred, t, f, operands)
        return toyad.where(pred, *results)

    return branches(select)


@mutant(GROUP)
def fills_with_zeros():
    """Runs both branches for examples that differ, the other one on zeros."""
    return selected(lambda pred, x: toyad.where(pred, x, 0.0))


@mutant(GROUP)
def stumbles_over_staged_numbers():
    """Fails by a mistake of its own where a number is traced for a predicate."""

    def stumbles(pred, dtype, *, real=predicates._predicate_error):
        return AttributeError("'float' object has no attribute 'all'") if is_staged(pred) else real(pred, dtype)

    return {"adprotocol._hooks.cond._predicate_error": stumbles}
