"""The functions of the hook `array_functions`, in the words of the array API standard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from adprotocol_tensorflow.composite import COMPOSITE

if TYPE_CHECKING:
    from collections.abc import Sequence


class ArrayFunctions:
    """What TensorFlow names otherwise, or does in one dtype alone."""

    reshape: Any = staticmethod(tf.reshape)
    gradient_is_ascent = True

    @staticmethod
    def as_like(value: Any, like: Any) -> Any:
        """Return a number or an array in the dtype of another; zeros for None."""
        like = tensor(like)
        return tf.zeros_like(like) if value is None else tf.cast(tensor(value, like.dtype), like.dtype)

    @staticmethod
    def where(mask: Any, one: Any, other: Any) -> Any:
        """Choose elementwise; what is no tensor has the dtype of the other, as TensorFlow promotes nothing."""
        dtype = next((value.dtype for value in (one, other) if tf.is_tensor(value)), None)
        return tf.where(mask, tf.convert_to_tensor(one, dtype), tf.convert_to_tensor(other, dtype))

    @staticmethod
    def argmax(mask: Any) -> Any:
        """Return the position of an element that is True."""
        return tf.argmax(tf.cast(tf.reshape(mask, [-1]), tf.int32))

    @staticmethod
    def take(array: Any, indices: Any, axis: int) -> Any:
        """Return the elements at these positions of an axis."""
        return tf.gather(array, indices, axis=axis)

    @staticmethod
    def stack(arrays: Sequence[Any]) -> Any:
        """Return arrays along a new leading axis."""
        return tf.stack(list(arrays))

    @staticmethod
    def moveaxis(array: Any, source: int, destination: int) -> Any:
        """Return an array with one axis at another place."""
        order = list(range(len(array.shape)))
        order.insert(destination % len(order), order.pop(source))
        return tf.transpose(array, order)

    @staticmethod
    def basis(array: Any, count: int, start: int) -> Any:
        """Return tensors like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        array = tf.convert_to_tensor(array)
        size = tf.size(array, out_type=tf.int64)
        places = tf.range(count, dtype=tf.int64)[:, None] - start == tf.range(size)
        return tf.reshape(tf.cast(places, array.dtype), [count, *ArrayFunctions.shape(array)])

    @staticmethod
    def shape(array: Any) -> tuple[Any, ...]:
        """Return the sizes: ints, or in a function that is traced for any size scalars of its program."""
        sizes = tf.shape(array, out_type=tf.int64)
        return tuple(sizes[axis] if size is None else size for axis, size in enumerate(array.shape))


def tensor(value: Any, dtype: Any = None) -> Any:
    """Return a tensor as it is, and what else holds numbers as one: in this dtype, if it has none of TensorFlow's."""
    if isinstance(value, (tf.Tensor, *COMPOSITE)):
        return value
    has_dtype = isinstance(value, tf.Variable) or np.iscomplexobj(value)
    return tf.convert_to_tensor(value, None if has_dtype else dtype)
