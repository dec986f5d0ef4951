"""Branches that are not those asked for: `cond` gone wrong."""

import functools

import toyad
import toyad_adprotocol as right

from adprotocol import extend
from adprotocol._hooks import cond as predicates
from mutants.constants import first_order_constant
from mutants.mutant import at, follows, is_staged, mutant

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
    return follows(toyad.Batched, pred) and not is_staged(pred)


def branches(function):
    """Return a mutant with another way to choose."""

    # pluggy reads the names of the parameters.
    def cond(pred, true_fun, false_fun, operands):
        return function(pred, true_fun, false_fun, operands)

    return {"cond": cond}


def later(function):
    """Return a mutant with another way to choose where the predicate is staged or batched."""
    return branches(lambda pred, *rest: (choose if is_known(pred) else function)(pred, *rest))


def each(run, way=branches):
    """Return a mutant that runs each branch in another way: ``run(fun, *operands)``."""
    return way(
        lambda pred, t, f, operands: choose(pred, functools.partial(run, t), functools.partial(run, f), operands)
    )


def each_later(run):
    """Return one that does so where the predicate is staged or batched."""
    return each(run, later)


@mutant(GROUP, branches)
def both_branches(pred, t, f, operands):
    """Runs both branches where one is chosen."""
    if not is_known(pred):
        return choose(pred, t, f, operands)
    results = t(*operands), f(*operands)
    return choose(pred, lambda: results[0], lambda: results[1], ())


@mutant(GROUP, branches)
def wrong_branch(pred, t, f, operands):
    """Takes the other branch."""
    return choose(pred, f, t, operands)


@mutant(GROUP, branches)
def wrong_branch_when_batched(pred, t, f, operands):
    """Takes the other branch where examples choose."""
    return choose(pred, *((f, t) if is_batched(pred) else (t, f)), operands)


@mutant(GROUP, branches)
def first_example_chooses(pred, t, f, operands):
    """Takes for all examples the branch of the first."""
    return choose(pred.below[0] if is_batched(pred) else pred, t, f, operands)


@mutant(GROUP, each)
def runs_twice(fun, *operands):
    """Runs the chosen branch a second time."""
    fun(*operands)
    return fun(*operands)


@mutant(GROUP, each)
def none_runs_again(fun, *operands):
    """Runs a branch that returned None again, as not done."""
    result = fun(*operands)
    return fun(*operands) if result is None else result


@mutant(GROUP, branches)
def true_while_tracing(pred, t, f, operands):
    """Takes the first branch where jit does not know yet."""
    return choose(True if is_staged(pred) else pred, t, f, operands)


@mutant(GROUP, branches)
def false_while_tracing(pred, t, f, operands):
    """Takes the second branch where jit does not know yet."""
    return choose(False if is_staged(pred) else pred, t, f, operands)


@mutant(GROUP, remembers=True)
def remembers_the_branch():
    """Takes the branch that was taken first, for the same functions."""
    known = {}

    def remembered(pred, t, f, operands):
        if is_known(pred):
            pred = known.setdefault((t.__code__, f.__code__), bool(pred))
        return choose(pred, t, f, operands)

    return branches(remembered)


@mutant(GROUP, branches)
def drops_gradients(pred, t, f, operands):
    """Returns constants."""
    return constant(choose(pred, t, f, operands))


@mutant(GROUP, later)
def drops_gradients_under_jit(pred, t, f, operands):
    """Returns constants where the branch is chosen later."""
    return constant(choose(pred, t, f, operands))


@mutant(GROUP, branches)
def drops_gradients_of_the_second(pred, t, f, operands):
    """Returns a constant from the second branch."""
    return choose(pred, t, lambda *ops: constant(f(*ops)), operands)


@mutant(GROUP, each)
def runs_without_recording(fun, *operands):
    """Runs the branch under no_grad."""
    with toyad.no_grad():
        return fun(*operands)


@mutant(GROUP, each)
def ignores_closed_over_values(fun, *operands):
    """Differentiates with respect to the operands, and not to what a branch closes over."""
    result = fun(*operands)
    if not isinstance(result, toyad.Value) or not toyad.is_inexact(result):
        return result
    return toyad.stop_gradient(result) + (result - fun(*constant(operands)))


@mutant(GROUP, branches)
def ignores_operands(pred, t, f, operands):
    """Differentiates with respect to what a branch closes over, and not to the operands."""
    return choose(pred, t, f, constant(operands))


@mutant(GROUP, branches)
def ignores_later_operands(pred, t, f, operands):
    """Differentiates with respect to the first operand only."""
    return choose(pred, t, f, operands[:1] + constant(operands[1:]))


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


@mutant(GROUP, selected)
def leaks_nan(_pred, x):
    """Selects between the results of both branches, so that a NaN of the other reaches the gradient."""
    return x


@mutant(GROUP, selected)
def leaks_nan_in_second_order(pred, x):
    """Keeps the NaN of the other branch out of first derivatives only."""
    return toyad.where(pred, x, first_order_constant(x))


@mutant(GROUP, branches)
def leaks_nan_under_jit(pred, t, f, operands):
    """Runs both branches where the predicate is staged, and selects."""
    if not is_staged(pred):
        return choose(pred, t, f, operands)
    results = t(*operands), f(*operands)
    if not all(isinstance(result, toyad.Value) for result in results):
        return choose(pred, t, f, operands)
    return toyad.where(pred, *results)


@mutant(GROUP, selected)
def fills_with_zeros(pred, x):
    """Runs both branches for examples that differ, the other one on zeros."""
    return toyad.where(pred, x, 0.0)


@mutant(GROUP, at("adprotocol._hooks.cond._predicate_error"))
def stumbles_over_staged_numbers(pred, dtype, *, real=predicates._predicate_error):
    """Fails by a mistake of its own where a number is traced for a predicate."""
    return AttributeError("'float' object has no attribute 'all'") if is_staged(pred) else real(pred, dtype)
