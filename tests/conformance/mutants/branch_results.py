"""Predicates taken or refused, results and errors changed on the way: `cond` gone wrong at its edges."""

import dataclasses

import toyad

import adprotocol
from adprotocol import extend
from mutants.branches import GROUP, branches, choose, each_later, later
from mutants.mutant import at, innermost, mutant, noted


@mutant(GROUP, at("adprotocol.cond"))
def takes_integers(pred, *rest, real=adprotocol.cond):
    """Takes an array of integers for a predicate."""
    return real(pred != 0 if isinstance(pred, toyad.Value) and pred.dtype != bool else pred, *rest)


@mutant(GROUP, at("adprotocol.cond"))
def takes_python_integers(pred, *rest, real=adprotocol.cond):
    """Takes whatever Python takes for true."""
    return real(bool(pred) if isinstance(pred, (int, float, str)) else pred, *rest)


@mutant(GROUP, at("adprotocol.cond"), beside="plugins")
def takes_none(pred, *rest, real=adprotocol.cond):
    """Takes None for False."""
    return real(False if pred is None else pred, *rest)


@mutant(GROUP, at("adprotocol.cond"))
def takes_vectors(pred, *rest, real=adprotocol.cond):
    """Takes a vector for a predicate, and looks at its first element."""
    if isinstance(pred, toyad.Value):
        while pred.shape:
            pred = pred[0]
    return real(pred, *rest)


@mutant(GROUP, at("adprotocol.cond"))
def refuses_numpy_bools(pred, *rest, real=adprotocol.cond):
    """Does not know the bools of NumPy."""
    if type(pred).__module__ == "numpy":
        msg = "cond wants a bool"
        raise TypeError(msg)
    return real(pred, *rest)


@mutant(GROUP)
def takes_values_for_branches():
    """Returns what is given in the place of a branch, instead of refusing it."""
    real = adprotocol.cond

    def as_function(branch):
        return branch if callable(branch) else lambda *_: branch

    return {"adprotocol.cond": lambda pred, t, f, *operands: real(pred, as_function(t), as_function(f), *operands)}


@mutant(GROUP, branches)
def swallows_exceptions(pred, t, f, operands):
    """Takes the other branch where one raises."""
    try:
        return choose(pred, t, f, operands)
    except (ValueError, ArithmeticError, LookupError, RuntimeError):
        return choose(pred, f, t, operands)


@mutant(GROUP, branches)
def changes_exceptions(pred, t, f, operands):
    """Raises another error in the place of the one that a branch raises."""
    try:
        return choose(pred, t, f, operands)
    except (ValueError, ArithmeticError, LookupError, RuntimeError) as error:
        msg = "a branch failed"
        raise adprotocol.ADProtocolError(msg) from error


def converted(change):
    """Return a mutant that changes the result of the branch."""
    return branches(lambda pred, t, f, operands: change(choose(pred, t, f, operands)))


@mutant(GROUP, converted)
def converts_tuples(result):
    """Returns lists where the branch returns tuples."""
    if type(result) is dict:
        return {key: converts_tuples(item) for key, item in result.items()}
    return [converts_tuples(item) for item in result] if type(result) in (list, tuple) else result


@mutant(GROUP, converted)
def converts_dicts(result):
    """Returns a tuple of the items where the branch returns a dict."""
    return tuple(result.values()) if isinstance(result, dict) else result


@mutant(GROUP, converted)
def converts_numbers(result):
    """Returns an array where the branch returns a number of Python's."""
    return toyad.array(result) if isinstance(result, (int, float)) else result


@mutant(GROUP, converted)
def converts_none(result):
    """Returns zero where the branch returns None."""
    return 0.0 if result is None else result


@mutant(GROUP, each_later)
def refuses_numbers(fun, *operands):
    """Wants arrays from branches that are chosen later."""
    result = fun(*operands)
    if isinstance(result, (int, float)):
        msg = "a branch returned a number"
        raise TypeError(msg)
    return result


@mutant(GROUP, branches)
def swaps_operands(pred, t, f, operands):
    """Gives the operands to the branch in another order."""
    return choose(pred, t, f, operands[::-1])


@mutant(GROUP, branches)
def takes_operands_apart(pred, t, f, operands):
    """Gives the branches the leaves of its operands, without their containers."""
    return choose(pred, t, f, tuple(extend.tree_leaves(operands)))


@mutant(GROUP, branches)
def arrays_for_operands(pred, t, f, operands):
    """Gives the branches arrays where the operands are numbers, and refuses what is neither."""
    return choose(pred, t, f, tuple(extend.tree_map(toyad.lift, operand) for operand in operands))


@mutant(GROUP, branches)
def mismatch_takes_the_first(pred, t, f, operands):
    """Takes the first branch where the two return different things, instead of refusing them."""
    try:
        return choose(pred, t, f, operands)
    except adprotocol.errors.BranchMismatchError:
        return t(*operands)


@mutant(GROUP, branches)
def lengths_are_not_compared(pred, t, f, operands):
    """Takes the first branch where the results differ in the lengths of their axes alone."""
    try:
        return choose(pred, t, f, operands)
    except adprotocol.errors.BranchMismatchError:
        results = [t(*operands), f(*operands)]
        leaves = [[leaf for leaf in extend.tree_leaves(result) if hasattr(leaf, "shape")] for result in results]
        kinds = [[(leaf.dtype, len(leaf.shape)) for leaf in found] for found in leaves]
        if kinds[0] != kinds[1] or [leaf.shape for leaf in leaves[0]] == [leaf.shape for leaf in leaves[1]]:
            raise
        return results[0]


@mutant(GROUP, branches)
def mismatch_of_its_own(pred, t, f, operands):
    """Raises the framework's own error where the branches return different things."""
    try:
        return choose(pred, t, f, operands)
    except adprotocol.errors.BranchMismatchError as error:
        raise error.__cause__ from None


@mutant(GROUP)
def does_not_nest():
    """Takes, in a branch that is chosen later, the first branch of any other choice."""
    inside = []

    def outermost(fun, *operands):
        with noted(inside):
            return fun(*operands)

    plain = each_later(outermost)["cond"]
    return later(lambda pred, t, f, operands: t(*operands) if inside else plain(pred, t, f, operands))


@mutant(GROUP, branches)
def wants_a_known_predicate(pred, t, f, operands):
    """Asks for the truth of a predicate that is not known yet."""
    return t(*operands) if pred else f(*operands)


@mutant(GROUP, branches)
def reads_the_predicate(pred, t, f, operands):
    """Follows the predicate below the level that batches it."""
    known = innermost(pred) if isinstance(pred, toyad.Value) else pred
    if isinstance(known, toyad.Array) and known.shape:
        known = bool(known.value.any())
    return choose(known, t, f, operands)


@mutant(GROUP, branches)
def mismatch_without_words(pred, t, f, operands):
    """Refuses branches that return different things, and does not say which."""
    try:
        return choose(pred, t, f, operands)
    except adprotocol.errors.BranchMismatchError:
        raise adprotocol.errors.BranchMismatchError("the branches differ") from None


@mutant(GROUP, later)
def only_its_own_containers(pred, t, f, operands):
    """Takes results apart as far as the framework does, which leaves dataclasses whole."""
    return toyad.cond(pred, t, f, *operands)


@mutant(GROUP, later)
def labels_are_lost(pred, t, f, operands):
    """Returns the values of labels where branches that are chosen later return labels."""
    return extend.tree_map(extend.unlabelled, choose(pred, t, f, operands))


@mutant(GROUP, later)
def dataclasses_become_dicts(pred, t, f, operands):
    """Returns the fields of a dataclass where branches that are chosen later return it."""
    result = choose(pred, t, f, operands)
    if not dataclasses.is_dataclass(result):
        return result
    return {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}


@mutant(GROUP, later)
def other_constants_pass(pred, t, f, operands):
    """Takes what is no array from the first branch, whatever the other returns there."""
    both = extend.Branches(toyad.Value, t, f, operands)
    arrays = choose(pred, both.run_true, both.run_false, ())
    both.of_false = both.of_true
    return both.result(arrays)
