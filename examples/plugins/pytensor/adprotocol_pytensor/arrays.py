"""The functions of the hook `array_functions`, in the words of the array API standard."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.basic import Variable

from adprotocol_pytensor.ops import dtype_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrayFunctions:
    """What PyTensor names otherwise, or has as a method."""

    where: Any = staticmethod(pt.switch)
    moveaxis: Any = staticmethod(pt.moveaxis)
    reshape: Any = staticmethod(pt.reshape)

    @staticmethod
    def as_like(value: Any, like: Any) -> Any:
        """Return a value in the dtype of a variable, None for zeros; its shape is compared when the graph runs."""
        like = variable(like)
        if value is None:
            return pt.zeros_like(like)
        return of_dtype(pt.specify_shape(pt.as_tensor(value), like.shape), like)

    @staticmethod
    def argmax(mask: Any) -> Any:
        """Return the position of the first True, and 0 if there is none."""
        # `pt.argmax` and `pt.cumsum` refuse to be pushed forward.
        flat = disconnected_grad(pt.as_tensor(mask)).flatten()
        places = pt.arange(flat.shape[0])
        return pt.min(pt.switch(flat, places, flat.shape[0])) % flat.shape[0]

    @staticmethod
    def take(array: Any, indices: Any, axis: int) -> Any:
        """Return the elements at these positions of an axis."""
        return pt.take(array, indices, axis=axis)

    @staticmethod
    def stack(arrays: Sequence[Any]) -> Any:
        """Return arrays along a new leading axis."""
        return pt.stack(list(arrays))

    @staticmethod
    def basis(array: Any, count: Any, start: Any) -> Any:
        """Return arrays like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        array = pt.as_tensor(array)
        shape, known = ArrayFunctions.shape(array), count if isinstance(count, int) else None
        # `pt.prod` and `pt.eye` refuse to be pushed forward.
        rows = pt.eq(pt.arange(count)[:, None] - start, pt.arange(math.prod(shape))).astype(array.type.dtype)
        return pt.specify_shape(rows.reshape((count, *shape)), [known, *array.type.shape])

    @staticmethod
    def shape(array: Any) -> tuple[Any, ...]:
        """Return the sizes: ints where the type of a variable has them, and else scalars of the graph."""
        known = array.type.shape
        return tuple(array.shape[axis] if size is None else size for axis, size in enumerate(known))


def variable(value: Any) -> Any:
    """Return a variable as it is, and a number or an array of NumPy as a constant."""
    return value if isinstance(value, Variable) else pt.constant(np.asarray(value))


def of_dtype(gradient: Any, leaf: Any) -> Any:
    """Return a gradient in the dtype of its leaf, if the leaf has one."""
    dtype = dtype_of(leaf)
    return gradient if dtype_of(gradient) == dtype or not hasattr(gradient, "astype") else gradient.astype(dtype)
