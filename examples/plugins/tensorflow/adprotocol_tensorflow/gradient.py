"""The hooks `vjp`, `jvp` and `vmap`, by a tape or an accumulator that follows the leaves given and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from adprotocol.errors import UndecidableError
from adprotocol.hookspecs import hookimpl
from adprotocol_tensorflow import recording
from adprotocol_tensorflow.arrays import tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: FBT001
) -> tuple[list[Any], list[Any], Callable[[list[Any] | None], list[Any]]]:
    """Return outputs, others, and what pulls cotangents back, by a tape that may be used again if not `once`.

    A variable is given to the function as it is, so that it can be assigned to; of an array, a copy that no other
    place has.
    """
    followed = _followed(leaves)
    with tf.GradientTape(persistent=not once, watch_accessed_variables=False) as tape:
        tape.watch(followed)
        outputs, others = fun(followed)
        outputs = [y.read_value() if isinstance(y, tf.Variable) else y for y in outputs]

    def pull(cotangents: list[Any] | None) -> list[Any]:
        pairs = zip(outputs, cotangents or [1.0], strict=True)
        known = [(y, ct) for y, ct in pairs if isinstance(y, tf.Tensor) and ct is not None]
        if not known:
            return [tf.zeros_like(leaf) for leaf in followed]
        values, given = zip(*known, strict=True)
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient(values, followed, cotangents and given, unconnected_gradients=zero)
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    return outputs, others, pull


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return outputs, others and the tangents of the outputs, by an accumulator."""
    followed = _followed(leaves)
    given = [tf.cast(tangent, leaf.dtype) for tangent, leaf in zip(tangents, followed, strict=True)]
    with tf.autodiff.ForwardAccumulator(followed, given) as accumulator:
        outputs, others = fun(followed)
        outputs = [tf.convert_to_tensor(y) for y in outputs]
    zero = tf.UnconnectedGradients.ZERO
    return outputs, others, [accumulator.jvp(y, unconnected_gradients=zero) for y in outputs]


@hookimpl
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> Any:  # noqa: ARG001
    """Leave one row after another to the caller: in `tf.vectorized_map` a function knows no derivative of its own."""
    if arrays[0].shape[0] is None:
        msg = (
            "TensorFlow traces this function for arrays of any size, and a Jacobian has one row for each element; "
            "trace it for one shape, with no None in the shapes of its input_signature"
        )
        raise UndecidableError(msg)
    return NotImplemented


def _followed(leaves: list[Any]) -> list[Any]:
    """Return what the function is given in place of the leaves; raise where TensorFlow records nothing."""
    if recording.is_stopped():
        msg = (
            "TensorFlow has stopped all recording here, as it does where tf.recompute_grad runs its function first, so "
            "that a gradient would be zero; differentiate outside of it"
        )
        raise UndecidableError(msg)
    dtype = _dtype(leaves)
    return [leaf if isinstance(leaf, tf.Variable) else tf.identity(tensor(leaf, dtype)) for leaf in leaves]


def _dtype(leaves: list[Any]) -> Any:
    """Return the dtype for numbers among the leaves: that of the tensors, else of the NumPy arrays, else the default.

    TensorFlow promotes nothing, and gives a number or NumPy array the dtype of the tensor that it meets.
    """
    tensors = [leaf.dtype for leaf in leaves if isinstance(leaf, (tf.Tensor, tf.Variable))]
    arrays = [tf.as_dtype(leaf.dtype) for leaf in leaves if isinstance(leaf, (np.ndarray, np.generic))]
    real = [dtype for dtype in tensors or arrays if dtype.is_floating]
    return max(real, key=lambda dtype: dtype.size, default=tf.float32)
