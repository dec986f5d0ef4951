"""Rounding with a straight-through estimator."""

from typing import Any

from adprotocol import non_differentiable


def _rounded(x: Any, step: float) -> Any:
    shifted = x / step + 0.5
    return (shifted - shifted % 1.0) * step


def quantize(x: Any, step: float = 0.25) -> Any:
    """Round to the nearest multiple of `step`; the derivative is that of the identity.

    Y. Bengio, N. Leonard, A. Courville, https://arxiv.org/abs/1308.3432
    """
    return x + non_differentiable(_rounded(x, step) - x)
