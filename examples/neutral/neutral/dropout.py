"""Dropout, a layer without parameters."""

from typing import Any

from adprotocol import cond


def dropout(x: Any, noise: Any, training: Any, rate: float = 0.5) -> Any:
    """Drop a part of `x` in training, and return it unchanged otherwise.

    The layer has no parameters, and `x` may be data or come from a frozen layer. So
    it does not ask about `x`: the model asks once about its parameters, and hands
    the answer down.

    Args:
        x: an array of any shape.
        noise: uniform numbers in [0, 1), an array of the shape of `x`.
        training: the answer of ``within_gradient(params)``, staged or not.
        rate: the share that is dropped.
    """
    return cond(training, lambda x, noise: x * (noise >= rate) / (1.0 - rate), lambda x, _: x * 1.0, x, noise)
