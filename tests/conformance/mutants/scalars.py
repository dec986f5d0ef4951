"""Python's own values in staged branches, turned into something else."""

import toyad
import toyad_adprotocol as right

from adprotocol import extend
from mutants.branches import branches, is_known
from mutants.mutant import mutant

choose = right.cond


def changed_operands(change):
    """Return a mutant that changes the leaves among the operands where a cond is staged or batched."""

    def changed(pred, t, f, operands):
        if not is_known(pred):
            operands = tuple(extend.tree_map(change, operand) for operand in operands)
        return choose(pred, t, f, operands)

    return branches(changed)


@mutant("cond", changed_operands)
def integers_become_arrays(leaf):
    """Gives staged branches arrays in the place of integers."""
    return toyad.array(leaf) if type(leaf) is int else leaf


@mutant("cond")
def numbers_become_floats():
    """Makes floats of the integers that both staged branches return."""

    def floats(fun):
        def run(*operands):
            result = fun(*operands)
            return float(result) if type(result) is int else result

        return run

    def converted(pred, t, f, operands):
        if is_known(pred):
            return choose(pred, t, f, operands)
        return choose(pred, floats(t), floats(f), operands)

    return branches(converted)
