"""Host functions with JAX: called at once where values are concrete, by ``jax.pure_callback`` where they are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from adprotocol.errors import RuleError
from adprotocol_jax import internals, primitives

if TYPE_CHECKING:
    from collections.abc import Callable


def call(
    fun: Callable[[list[Any]], list[Any]], arrays: list[Any], like: list[Any] | None, *, batched: bool, message: str
) -> list[Any]:
    """Return the results of a function of NumPy arrays, as JAX's."""
    arrays = [primitives.prevented(array, message) for array in arrays]
    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        device = next((array.device for array in arrays if len(array.devices()) == 1), None)
        results = fun([np.asarray(array) for array in arrays])
        return [jnp.asarray(_as_dtype(one, internals.type_like(one).dtype), device=device) for one in results]
    if like is None:
        msg = (
            "a host function was called with a value that JAX traces, in jit or vmap, and does not tell the shapes of "
            "its results; declare them by host_function(like=...)"
        )
        raise RuleError(msg)
    types = [internals.type_like(kind) for kind in like]

    def callback(*values: Any) -> list[Any]:
        results = fun([np.asarray(value) for value in values])
        return [_as_dtype(result, kind.dtype) for result, kind in zip(results, types, strict=True)]

    method = "broadcast_all" if batched else "sequential"
    results = jax.pure_callback(callback, types, *arrays, vmap_method=method)
    # JAX assumes that the results of a callback are equal on all devices of a mesh.
    axes = frozenset().union(*map(internals.varying_axes, arrays))
    return [internals.as_varying(result, axes) for result in results]


def _as_dtype(result: Any, dtype: Any) -> Any:
    """Return a result in a dtype of JAX, 32 bits wide without ``jax_enable_x64``; refuse integers that overflow."""
    cast = np.asarray(result, dtype)
    if cast is not result and cast.dtype.kind in "iu" and (cast != result).any():
        msg = (
            f"a host function returned integers of dtype {result.dtype} that {dtype} cannot hold; enable 64 bits, "
            'jax.config.update("jax_enable_x64", True)'
        )
        raise RuleError(msg)
    return cast
