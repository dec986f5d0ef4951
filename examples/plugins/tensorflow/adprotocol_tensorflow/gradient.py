"""`value_and_grad`, by a tape that follows the leaves given and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from adprotocol.extend import check_output
from adprotocol_tensorflow.composite import COMPOSITE

if TYPE_CHECKING:
    from collections.abc import Callable


def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return value, auxiliary output, and the gradient for each leaf.

    A variable is given to the function as it is, so that it can be assigned to; of an array, a copy that no other
    place has.
    """
    dtype = _dtype(leaves)
    followed = [leaf if isinstance(leaf, tf.Variable) else tf.identity(_tensor(leaf, dtype)) for leaf in leaves]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(followed)
        value, aux = fun(followed)
        if isinstance(value, tf.Variable):
            value = value.read_value()
        check_output(value, value)
    if not isinstance(value, tf.Tensor):
        return value, aux, [tf.zeros_like(leaf) for leaf in followed]
    gradients = tape.gradient(value, followed, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return value, aux, [tf.convert_to_tensor(gradient) for gradient in gradients]


def _dtype(leaves: list[Any]) -> Any:
    """Return the dtype for numbers among the leaves: that of the tensors, else of the NumPy arrays, else the default.

    TensorFlow promotes nothing, and gives a number or NumPy array the dtype of the tensor that it meets.
    """
    tensors = [leaf.dtype for leaf in leaves if isinstance(leaf, (tf.Tensor, tf.Variable))]
    arrays = [tf.as_dtype(leaf.dtype) for leaf in leaves if isinstance(leaf, (np.ndarray, np.generic))]
    real = [dtype for dtype in tensors or arrays if dtype.is_floating]
    return max(real, key=lambda dtype: dtype.size, default=tf.float32)


def _tensor(leaf: Any, dtype: Any) -> Any:
    if isinstance(leaf, (tf.Tensor, *COMPOSITE)):
        return leaf
    complex_ = isinstance(leaf, complex) or getattr(leaf, "dtype", np.dtype(float)).kind == "c"
    return tf.convert_to_tensor(leaf, None if complex_ else dtype)
