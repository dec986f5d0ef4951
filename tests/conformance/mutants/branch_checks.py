"""The check that runs both branches: gone wrong."""

import contextlib

from adprotocol._hooks import branch_check
from mutants.mutant import at, mutant

GROUP = "cond"
COMPARE = "adprotocol._hooks.branch_check._compare"

compare = branch_check._compare


@mutant(GROUP, at(COMPARE))
def checks_no_branches(*_):
    """Does not run the branch not taken, although it is told to."""


@mutant(GROUP, at(COMPARE))
def checks_by_running(true_fun, false_fun, operands, ran):
    """Runs the branch not taken and compares nothing."""
    (false_fun if True in ran else true_fun)(*operands)


@mutant(GROUP, at(COMPARE))
def checks_the_false_branch(true_fun, false_fun, operands, ran):
    """Compares only if the first branch is taken."""
    if True in ran:
        compare(true_fun, false_fun, operands, ran)


@mutant(GROUP, at(COMPARE))
def checks_without_exceptions(true_fun, false_fun, operands, ran):
    """Swallows the exception of the branch not taken."""
    with contextlib.suppress(ArithmeticError):
        compare(true_fun, false_fun, operands, ran)


@mutant(GROUP, at("adprotocol._hooks.branch_check.checking"))
def checks_return_the_other(cond):
    """Returns what the branch not taken returns."""
    right = CHECKING(cond)

    def checked(pred, true_fun, false_fun, *operands):
        right(pred, true_fun, false_fun, *operands)
        return cond(pred, false_fun, true_fun, *operands)

    return checked


CHECKING = branch_check.checking
