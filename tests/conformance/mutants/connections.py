"""How `cond` connects its operands, and the dtypes that come out: gone wrong."""

import toyad

from adprotocol import extend
from mutants.branches import branches, choose, constant, is_known, later
from mutants.mutant import innermost, mutant, tracers

GROUP = "cond"


def floats(tree):
    """Return the arrays of floats in a tree."""
    found = extend.tree_leaves((tree,))
    return [leaf for leaf in found if isinstance(leaf, toyad.Value) and toyad.is_inexact(leaf)]


def each_float(change, tree):
    """Return a tree with other arrays in the place of those of floats."""
    is_float = lambda leaf: isinstance(leaf, toyad.Value) and toyad.is_inexact(leaf)
    return extend.tree_map(lambda leaf: change(leaf) if is_float(leaf) else leaf, tree)


def total(operands):
    """Return the sum of all elements of the operands that are floats."""
    return sum((toyad.cast(toyad.sum(leaf), float) for leaf in floats(operands)), toyad.array(0.0))


def connected(connect, way=branches):
    """Return a mutant that connects each result: ``connect(result, operands)``."""

    def cond(pred, t, f, operands):
        result = choose(pred, t, f, operands)
        return each_float(lambda leaf: toyad.cast(connect(leaf, operands), leaf.dtype), result)

    return way(cond)


@mutant(GROUP, connected)
def connects_by_products_with_zero(leaf, operands):
    """Adds zero times the operands to the result, which is NaN for NaN and infinity, and has no sign."""
    return leaf + 0.0 * total(operands)


@mutant(GROUP, lambda connect: connected(connect, later))
def connects_staged_results_by_products(leaf, operands):
    """Adds zero times the operands to a result where the predicate is staged or batched."""
    return leaf + 0.0 * total(operands)


@mutant(GROUP, connected)
def connects_by_adding_zero(leaf, operands):
    """Adds a zero to the result, which takes the sign of -0.0."""
    return leaf + toyad.where(False, total(operands), 0.0)


@mutant(GROUP, branches)
def connects_constants(pred, t, f, operands):
    """Makes a constant that a branch returns a variable with a derivative of zero."""
    result = choose(pred, t, f, operands)
    if not is_known(pred):
        return result

    def variable(leaf):
        return toyad.where(True, leaf, toyad.broadcast(total(operands), leaf.shape))

    return each_float(variable, result)


@mutant(GROUP, branches)
def connects_numbers(pred, t, f, operands):
    """Makes a Python number that a branch returns a variable with a derivative of zero."""
    result = choose(pred, t, f, operands)
    if not is_known(pred) or not isinstance(result, float) or not floats(operands):
        return result
    return toyad.where(True, result, total(operands))


def is_followed(tree):
    """Tell whether a level follows one of the operands."""
    return any(isinstance(t, (toyad.Recorded, toyad.Dual)) for leaf in floats(tree) for t in tracers(leaf))


@mutant(GROUP, branches)
def plain_operands_lose_closures(pred, t, f, operands):
    """Returns a constant where all operands are constants, whatever the branch closes over."""
    result = choose(pred, t, f, operands)
    return result if not operands or is_followed(operands) else constant(result)


@mutant(GROUP, later)
def plain_operands_lose_staged_closures(pred, t, f, operands):
    """Makes what staged or batched branches close over a constant, where all operands are constants."""
    result = choose(pred, t, f, operands)
    return result if not operands or is_followed(operands) else constant(result)


@mutant(GROUP, branches)
def two_operands_only(pred, t, f, operands):
    """Differentiates with respect to the first two operands only."""
    return choose(pred, t, f, (*operands[:2], *constant(tuple(operands[2:]))))


@mutant(GROUP, branches)
def last_operand_only(pred, t, f, operands):
    """Differentiates with respect to the last operand only."""
    return choose(pred, t, f, (*constant(tuple(operands[:-1])), *operands[-1:]))


def widest(tree):
    """Return the widest dtype of the floats in a tree."""
    return max((leaf.dtype for leaf in floats(tree)), key=lambda dtype: dtype.itemsize, default=None)


@mutant(GROUP, branches)
def upcasts(pred, t, f, operands):
    """Returns floats in the widest dtype of the operands."""
    result = choose(pred, t, f, operands)
    return each_float(lambda leaf: toyad.cast(leaf, widest(operands) or leaf.dtype), result)


@mutant(GROUP, later)
def upcasts_staged_results(pred, t, f, operands):
    """Returns floats of 64 bits where the predicate is staged or batched."""
    return each_float(lambda leaf: toyad.cast(leaf, float), choose(pred, t, f, operands))


@mutant(GROUP, branches)
def promotes_integers(pred, t, f, operands):
    """Returns floats for integers."""
    result = choose(pred, t, f, operands)
    whole = isinstance(result, toyad.Value) and innermost(result).dtype.kind == "i"
    return result * 1.0 if whole else result


@mutant(GROUP, branches)
def downcasts_gradients(pred, t, f, operands):
    """Takes the operands in the narrowest of their dtypes."""
    narrow = min((leaf.dtype for leaf in floats(operands)), key=lambda dtype: dtype.itemsize, default=None)
    result = choose(pred, t, f, operands)
    return each_float(lambda leaf: toyad.cast(toyad.cast(leaf, narrow or leaf.dtype), leaf.dtype), result)
