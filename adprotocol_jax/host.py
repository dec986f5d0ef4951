"""Host functions with JAX: called at once where values are concrete, by ``jax.pure_callback`` where they are not.

A primitive stands for the call. Eager vmap comes down to concrete values too, so it compiles no callback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir
from jax.sharding import NamedSharding, PartitionSpec

from adprotocol.errors import RuleError
from adprotocol.extend import search
from adprotocol.hookspecs import hookimpl
from adprotocol_jax import internals, primitives

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_CLOSED_OVER = (
    "a host function uses a value that JAX traces and that is no argument of it, so that it has no number when it "
    "runs; pass the value as an argument, or close over its shape if that is all it uses"
)


@hookimpl
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: list[Any],
    like: list[Any] | None,
    batched: bool,  # noqa: FBT001  (the signature of the hook)
    message: str,
) -> list[Any]:
    """Call the function if the arrays are concrete, else stage ``jax.pure_callback``."""
    arrays = [primitives.prevent_gradient(array, message) for array in arrays]
    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return _run(*arrays, fun=fun)
    if like is None:
        raise RuleError(
            "a host function was called with a value that JAX traces, in jit or vmap, and does not tell the shapes of "
            "its results; declare them by host_function(like=...)"
        )
    if any(isinstance(value, jax.core.Tracer) for value in search(getattr(fun, "__wrapped__"))):  # noqa: B009
        raise RuleError(_CLOSED_OVER)
    results = _host_p.bind(*arrays, fun=fun, types=tuple(map(internals.type_like, like)), batched=batched)
    # JAX assumes that the results of a callback are equal on all devices of a mesh.
    axes = frozenset().union(*map(internals.varying_axes, arrays))
    return [internals.as_varying(result, axes) for result in results]


_host_p: Any = Primitive("adprotocol_host_function")
_host_p.multiple_results = True


def _run(*arrays: Any, fun: Any, types: Any = None, batched: bool = False) -> list[Any]:  # noqa: ARG001
    """Call the function on concrete arrays; its results are committed to devices if an argument is."""
    sharding = next((array.sharding for array in arrays if getattr(array, "committed", False)), None)
    if isinstance(sharding, NamedSharding):
        sharding = NamedSharding(sharding.mesh, PartitionSpec())  # type: ignore[no-untyped-call]
    return [jnp.array(result, device=sharding) for result in _results(fun, arrays, types)]


def _stage(*arrays: Any, fun: Any, types: Any, batched: bool) -> Any:  # noqa: ARG001
    return jax.pure_callback(lambda *values: _results(fun, values, types), types, *arrays)


def _results(fun: Any, arrays: Sequence[Any], types: Any) -> list[Any]:
    try:
        results = fun([np.asarray(array) for array in arrays])
    except jax.errors.JAXTypeError as error:  # of an object that it uses
        raise RuleError(_CLOSED_OVER) from error
    return list(map(_as_type, results, types or map(internals.type_like, results)))


def _batch(values: Sequence[Any], dims: Sequence[int | None], *, fun: Any, types: Any, batched: bool) -> Any:
    """Call the function once if it takes leading axes, and else for each row."""
    size = next(value.shape[dim] for value, dim in zip(values, dims, strict=True) if dim is not None)
    types = tuple(kind.update(shape=(size, *kind.shape)) for kind in types)

    def rowwise(arrays: list[Any]) -> list[Any]:
        rows = [fun([a if dim is None else a[row] for a, dim in zip(arrays, dims, strict=True)]) for row in range(size)]
        return [np.array([row[place] for row in rows]).reshape(kind.shape) for place, kind in enumerate(types)]

    moved = [
        value if dim is None and not batched else internals.at_front(value, dim, size)
        for value, dim in zip(values, dims, strict=True)
    ]
    results = _host_p.bind(*moved, fun=fun if batched else rowwise, types=types, batched=batched)
    return results, [0] * len(types)


_host_p.def_impl(_run)
_host_p.def_abstract_eval(lambda *_, types, **_params: [jax.core.ShapedArray(kind.shape, kind.dtype) for kind in types])
batching.primitive_batchers[_host_p] = _batch
mlir.register_lowering(_host_p, mlir.lower_fun(_stage, multiple_results=True))


def _as_type(result: Any, kind: Any) -> Any:
    """Return a result in a dtype of JAX, 32 bits wide without ``jax_enable_x64``; refuse integers that overflow."""
    cast = np.asarray(result, kind.dtype)
    if cast.shape != kind.shape:
        raise RuleError(
            f"a host function with batched=True returned an array of shape {cast.shape}, not {kind.shape}, under "
            "jax.vmap; keep the leading axes, or leave batched=True out"
        )
    if cast is not result and cast.dtype.kind in "iu" and (cast != result).any():
        raise RuleError(
            f"a host function returned integers of dtype {result.dtype} that {kind.dtype} cannot hold; enable 64 bits, "
            'jax.config.update("jax_enable_x64", True)'
        )
    return cast
