"""`ADPROTOCOL_CHECK_BRANCHES=1`: a concrete `cond` also runs the branch not taken, and compares the two.

Eager code runs one branch, so a mismatch that a compiler refuses would pass every eager test.
"""

from __future__ import annotations

import functools
import os

from adprotocol._dispatch.dtype import sizes
from adprotocol._hooks.branches import ArrayType, Branches
from adprotocol._hooks.non_differentiable import constant_tree
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "ADPROTOCOL_CHECK_BRANCHES"


def is_on() -> bool:
    """Return whether the environment asks for the check."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def checking(cond: Callable[..., Any]) -> Callable[..., Any]:
    """Return `cond` with the check."""

    @functools.wraps(cond)
    def checked(pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
        if not (callable(true_fun) and callable(false_fun)):
            return cond(pred, true_fun, false_fun, *operands)
        ran: dict[bool, Any] = {}

        def recorded(fun: Callable[..., Any], *, taken: bool) -> Callable[..., Any]:
            def branch(*args: Any) -> Any:
                ran[taken] = result = fun(*args)
                return result

            return branch

        result = cond(pred, recorded(true_fun, taken=True), recorded(false_fun, taken=False), *operands)
        # Where both ran, the framework has compared them.
        if len(ran) == 1:
            _compare(true_fun, false_fun, operands, ran)
        return result

    return checked


def _compare(true_fun: Any, false_fun: Any, operands: tuple[Any, ...], ran: dict[bool, Any]) -> None:
    (taken,) = ran
    other, name = (false_fun, "false_fun") if taken else (true_fun, "true_fun")
    try:
        # On constants: the branch for inference may have no derivative.
        ran[not taken] = other(*constant_tree(operands))
        branches = _Results(object, lambda: ran[True], lambda: ran[False])
        branches.run_true()
        branches.run_false()
        branches.compare()
    except Exception as error:
        error.add_note(
            f"raised because {VARIABLE} is set: a compiler traces both branches, so {name} of adprotocol.cond, which "
            "was not chosen, ran too",
        )
        raise


class _Results(Branches):
    """The results of two branches, of arrays of any framework."""

    def type_of(self, leaf: Any) -> Any:
        """Return the type of what has a dtype and a shape."""
        dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
        return None if dtype is None or shape is None else ArrayType(dtype, sizes(shape))
