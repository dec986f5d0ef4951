"""`ADPROTOCOL_CHECK_BRANCHES=1`: a concrete `cond` also runs the branch not taken, and compares the two.

Eager code runs one branch, so a mismatch that a compiler refuses would pass every eager test. `where` also runs its
functions on the operands as they are: a function that mixes elements would have another value there, unnoticed.
"""

from __future__ import annotations

import functools
import os

from adprotocol._dispatch.binding import ARRAY
from adprotocol._dispatch.shape import sizes
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.branches import ArrayType, Branches
from adprotocol._hooks.non_differentiable import constant_tree
from adprotocol._trees.traversal import tree_flatten
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import BranchMismatchError
from adprotocol.messages import add_note, shown

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

        def recorded(fun: Callable[..., Any], *args: Any, taken: bool) -> Any:
            ran[taken] = result = fun(*args)
            return result

        pair = [functools.partial(recorded, fun, taken=taken) for fun, taken in ((true_fun, True), (false_fun, False))]
        result = cond(pred, *pair, *operands)
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
        branches = _Results(object, true_fun, false_fun)
        branches.flattened(ran[True], ran[False])
        branches.compare()
    except Exception as error:
        add_note(
            error, f"raised because {VARIABLE} is set: a compiler traces both branches, so {name}, not chosen, ran too"
        )
        raise


class _Results(Branches):
    """The results of two branches, of arrays of any framework."""

    def type_of(self, leaf: Any) -> Any:
        """Return the type of what has a shape, and a dtype or a plugin."""
        dtype = getattr(leaf, "dtype", None)
        is_array = hasattr(leaf, "shape") and (dtype is not None or lookup(type(leaf)).kind is ARRAY)
        return ArrayType(dtype, sizes(leaf)) if is_array else None


def checking_where(where: Callable[..., Any], choose: Callable[..., Any]) -> Callable[..., Any]:
    """Return `where` with the check that its functions are elementwise; `choose` replaces what is not chosen."""

    @functools.wraps(where)
    def checked(mask: Any, *functions: Any) -> Any:
        functions, operands = functions[:2], functions[2:]
        if isinstance(mask, bool) or not all(map(callable, functions)):
            return where(mask, *functions, *operands)
        returned: list[Any] = []

        def recorded(fun: Any, *args: Any) -> Any:
            returned.append(fun(*args))
            return returned[-1]

        result = choose(mask, *[functools.partial(recorded, fun) for fun in functions], operands, ())
        for fun, name, got in zip(functions, ("true_fun", "false_fun"), returned, strict=False):
            try:
                plain = fun(*constant_tree(operands))
            except Exception:  # noqa: BLE001, S112  (of an element that is not chosen, for which the function may fail)
                continue
            pairs = zip(tree_flatten(plain, labels=True)[0], tree_flatten(got, labels=True)[0], strict=True)
            for one, other in pairs:
                _check_elementwise(name, constant_tree(mask), one, other)
        return result

    return checked


def _check_elementwise(name: str, mask: Any, one: Any, other: Any) -> None:
    import numpy as np  # noqa: PLC0415

    try:
        chosen, plain, guarded = (np.asarray(constant_tree(value)) for value in (mask, one, other))
        differs = ~np.isclose(plain, guarded, rtol=1e-4, atol=0.0, equal_nan=True)
    except Exception:  # noqa: BLE001  (staged, batched, on another device, or no array)
        return
    if (differs & (chosen == (name == "true_fun"))).any():
        raise BranchMismatchError(
            f"{name} of adprotocol.where returned {shown(plain, 200)} for the operands as they are, and "
            f"{shown(guarded, 200)} with others where it is not chosen, and these differ where it is: the result at an "
            "element must depend only on the operands at this element. Compute what mixes elements, such as a mean, "
            f"before the call (found because {VARIABLE} is set)"
        )
