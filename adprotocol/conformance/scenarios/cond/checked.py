"""A concrete `cond` as ADPROTOCOL_CHECK_BRANCHES=1 makes it: it runs the other branch too, and compares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol._hooks import branch_check
from adprotocol.conformance.scenario import defaults
from adprotocol.errors import BranchError, BranchMismatchError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "cond",
    rule="C9",
    source="JAX: cond, branches that differ are found where it is traced: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html",
    transform="grad",
)


@scenario(transform="")
def checked_mismatch(h: Checked) -> None:
    """The check finds that branches differ, whichever is taken.

    Expect for either predicate, in either place, an error that names both branches where one returns 2 x and the other
    a part of it, a tuple, a dict, a bool or None, or is no function.
    """
    cond, x = branch_check.checking(adprotocol.cond), h.array([1.0, 2.0])
    for other in (lambda x: x[0], lambda x: (x, x), lambda x: {"y": x}, lambda x: x > 0.0, lambda _: None):
        for branches in ((lambda x: 2.0 * x, other), (other, lambda x: 2.0 * x)):
            for pred in (True, False, h.array(0.0) < 1.0):
                with h.raises(BranchMismatchError, words=["true_fun", "false_fun"]):
                    cond(pred, *branches, x)
    with h.raises(ZeroDivisionError):
        cond(x[0] > 0.0, lambda x: 2.0 * x, h.fail, x)
    with h.raises(BranchError, words=["false_fun"]):
        cond(x[0] > 0.0, lambda x: 2.0 * x, x, x)


@scenario()
def checked_derivatives(h: Checked) -> None:
    """Value and gradient are those of the branch taken, and nothing of the other's, which asks and is a constant.

    Expect x ** 2 at 3 with its gradient 6, taken or not beside 5 x + c, whose dict has the same keys; a run of both.
    """
    runs: list[str] = []

    def square(x: Any) -> Any:
        runs.append("square")
        return {"y": x * x, "name": "text"}

    def line(x: Any) -> Any:
        runs.append("line")
        return {"y": h.probe(x) + h.array(1.0), "name": "text"}

    cond = branch_check.checking(adprotocol.cond)
    for pred, value, slope in ((True, 9.0, 6.0), (h.array(0.0) > 1.0, 10.0, 3.0)):
        runs.clear()
        h.assert_value_and_grad(lambda x: cond(pred, square, line, x)["y"], [h.array(3.0)], value, slope, f"{pred}")  # noqa: B023
        h.check(sorted(set(runs)) == ["line", "square"], f"these branches ran: {runs}")


@scenario()
def checked_exception(h: Checked) -> None:
    """An exception of the branch not taken comes out, and leaves nothing behind.

    Expect the ZeroDivisionError of the branch not taken, an error for its tuple, and the gradient 6 of x ** 2 behind.
    """
    cond, x, c = branch_check.checking(adprotocol.cond), h.array(3.0), 4.0
    with h.raises(ZeroDivisionError):
        h.grad(lambda x: cond(c > 0.0, lambda x: x * x, h.fail, x))(x)
    with h.raises(BranchMismatchError):
        h.grad(lambda x: cond(c > 0.0, lambda x: x * x, lambda x: (x, x), x))(x)
    h.assert_untracked(adprotocol.within_gradient(x), "an array behind the exception")
    h.assert_equal(h.grad(lambda x: cond(c < 0.0, lambda x: 5.0 * x, lambda x: x * x, x))(x), 6.0, "the gradient")
