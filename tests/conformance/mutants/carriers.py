"""Branches that are guarded where a plugin looks, in operands and closures, and nowhere else."""

import types

import toyad
import toyad_adprotocol as right

from adprotocol import extend
from mutants.branches import branches, is_batched, is_known
from mutants.mutant import mutant

choose = right.cond


def guarded(pred, tree, *, taken, each=extend.tree_map):
    """Return a tree with its arrays as constants where a branch is not taken; `each` finds them."""

    def one(leaf):
        if not isinstance(leaf, toyad.Value) or not toyad.is_inexact(leaf):
            return leaf
        stopped = toyad.stop_gradient(leaf)
        return toyad.where(pred, leaf, stopped) if taken else toyad.where(pred, stopped, leaf)

    return each(one, tree)


def selecting(look, each=extend.tree_map):
    """Return a mutant that selects where examples choose; `look` gives a branch what comes in guarded."""

    def select(pred, t, f, operands):
        if is_known(pred) or not is_batched(pred):
            return choose(pred, t, f, operands)
        results = []
        for fun, taken in ((t, True), (f, False)):

            def guard(tree, taken=taken):
                return guarded(pred, tree, taken=taken, each=each)

            results.append(look(fun, guard)(*map(guard, operands)))
        if not all(isinstance(result, toyad.Value) for result in results):
            return choose(pred, t, f, operands)
        return toyad.where(pred, *results)

    return branches(select)


def closed_over(fun, guard):
    """Return a function whose closure is guarded."""
    if not isinstance(fun, types.FunctionType) or not fun.__closure__:
        return fun
    cells = []
    for cell in fun.__closure__:
        held = cell.cell_contents
        cells.append(types.CellType(closed_over(held, guard) if callable(held) else guard(held)))
    new = types.FunctionType(fun.__code__, fun.__globals__, fun.__name__, fun.__defaults__, tuple(cells))
    new.__kwdefaults__ = fun.__kwdefaults__
    return new


@mutant("cond")
def guards_closures_alone():
    """Guards what a batched branch closes over, and no defaults, methods and partial functions."""
    return selecting(closed_over)


@mutant("cond")
def guards_no_structures():
    """Guards the arrays that come into a batched branch, and not those in structures."""
    return selecting(closed_over, lambda one, value: one(value))


@mutant("cond", selecting, remembers=True)
def guarded_after_an_error(fun, guard):
    """Leaves what a batched branch closes over guarded after an exception in it."""
    cells = getattr(fun, "__closure__", None) or ()
    kept = [(cell, cell.cell_contents) for cell in cells if isinstance(cell.cell_contents, toyad.Value)]

    def run(*operands):
        for cell, held in kept:
            cell.cell_contents = guard(held)
        result = fun(*operands)
        for cell, held in kept:
            cell.cell_contents = held
        return result

    return run
