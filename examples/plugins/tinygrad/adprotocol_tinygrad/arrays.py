"""The functions of the hook `array_functions`, in the words of the array API standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tinygrad import Tensor
from tinygrad.dtype import strong_dtype

from adprotocol.errors import UndecidableError
from adprotocol_tinygrad.choice import readable

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrayFunctions:
    """What tinygrad has as methods of a tensor."""

    @staticmethod
    def as_like(value: Any, like: Any) -> Tensor:
        """Return a number or an array in the dtype of another; zeros for None."""
        like = with_storage(like)
        if value is None:
            return Tensor.zeros(*like.shape, dtype=like.dtype, device=like.device).is_param_(is_param=False)
        return _tensor(value).to(like.device).cast(like.dtype)

    @staticmethod
    def in_numpy(array: Tensor) -> Any:
        """Return the numbers of a constant; what it is computed from keeps its derivative."""
        read = readable(array)
        if read is None:
            msg = "tinygrad would compute what is differentiated, and forget what it was computed from"
            raise UndecidableError(msg)
        return read.numpy()

    @staticmethod
    def where(mask: Any, one: Any, other: Any) -> Tensor:
        """Choose elementwise between tensors and numbers."""
        return _tensor(mask).where(*[x if isinstance(x, (bool, int, float)) else _tensor(x) for x in (one, other)])

    @staticmethod
    def argmax(mask: Any) -> Tensor:
        """Return the position of an element that is True."""
        return _tensor(mask).flatten().int().argmax()

    @staticmethod
    def take(array: Any, indices: Tensor, axis: int) -> Tensor:
        """Return the elements at these positions of an axis."""
        array = _tensor(array)
        return array[(*[slice(None)] * (axis % array.ndim), indices)]

    @staticmethod
    def stack(arrays: Sequence[Tensor]) -> Tensor:
        """Return tensors along a new leading axis."""
        return Tensor.stack(*arrays)

    @staticmethod
    def moveaxis(array: Tensor, source: int, destination: int) -> Tensor:
        """Return a tensor with one axis at another place."""
        order = list(range(array.ndim))
        order.insert(destination % array.ndim, order.pop(source))
        return array.permute(order)

    @staticmethod
    def reshape(array: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return a tensor in another shape."""
        return array.reshape(shape)

    @staticmethod
    def basis(array: Any, count: int, start: int) -> Tensor:
        """Return tensors like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        array = _tensor(array)
        places = Tensor.arange(count).unsqueeze(1) - start == Tensor.arange(array.numel())
        # Of these numbers tinygrad knows no device: it is that of the zeros.
        return places.reshape(count, *array.shape).where(1.0, array.zeros_like())


def with_storage(leaf: Any) -> Tensor:
    """Return a leaf as a tensor with a device: tinygrad does not differentiate in a number."""
    if not isinstance(leaf, Tensor):
        # A list, as tinygrad makes of a number a constant of the program, one for all equal numbers.
        return Tensor([leaf]).reshape(()) if isinstance(leaf, float) else Tensor(leaf).clone()
    if leaf.uop.is_virtual:
        return leaf.cast(strong_dtype(leaf.dtype)).clone()
    return leaf


def _tensor(value: Any) -> Tensor:
    # It takes arrays of NumPy and Python's numbers, and no scalars of NumPy.
    return value if isinstance(value, Tensor) else Tensor(np.asarray(value) if isinstance(value, np.generic) else value)
