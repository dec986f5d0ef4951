"""Branches that are not those asked for: `cond` gone wrong."""

import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from mutants.constants import first_order_constant
from mutants.mutant import innermost, is_staged, mutant, tracers

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
    return {"cond": lambda pred, true_fun, false_fun, operands: function(pred, true_fun, false_fun, operands)}


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


@mutant(GROUP)
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
def takes_integers():
    """Takes an array of integers for a predicate."""
    return branches(
        lambda pred, t, f, operands: choose(
            pred != 0 if isinstance(pred, toyad.Value) and pred.dtype != bool else pred, t, f, operands
        )
    )


@mutant(GROUP)
def takes_python_integers():
    """Takes whatever Python takes for true."""
    real = adprotocol.cond
    return {
        "adprotocol.cond": lambda pred, *rest: real(bool(pred) if isinstance(pred, (int, float, str)) else pred, *rest)
    }


@mutant(GROUP)
def takes_none():
    """Takes None for False."""
    real = adprotocol.cond
    return {"adprotocol.cond": lambda pred, *rest: real(False if pred is None else pred, *rest)}


@mutant(GROUP)
def takes_vectors():
    """Takes a vector for a predicate, and looks at its first element."""

    def first(pred, t, f, operands):
        if isinstance(pred, toyad.Value):
            while pred.shape:
                pred = pred[0]
        return choose(pred, t, f, operands)

    return branches(first)


@mutant(GROUP)
def refuses_numpy_bools():
    """Does not know the bools of NumPy."""
    real = adprotocol.cond

    def strict(pred, *rest):
        if type(pred).__module__ == "numpy":
            msg = "cond wants a bool"
            raise TypeError(msg)
        return real(pred, *rest)

    return {"adprotocol.cond": strict}


@mutant(GROUP)
def takes_values_for_branches():
    """Returns what is given in the place of a branch, instead of refusing it."""
    real = adprotocol.cond

    def as_function(branch):
        return branch if callable(branch) else lambda *_: branch

    return {"adprotocol.cond": lambda pred, t, f, *operands: real(pred, as_function(t), as_function(f), *operands)}


@mutant(GROUP)
def swallows_exceptions():
    """Takes the other branch where one raises."""

    def either(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except (ValueError, ArithmeticError, LookupError, RuntimeError):
            return choose(pred, f, t, operands)

    return branches(either)


@mutant(GROUP)
def changes_exceptions():
    """Raises another error in the place of the one that a branch raises."""

    def other(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except (ValueError, ArithmeticError, LookupError, RuntimeError) as error:
            msg = "a branch failed"
            raise adprotocol.ADProtocolError(msg) from error

    return branches(other)


def converted(change):
    """Return a mutant that changes the result of the branch."""
    return branches(lambda pred, t, f, operands: change(choose(pred, t, f, operands)))


@mutant(GROUP)
def converts_tuples():
    """Returns lists where the branch returns tuples."""

    def lists(result):
        if type(result) is dict:
            return {key: lists(item) for key, item in result.items()}
        return [lists(item) for item in result] if type(result) in (list, tuple) else result

    return converted(lists)


@mutant(GROUP)
def converts_dicts():
    """Returns a tuple of the items where the branch returns a dict."""
    return converted(lambda result: tuple(result.values()) if isinstance(result, dict) else result)


@mutant(GROUP)
def converts_numbers():
    """Returns an array where the branch returns a number of Python's."""
    return converted(lambda result: toyad.array(result) if isinstance(result, (int, float)) else result)


@mutant(GROUP)
def converts_none():
    """Returns zero where the branch returns None."""
    return converted(lambda result: 0.0 if result is None else result)


@mutant(GROUP)
def refuses_numbers():
    """Wants arrays from branches that are chosen later."""

    def arrays(fun):
        def run(*operands):
            result = fun(*operands)
            if isinstance(result, (int, float)):
                msg = "a branch returned a number"
                raise TypeError(msg)
            return result

        return run

    return branches(
        lambda pred, t, f, operands: choose(pred, *((t, f) if is_known(pred) else map(arrays, (t, f))), operands)
    )


@mutant(GROUP)
def swaps_operands():
    """Gives the operands to the branch in another order."""
    return branches(lambda pred, t, f, operands: choose(pred, t, f, operands[::-1]))


@mutant(GROUP)
def takes_operands_apart():
    """Gives the branches the leaves of its operands, without their containers."""
    return branches(lambda pred, t, f, operands: choose(pred, t, f, tuple(extend.flatten(operands))))


@mutant(GROUP)
def arrays_for_operands():
    """Gives the branches arrays where the operands are numbers, and refuses what is neither."""

    def lifted(pred, t, f, operands):
        return choose(pred, t, f, tuple(extend.tree_map(toyad.lift, operand) for operand in operands))

    return branches(lifted)


@mutant(GROUP)
def mismatch_takes_the_first():
    """Takes the first branch where the two return different things, instead of refusing them."""

    def lenient(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except adprotocol.errors.BranchMismatchError:
            return t(*operands)

    return branches(lenient)


@mutant(GROUP)
def mismatch_of_its_own():
    """Raises the framework's own error where the branches return different things."""

    def own(pred, t, f, operands):
        try:
            return choose(pred, t, f, operands)
        except adprotocol.errors.BranchMismatchError as error:
            raise error.__cause__ from None

    return branches(own)


@mutant(GROUP)
def does_not_nest():
    """Takes, in a branch that is chosen later, the first branch of any other choice."""
    inside = []

    def outermost(fun):
        def run(*operands):
            inside.append(fun)
            try:
                return fun(*operands)
            finally:
                inside.pop()

        return run

    def flat(pred, t, f, operands):
        if is_known(pred):
            return choose(pred, t, f, operands)
        return t(*operands) if inside else choose(pred, outermost(t), outermost(f), operands)

    return branches(flat)


@mutant(GROUP)
def wants_a_known_predicate():
    """Asks for the truth of a predicate that is not known yet."""
    return branches(lambda pred, t, f, operands: t(*operands) if pred else f(*operands))


@mutant(GROUP)
def reads_the_predicate():
    """Follows the predicate below the level that batches it."""

    def below(pred, t, f, operands):
        known = innermost(pred) if isinstance(pred, toyad.Value) else pred
        if isinstance(known, toyad.Array) and known.shape:
            known = bool(known.value.any())
        return choose(known, t, f, operands)

    return branches(below)
