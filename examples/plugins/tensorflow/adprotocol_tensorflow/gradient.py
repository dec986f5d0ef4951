"""The hooks `vjp` and `jvp`, by a tape or an accumulator that follows the leaves given and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from adprotocol.errors import UndecidableError
from adprotocol.extend import check_output
from adprotocol_tensorflow import recording
from adprotocol_tensorflow.composite import COMPOSITE

if TYPE_CHECKING:
    from collections.abc import Callable


def vjp(
    fun: Callable[[list[Any]], tuple[list[Any], Any]],
    leaves: list[Any],
    once: bool,  # noqa: FBT001
) -> tuple[list[Any], Any, Callable[[list[Any] | None], list[Any]]]:
    """Return outputs, auxiliary output, and what pulls cotangents back, by a tape that may be used again if not `once`.

    A variable is given to the function as it is, so that it can be assigned to; of an array, a copy that no other
    place has.
    """
    _refuse_where_stopped()
    dtype = _dtype(leaves)
    followed = [leaf if isinstance(leaf, tf.Variable) else tf.identity(_tensor(leaf, dtype)) for leaf in leaves]
    with tf.GradientTape(persistent=not once, watch_accessed_variables=False) as tape:
        tape.watch(followed)
        outputs, aux = fun(followed)
        outputs = [y.read_value() if isinstance(y, tf.Variable) else y for y in outputs]
        if once:
            check_output(outputs[0], outputs[0])

    def pull(cotangents: list[Any] | None) -> list[Any]:
        known = [(y, None if cotangents is None else cotangents[i]) for i, y in enumerate(outputs)]
        known = [(y, ct) for y, ct in known if isinstance(y, tf.Tensor) and (ct is not None or cotangents is None)]
        if not known:
            return [tf.zeros_like(leaf) for leaf in followed]
        given = None if cotangents is None else [tf.cast(_tensor(ct, y.dtype), y.dtype) for y, ct in known]
        zero = tf.UnconnectedGradients.ZERO
        gradients = tape.gradient([y for y, _ in known], followed, given, unconnected_gradients=zero)
        return [tf.convert_to_tensor(gradient) for gradient in gradients]

    return outputs, aux, pull


def jvp(
    fun: Callable[[list[Any]], tuple[list[Any], Any]], leaves: list[Any], tangents: list[Any]
) -> tuple[list[Any], Any, list[Any]]:
    """Return outputs, auxiliary output and the tangents of the outputs, by an accumulator."""
    _refuse_where_stopped()
    dtype = _dtype(leaves)
    followed = [leaf if isinstance(leaf, tf.Variable) else tf.identity(_tensor(leaf, dtype)) for leaf in leaves]
    pairs = zip(followed, tangents, strict=True)
    given = [tf.zeros_like(x) if t is None else tf.cast(_tensor(t, x.dtype), x.dtype) for x, t in pairs]
    with tf.autodiff.ForwardAccumulator(followed, given) as accumulator:
        outputs, aux = fun(followed)
        outputs = [tf.convert_to_tensor(y) for y in outputs]
    zero = tf.UnconnectedGradients.ZERO
    return outputs, aux, [accumulator.jvp(y, unconnected_gradients=zero) for y in outputs]


def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any]) -> list[Any]:
    """Return what a function makes of each row, stacked; `tf.vectorized_map` knows no derivative of its own inside."""
    count = arrays[0].shape[0]
    if count is None:
        msg = (
            "TensorFlow traces this function for arrays of any size, and a Jacobian has one row for each element; "
            "trace it for one shape, with no None in the shapes of its input_signature"
        )
        raise UndecidableError(msg)
    rows = [fun([array[i] for array in arrays]) for i in range(count)]
    return [tf.stack(column) for column in zip(*rows, strict=True)]


def _refuse_where_stopped() -> None:
    if recording.is_stopped():
        msg = (
            "TensorFlow has stopped all recording here, as it does where tf.recompute_grad runs its function first, so "
            "that a gradient would be zero; differentiate outside of it"
        )
        raise UndecidableError(msg)


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
