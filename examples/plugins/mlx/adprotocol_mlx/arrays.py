"""The functions of the hook `array_functions`, in the words of the array API standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np

from adprotocol_mlx import trace
from adprotocol_mlx.answer import is_inexact
from adprotocol_mlx.choice import choose

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrayFunctions:
    """The functions of ``mlx.core``, given its own arrays."""

    moveaxis: Any = staticmethod(mx.moveaxis)
    reshape: Any = staticmethod(mx.reshape)
    conj: Any = staticmethod(mx.conj)

    @staticmethod
    def as_like(value: Any, like: Any) -> mx.array:
        """Return a number or an array in the dtype of another; zeros for None."""
        like = mx.array(like)
        return mx.zeros_like(like) if value is None else mx.array(value, like.dtype)

    @staticmethod
    def in_numpy(array: mx.array) -> Any:
        """Return the numbers of a constant; what it is computed from keeps its derivative."""
        return trace.keeping_graphs(lambda: np.array(array.astype(mx.float32) if array.dtype == mx.bfloat16 else array))

    @staticmethod
    def where(mask: Any, one: Any, other: Any) -> mx.array:
        """Choose elementwise between arrays and numbers, with the derivatives of what is chosen."""
        taken = (bool, int, float, complex, mx.array)
        values = [value if isinstance(value, taken) else mx.array(value) for value in (mask, one, other)]
        like = mx.where(*values)
        if not is_inexact(like):
            return like
        pred, *chosen = [mx.array(value) for value in values]
        pred, *chosen = mx.broadcast_arrays(pred, *[value.astype(like.dtype) for value in chosen])
        return choose(pred, *chosen)

    @staticmethod
    def argmax(mask: Any) -> mx.array:
        """Return the position of an element that is True."""
        return mx.argmax(mx.stop_gradient(mx.array(mask)).reshape(-1))

    @staticmethod
    def take(array: Any, indices: mx.array, axis: int) -> mx.array:
        """Return the elements at these positions of an axis."""
        return mx.take(mx.array(array), mx.stop_gradient(indices), axis=axis)

    @staticmethod
    def stack(arrays: Sequence[mx.array]) -> mx.array:
        """Return arrays along a new leading axis."""
        return mx.stack(list(arrays))

    @staticmethod
    def basis(array: Any, count: int, start: int) -> mx.array:
        """Return arrays like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        array = mx.array(array)
        places = mx.arange(count)[:, None] - start == mx.arange(array.size)
        return places.astype(array.dtype).reshape(count, *array.shape)
