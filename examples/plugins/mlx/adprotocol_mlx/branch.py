"""`cond`: a Python branch where the predicate can be computed, else both branches and a choice.

MLX has no conditional of its own. A predicate that depends on a placeholder of vmap
or compile cannot be computed while the function is traced. Then both branches run,
and what goes into each is guarded, so that the derivative of the branch that is not
taken ends there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

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
from adprotocol_mlx import trace
from adprotocol_mlx.choice import choose
from adprotocol_mlx.guard import call_guarded

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = (bool, int, float, complex)


def branch(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the chosen branch applied to the operands."""
    if not isinstance(pred, bool):
        if pred.dtype != mx.bool_:
            raise predicate_error(pred, pred.dtype)
        if pred.shape != ():
            raise predicate_shape_error(pred, pred.shape)
        known = _computed(pred)
        if known is None:
            return _both(pred, true_fun, false_fun, operands)
        pred = known
    return true_fun(*operands) if pred else false_fun(*operands)


def _computed(pred: mx.array) -> bool | None:
    """Return the value of a predicate, None if it depends on a placeholder."""

    def evaluated() -> bool:
        mx.eval(pred)
        return bool(pred.item())

    if not trace.is_tracing():
        return evaluated()
    try:
        return trace.keeping_graphs(evaluated)
    except ValueError as error:
        if "[eval]" not in str(error):  # a user's vmap or custom rule does not run here; be sure all the same
            raise
        return None


def _both(pred: mx.array, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: Any) -> Any:
    if_true = take_apart(call_guarded(pred, true_fun, operands))
    if_false = take_apart(call_guarded(mx.logical_not(pred), false_fun, operands))
    outline = common_outline(if_true[1], if_false[1])
    if outline is None:
        raise _mismatch(if_true, if_false)
    pairs = zip(if_true[0], if_false[0], strict=True)
    return put_together(outline, [_chosen(pred, leaf, other, if_true, if_false) for leaf, other in pairs])


def _chosen(pred: mx.array, leaf: Any, other: Any, if_true: Any, if_false: Any) -> Any:
    kinds = [isinstance(item, mx.array) for item in (leaf, other)]
    numbers = [isinstance(item, _NUMBERS) for item in (leaf, other)]
    if not all(array or number for array, number in zip(kinds, numbers, strict=True)):
        if not any(kinds) and same_constant(leaf, other):
            return leaf
        raise _mismatch(if_true, if_false)
    if not any(kinds):
        leaf, other = mx.array(leaf), mx.array(other)
        dtype = mx.result_type(leaf, other)
        leaf, other = leaf.astype(dtype), other.astype(dtype)
    leaf, other = _array_like(leaf, other), _array_like(other, leaf)
    if leaf is None or other is None or leaf.shape != other.shape or leaf.dtype != other.dtype:
        raise _mismatch(if_true, if_false)
    return choose(pred, leaf, other)


def _array_like(leaf: Any, other: Any) -> mx.array | None:
    """Return a number as a scalar of the other branch's dtype, or None if that cannot hold it."""
    if isinstance(leaf, mx.array):
        return leaf
    if (mx.zeros((), other.dtype) + leaf).dtype != other.dtype:
        return None
    return mx.array(leaf, other.dtype)


def _mismatch(if_true: Any, if_false: Any) -> BranchMismatchError:
    of_true, of_false = (describe(outline, list(map(_shown, leaves))) for leaves, outline in (if_true, if_false))
    return BranchMismatchError(
        "mlx: where the predicate is not known yet, the branches of cond must return equal structures, shapes and "
        f"dtypes: true_fun returned {of_true}, false_fun {of_false}. Make them equal (broadcast, cast, or return zeros "
        "of the same shape)"
    )


def _shown(leaf: Any) -> str:
    if isinstance(leaf, mx.array):
        return f"{str(leaf.dtype).removeprefix('mlx.core.')}{list(leaf.shape)}"
    return f"{leaf!r:.60}"
