"""`cond` on JAX: Python's branch for a concrete predicate, ``jax.lax.cond`` for a tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import predicate_error, predicate_shape_error, tree_leaves, tree_map
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
    seen: list[Any] = []

    # Operands are closed over, so that they may be anything, including strings and
    # modules; JAX itself turns the traced ones into operands.
    def recorded(fun: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            result = fun(*operands)
            # Types in place of tracers, which must not outlive the trace (jax.checking_leaks).
            seen.append(jax.tree.map(_without_tracer, result))
            return result

        return run

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
    try:
        return jax.lax.cond(
            pred,
            with_constants(recorded(true_fun), known_true, axes),
            with_constants(recorded(false_fun), known_false, axes),
        )
    except TypeError as error:
        if len(seen) != len((true_fun, false_fun)):
            raise  # a branch raised it itself
        chosen, other = seen
        if _describe(chosen) == _describe(other):
            raise
        like_chosen, like_other = _numbers_like(chosen, other), _numbers_like(other, chosen)
        if _describe(like_chosen) != _describe(like_other):
            msg = (
                "the branches of a staged cond must return equal structures, shapes and dtypes: true_fun returned "
                f"{_describe(chosen)}, false_fun {_describe(other)}. Make them equal (broadcast, cast, or return "
                "zeros of the same shape)"
            )
            raise BranchMismatchError(msg) from error
    # The branches differ only in the kind of a Python number, an int against a float,
    # which arithmetic would promote. Trace again with the numbers cast.
    return jax.lax.cond(
        pred,
        with_constants(lambda: _numbers_like(true_fun(*operands), like_other), known_true, axes),
        with_constants(lambda: _numbers_like(false_fun(*operands), like_chosen), known_false, axes),
    )


def _without_tracer(leaf: Any) -> Any:
    return jax.typeof(leaf) if isinstance(leaf, jax.core.Tracer) else leaf


def _numbers_like(result: Any, model: Any) -> Any:
    """Return `result` with its Python numbers cast to the dtypes of `model`, where the dtype can hold the number."""
    if str(jax.tree.structure(result)) != str(jax.tree.structure(model)):
        return result

    def cast(leaf: Any, like: Any) -> Any:
        dtype = _type(like).dtype
        if isinstance(leaf, (bool, int, float, complex)) and jnp.result_type(dtype, leaf) == dtype:
            return jnp.asarray(leaf, dtype)
        return leaf

    return jax.tree.map(cast, result, model)


def _type(leaf: Any) -> Any:
    return leaf if isinstance(leaf, jax.core.AbstractValue) else jax.typeof(leaf)


def _describe(result: Any) -> str:
    return str(jax.tree.map(lambda leaf: _type(leaf).str_short(), result))
