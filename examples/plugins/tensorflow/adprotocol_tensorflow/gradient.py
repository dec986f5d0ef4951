"""`value_and_grad`, by a tape that follows the leaves given and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adprotocol.extend import check_output

if TYPE_CHECKING:
    from collections.abc import Callable


def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return value, auxiliary output, and the gradient for each leaf.

    A variable is given to the function as it is, so that it can be assigned to; of an array, a copy that no other
    place has.
    """
    followed = [leaf if isinstance(leaf, tf.Variable) else tf.identity(leaf) for leaf in leaves]
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

