"""Spectral normalisation of a weight."""

from typing import Any

from adprotocol import non_differentiable


def spectral_norm(weight: Any, u: Any, steps: int = 1) -> tuple[Any, Any]:
    """Return a weight divided by its greatest singular value, and the next estimate of the left singular vector.

    The power iteration is on constants; the estimate itself is differentiated
    through the weight. T. Miyato et al., https://arxiv.org/abs/1802.05957

    Args:
        weight: an array of shape ``(out, in)``.
        u: the last estimate, of shape ``(out,)``.
        steps: the number of iterations, at least one.
    """
    fixed = non_differentiable(weight)
    u = non_differentiable(u)
    for _ in range(steps):
        v = _unit(fixed.T @ u)
        u = _unit(fixed @ v)
    return weight / (u @ (weight @ v)), u


def _unit(x: Any) -> Any:
    return x / ((x * x).sum() + 1e-12) ** 0.5
