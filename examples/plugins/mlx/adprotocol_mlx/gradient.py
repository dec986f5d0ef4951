"""The hooks `vjp`, `jvp` and `vmap` by those of MLX.

``mx.value_and_grad`` would stop the derivatives of auxiliary output, those of an
outer level too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx

from adprotocol.errors import UndecidableError
from adprotocol.hookspecs import hookimpl
from adprotocol_mlx.arrays import ArrayFunctions

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: FBT001
) -> tuple[list[Any], list[Any], Callable[[list[Any] | None], list[Any]]]:
    """Return outputs, others, and what pulls cotangents back: from one run of the function, if pulled once.

    MLX keeps no graph of a derivative after the call, so a pull that comes later runs the function again.
    """
    results: list[tuple[list[Any], list[Any]]] = []

    def run(*tracked: mx.array) -> list[mx.array]:
        outputs, others = fun(list(tracked))
        results.append((outputs, others))
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
        outputs, others = results[0]
        return [values[0] if isinstance(outputs[0], mx.array) else outputs[0]], others, lambda _: gradients
    # Run at a level of its own, where a question is answered as in the derivative.
    mx.vjp(first, primals, [mx.zeros(())])
    outputs, others = results[0]

    def pull(cotangents: list[Any] | None) -> list[Any]:
        pairs = zip(cotangents or [], outputs, strict=True)
        return list(mx.vjp(run, primals, [ArrayFunctions.as_like(ct, y) for ct, y in pairs])[1])

    return outputs, others, pull


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> Any:
    """Return outputs, others and the tangents of the outputs."""
    kept: list[Any] = []

    def run(*tracked: mx.array) -> list[mx.array]:
        outputs, kept[:] = fun(list(tracked))
        return [renamed(_array(y)) for y in outputs]

    try:
        outputs, moved = mx.jvp(run, [renamed(_array(leaf)) for leaf in leaves], tangents)
    except (ValueError, RuntimeError) as error:
        if "implemented" not in str(error):
            raise
        return NotImplemented
    return list(outputs), kept, list(moved)


@hookimpl
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> Any:
    """Return what a function makes of each row, stacked; where it needs values, leave that to the caller."""
    count = arrays[0].shape[0]
    size = chunk_size or count
    batched = mx.vmap(lambda *rows: [_array(y) for y in fun(list(rows))])
    try:
        chunks = [batched(*[array[i : i + size] for array in arrays]) for i in range(0, count, size)]
    except UndecidableError:
        return NotImplemented
    return [mx.concatenate(list(column)) for column in zip(*chunks, strict=True)]


def _array(value: Any) -> mx.array:
    return value if isinstance(value, mx.array) else mx.array(value)


def renamed(array: mx.array) -> mx.array:
    """Return the same values as the result of another operation, which every transformation knows."""
    return mx.squeeze(mx.expand_dims(array, 0), 0)
