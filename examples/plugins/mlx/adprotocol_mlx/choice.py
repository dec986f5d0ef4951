"""An elementwise choice whose derivatives are those of what is chosen.

The derivative of ``mx.where`` is a product with the mask, and 0 times NaN is NaN. The
rules here choose among the cotangents, or tangents, instead, in every order.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx


def choose(pred: mx.array, x: mx.array, y: mx.array) -> mx.array:
    """Return `x` where `pred` is true, else `y`, which has the same shape and dtype."""
    chosen: mx.array = _choice(pred, x, y)
    return chosen


def guarded(pred: mx.array, x: mx.array) -> mx.array:
    """Return `x`, whose derivative is zero where `pred` is False."""
    return choose(pred, x, mx.stop_gradient(x))


def _vjp(primals: Any, cotangent: mx.array, _output: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    pred, _, _ = primals
    zero = mx.zeros_like(cotangent)
    return mx.zeros_like(pred), choose(pred, cotangent, zero), choose(pred, zero, cotangent)


def _jvp(primals: Any, tangents: Any) -> mx.array:
    pred, x, y = primals
    of_x, of_y = (
        mx.zeros_like(value) if tangent is None else tangent
        for value, tangent in zip((x, y), tangents[1:], strict=True)
    )
    return choose(pred, of_x, of_y)


def _vmap(values: Any, axes: Any) -> tuple[mx.array, int | None]:
    sizes = [value.shape[axis] for value, axis in zip(values, axes, strict=True) if axis is not None]
    if not sizes:
        return choose(*values), None
    pred, x, y = (
        mx.broadcast_to(value[None], (sizes[0], *value.shape)) if axis is None else mx.moveaxis(value, axis, 0)
        for value, axis in zip(values, axes, strict=True)
    )
    # One for each row, or, where x and y have been batched before, one for each of several leading axes.
    pred = pred.reshape(*pred.shape, *[1] * (x.ndim - pred.ndim))
    return choose(pred, x, y), 0


_choice: Any = mx.custom_function(mx.where)
_choice.vjp(_vjp)
_choice.jvp(_jvp)
_choice.vmap(_vmap)
