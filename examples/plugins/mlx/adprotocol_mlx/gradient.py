"""The hooks `vjp`, `jvp` and `vmap` by those of MLX.

``mx.value_and_grad`` would stop the derivatives of auxiliary output, those of an
outer level too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from adprotocol.extend import check_output

if TYPE_CHECKING:
    from collections.abc import Callable


def vjp(
    fun: Callable[[list[Any]], tuple[list[Any], Any]],
    leaves: list[Any],
    once: bool,  # noqa: FBT001
) -> tuple[list[Any], Any, Callable[[list[Any] | None], list[Any]]]:
    """Return outputs, auxiliary output, and what pulls cotangents back: from one run of the function, if pulled once.

    MLX keeps no graph of a derivative after the call, so a pull that comes later runs the function again.
    """
    results: list[tuple[list[Any], Any]] = []

    def run(*tracked: mx.array) -> list[mx.array]:
        outputs, aux = fun(list(tracked))
        if once:
            check_output(outputs[0], outputs[0])
        results.append((outputs, aux))
        # Of an array that is returned twice MLX takes one cotangent.
        return [renamed(_array(y)) for y in outputs]

    def first(*tracked: mx.array) -> mx.array:
        run(*tracked)
        return mx.zeros(())

    # A bare argument of an outer derivative would be replaced by what it is a copy of, and the outer derivative lost,
    # once an inner derivative has closed over it.
    primals = [renamed(_array(leaf)) for leaf in leaves]
    if once:
        values, gradients = mx.vjp(run, primals, [mx.ones(())])
        outputs, aux = results[0]
        return [values[0] if isinstance(outputs[0], mx.array) else outputs[0]], aux, lambda _: gradients
    # Run at a level of its own, where a question is answered as in the derivative.
    mx.vjp(first, primals, [mx.zeros(())])
    outputs, aux = results[0]

    def pull(cotangents: list[Any] | None) -> list[Any]:
        pairs = zip(cotangents or [], map(_array, outputs), strict=True)
        given = [mx.zeros_like(y) if ct is None else _array(ct).astype(y.dtype) for ct, y in pairs]
        return list(mx.vjp(run, primals, given)[1])

    return outputs, aux, pull


def jvp(
    fun: Callable[[list[Any]], tuple[list[Any], Any]], leaves: list[Any], tangents: list[Any]
) -> tuple[list[Any], Any, list[Any]]:
    """Return outputs, auxiliary output and the tangents of the outputs; of an operation without them by ``mx.vjp``."""
    kept: list[Any] = []

    def run(*tracked: mx.array) -> list[mx.array]:
        outputs, aux = fun(list(tracked))
        kept[:] = [aux]
        return [renamed(_array(y)) for y in outputs]

    primals = [renamed(_array(leaf)) for leaf in leaves]
    given = [
        mx.zeros_like(x) if t is None else _array(t).astype(x.dtype) for x, t in zip(primals, tangents, strict=True)
    ]
    try:
        outputs, moved = mx.jvp(run, primals, given)
    except (ValueError, RuntimeError) as error:
        if "implemented" not in str(error):
            raise
        return NotImplemented
    return list(outputs), kept[0], list(moved)


def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> list[Any]:
    """Return what a function makes of each row, stacked."""
    count = arrays[0].shape[0]
    size = chunk_size or count
    batched = mx.vmap(lambda *rows: [_array(y) for y in fun(list(rows))])
    chunks = [batched(*[array[i : i + size] for array in arrays]) for i in range(0, count, size)]
    return [mx.concatenate(list(column)) for column in zip(*chunks, strict=True)]


def _array(value: Any) -> mx.array:
    return value if isinstance(value, mx.array) else mx.array(value)


def renamed(array: mx.array) -> mx.array:
    """Return the same values as the result of another operation, which every transformation knows."""
    return mx.squeeze(mx.expand_dims(array, 0), 0)
