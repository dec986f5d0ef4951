"""`cond` on JAX: Python's branch for a concrete predicate, ``jax.lax.cond`` for a tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import (
    common_outline,
    describe,
    predicate_error,
    predicate_shape_error,
    put_together,
    same_constant,
    take_apart,
    tree_leaves,
    tree_map,
)
from adprotocol_jax import internals, varying
from adprotocol_jax.answer import untracked, with_constants

if TYPE_CHECKING:
    from collections.abc import Callable


def branch(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the result of the chosen branch."""
    if not isinstance(pred, bool):
        if internals.is_reference(pred):
            raise predicate_error(pred)  # read it: ref[...]
        if pred.dtype != bool:
            raise predicate_error(pred, pred.dtype)
        if pred.shape != ():
            raise predicate_shape_error(pred, pred.shape)
        if isinstance(pred, jax.core.Tracer):
            return _stage(pred, true_fun, false_fun, operands)
    return true_fun(*operands) if pred else false_fun(*operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    seen: list[_Result] = []

    # Operands are closed over, so that they may be anything, including strings and
    # modules; JAX itself turns the traced ones into operands. Results are taken
    # apart, so that they may be anything too; JAX gets the arrays.
    def arrays_of(fun: Callable[..., Any]) -> list[Any]:
        leaves, outline = take_apart(fun(*operands))
        seen.append(_Result(leaves, outline))
        return [leaf for leaf in leaves if _is_array(leaf)]

    known_true, known_false = untracked(pred, True), untracked(pred, False)  # noqa: FBT003  (what pred may be)
    axes = internals.varying_axes(pred)
    if axes:
        given = tree_leaves(operands)
        operands = tree_map(lambda leaf: varying.as_varying(leaf, axes), operands)
        cast = list(zip(given, tree_leaves(operands), strict=True))
        known_true, known_false = (
            None if known is None else [*known, *(new for old, new in cast if any(old is item for item in known))]
            for known in (known_true, known_false)
        )

    def stage(run_true: Callable[[], Any], run_false: Callable[[], Any]) -> list[Any]:
        arrays: list[Any] = jax.lax.cond(
            pred, with_constants(run_true, known_true, axes), with_constants(run_false, known_false, axes)
        )
        return arrays

    try:
        arrays = stage(lambda: arrays_of(true_fun), lambda: arrays_of(false_fun))
    except TypeError as error:
        if len(seen) != len((true_fun, false_fun)):
            raise  # a branch raised it itself
        chosen, other = seen
        if _common(chosen, other) is None:
            raise _mismatch(chosen, other) from error
        if_true, if_false = _types(chosen, other), _types(other, chosen)
        if _short(if_true) != _short(if_false):
            raise _mismatch(chosen, other) from error
        if _short(if_true) == chosen.shown and _short(if_false) == other.shown:
            raise
        # The branches differ only in the kind of a Python number, an int against a float,
        # which arithmetic would promote. Trace again with the numbers cast.
        arrays = stage(lambda: _cast(arrays_of(true_fun), if_true), lambda: _cast(arrays_of(false_fun), if_false))
    chosen, other = seen[-2:]
    outline = _common(chosen, other)
    if outline is None:
        raise _mismatch(chosen, other)
    results = iter(arrays)
    return put_together(outline, [next(results) if leaf is _ARRAY else leaf for leaf in chosen.leaves])


# Stands for an array among the leaves of a result.
_ARRAY = object()


class _Result:
    """What a branch returned, without its tracers, which must not outlive the trace (``jax.checking_leaks``)."""

    def __init__(self, leaves: list[Any], outline: Any) -> None:
        self.outline = outline
        self.leaves = [_ARRAY if _is_array(leaf) else leaf for leaf in leaves]
        # For each array a type, or a Python number, whose type may follow that of the other branch.
        self.arrays = [leaf if _is_number(leaf) else internals.typeof(leaf) for leaf in leaves if _is_array(leaf)]
        self.shown = _short(list(map(_type, self.arrays)))
        self.axes = [internals.varying_axes(leaf) for leaf in leaves if _is_array(leaf)]

    def __str__(self) -> str:
        arrays = iter(self.shown)
        return describe(self.outline, [next(arrays) if leaf is _ARRAY else repr(leaf) for leaf in self.leaves])


def _common(chosen: _Result, other: _Result) -> Any:
    """Return the outline that both have, or None if they differ in it, or in a leaf that is not an array."""
    outline = common_outline(chosen.outline, other.outline)
    if outline is None or not all(map(same_constant, chosen.leaves, other.leaves)):
        return None
    return outline


def _mismatch(chosen: _Result, other: _Result) -> BranchMismatchError:
    remedy = "Make them equal (broadcast, cast, or return zeros of the same shape)"
    if chosen.axes != other.axes:
        # Not cast here: with a result that varies, JAX sums the derivative in what does not over the devices.
        remedy = (
            "Results of jax.shard_map vary along the axes that {V:...} names; let both vary along the same, "
            'with jax.lax.pcast(result, axes, to="varying")'
        )
    return BranchMismatchError(
        f"the branches of a staged cond must return equal structures, shapes and dtypes: true_fun returned {chosen}, "
        f"false_fun {other}. {remedy}"
    )


def _is_array(leaf: Any) -> bool:
    """Tell whether a leaf is a value for JAX, such as an array or a Python number."""
    if isinstance(leaf, (jax.Array, jax.core.Tracer)) or _is_number(leaf):
        return True
    try:
        internals.typeof(leaf)
    except TypeError:
        return False
    return True


def _is_number(leaf: Any) -> bool:
    return isinstance(leaf, (bool, int, float, complex))


def _type(array: Any) -> Any:
    return internals.typeof(array) if _is_number(array) else array


def _types(result: _Result, model: _Result) -> list[Any]:
    """Return the types of the arrays; Python numbers have the dtypes of the model, where these can hold them."""
    return [
        internals.typeof(jnp.asarray(array, _type(like).dtype)) if _follows(array, like) else _type(array)
        for array, like in zip(result.arrays, model.arrays, strict=True)
    ]


def _follows(array: Any, like: Any) -> bool:
    dtype = getattr(_type(like), "dtype", None)
    return _is_number(array) and dtype is not None and bool(jnp.result_type(dtype, array) == dtype)


def _cast(arrays: list[Any], types: list[Any]) -> list[Any]:
    return [
        jnp.asarray(array, kind.dtype) if _is_number(array) else array
        for array, kind in zip(arrays, types, strict=True)
    ]


def _short(types: list[Any]) -> list[str]:
    return [kind.str_short() for kind in types]
