"""`cond` on JAX: Python's branch for a concrete predicate, ``jax.lax.cond`` for a tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

from adprotocol.branching import predicate_error, predicate_shape_error
from adprotocol.errors import BranchMismatchError

if TYPE_CHECKING:
    from collections.abc import Callable


def branch(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return the result of the chosen branch."""
    if not isinstance(pred, bool):
        if pred.dtype != bool:
            raise predicate_error(pred, pred.dtype)
        if pred.shape != ():
            raise predicate_shape_error(pred, pred.shape)
        if isinstance(pred, jax.core.Tracer):
            return _stage(pred, true_fun, false_fun, operands)
    return true_fun(*operands) if pred else false_fun(*operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    seen: dict[str, Any] = {}

    # Operands are closed over, so that they may be anything, strings and
    # modules included; JAX makes the traced ones operands by itself.
    def recorded(name: str, fun: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> Any:
            result = fun(*operands)
            seen[name] = result
            return result

        return run

    try:
        return jax.lax.cond(pred, recorded("true_fun", true_fun), recorded("false_fun", false_fun))
    except TypeError as error:
        if len(seen) == 2 and _describe(seen["true_fun"]) != _describe(seen["false_fun"]):  # noqa: PLR2004
            msg = (
                "the branches of a staged cond must return equal structures, shapes and dtypes: true_fun returned "
                f"{_describe(seen['true_fun'])}, false_fun {_describe(seen['false_fun'])}. Make both alike "
                "(broadcast, cast, or return zeros of the same shape)"
            )
            raise BranchMismatchError(msg) from error
        raise


def _describe(result: Any) -> str:
    return str(jax.tree.map(lambda leaf: jax.typeof(leaf).str_short(), result))
