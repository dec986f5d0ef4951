"""`cond` on PyTensor: Python's branch for a constant predicate, else the lazy `ifelse`.

A branch runs once, while the graph is built. What it uses from outside is guarded, so
that nothing comes back from it in a gradient where it is not taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import walk
from pytensor.tensor.type import TensorType

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import (
    common_outline,
    describe,
    predicate_error,
    predicate_shape_error,
    put_together,
    same_constant,
    take_apart,
)
from adprotocol_pytensor.ops import branch, guard, is_continuous
from adprotocol_pytensor.resolution import substitute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NUMBERS = (bool, int, float, complex)


def choose(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the result of the chosen branch."""
    if not isinstance(pred, bool):
        if not isinstance(pred.type, TensorType):
            raise predicate_error(pred)
        if pred.type.dtype != "bool":
            raise predicate_error(pred, pred.type.dtype)
        if pred.type.ndim:
            raise predicate_shape_error(pred, pred.type.shape)
        if not isinstance(pred, Constant):
            return _stage(pred, true_fun, false_fun, operands)
        pred = bool(pred.data)
    return true_fun(*operands) if pred else false_fun(*operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    start = _now()
    if_true, of_true = take_apart(true_fun(*operands))
    middle = _now()
    if_false, of_false = take_apart(false_fun(*operands))
    outline = common_outline(of_true, of_false)
    pairs = None if outline is None else list(map(_matched, if_true, if_false))
    if outline is None or pairs is None or None in pairs:
        shown = (
            describe(found, list(map(_shown, leaves))) for found, leaves in ((of_true, if_true), (of_false, if_false))
        )
        msg = (
            "the branches of a staged cond must return equal structures, shapes and dtypes: true_fun returned {}, "
            "false_fun {}. Make them equal (broadcast, cast, or return zeros of the same shape)"
        )
        raise BranchMismatchError(msg.format(*shown))
    arrays = [place for place, pair in enumerate(pairs) if isinstance(pair[0], Variable)]  # type: ignore[index]
    chosen = _guarded([pairs[place][0] for place in arrays], pred, start)  # type: ignore[index]
    others = _guarded([pairs[place][1] for place in arrays], ~pred, middle)  # type: ignore[index]
    leaves = [pair[0] for pair in pairs]  # type: ignore[index]
    for place, one, other in zip(arrays, chosen, others, strict=True):
        leaves[place] = branch(pred, one, other)
    return put_together(outline, leaves)


def _now() -> int:
    """Return a number between those of the variables made before this call and after it."""
    return _number(pt.dscalar())


def _number(variable: Variable) -> int:
    return int(variable.auto_name.removeprefix("auto_"))


def _guarded(results: Sequence[Variable], mask: Any, start: int) -> list[Variable]:
    """Return the results of a branch with what was made before it, at `start`, guarded."""

    def inside(variable: Variable) -> Any:
        return variable.owner.inputs if variable.owner is not None and _number(variable) >= start else None

    guards = {
        variable: guard(variable, mask)
        for variable in walk(list(results), inside)
        if _number(variable) < start and not isinstance(variable, Constant) and is_continuous(variable)
    }
    return substitute(results, guards)


def _matched(one: Any, other: Any) -> tuple[Any, Any] | None:
    """Return two leaves as variables of one type, or as they are if they are equal; None if they do not match."""
    if not (_is_array(one) and _is_array(other)):
        return (one, one) if same_constant(one, other) else None
    if type(one) in NUMBERS and type(one) is type(other) and same_constant(one, other):
        return one, one
    if isinstance(one, NUMBERS) and isinstance(other, NUMBERS):
        dtype = np.result_type(one, other).name
        return pt.constant(one, dtype=dtype), pt.constant(other, dtype=dtype)
    pair = _array(one, other), _array(other, one)
    types = [value.type for value in pair]
    if not all(isinstance(kind, TensorType) for kind in types):
        return pair if types[0] == types[1] else None
    if types[0].dtype != types[1].dtype or types[0].ndim != types[1].ndim:
        return None
    sizes = zip(types[0].shape, types[1].shape, strict=True)
    return pair if all(a == b or a is None or b is None for a, b in sizes) else None


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, (Variable, np.ndarray, np.generic, *NUMBERS))


def _array(leaf: Any, like: Any) -> Any:
    if isinstance(leaf, Variable):
        return leaf
    if isinstance(leaf, NUMBERS):
        dtype = getattr(like, "dtype", None)
        follows = dtype is not None and np.result_type(np.dtype(dtype), leaf) == np.dtype(dtype)
        return pt.constant(leaf, dtype=str(dtype) if follows else np.asarray(leaf).dtype.name)
    return pt.constant(leaf)


def _shown(leaf: Any) -> str:
    return str(leaf.type) if isinstance(leaf, Variable) else repr(leaf)
