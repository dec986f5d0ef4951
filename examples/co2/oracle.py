"""The independent check: finite differences of the NumPy code, with no AD system at all."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import kernels
from training import mapped, named

if TYPE_CHECKING:
    from series import Series

FACTOR = 1e-4  # the step in the logarithm of a parameter


def slopes(kernel: kernels.Sum, series: Series) -> dict[str, float]:
    """Return the derivative of the log marginal likelihood for the logarithm of each parameter, frozen or not."""
    import numpy as np  # noqa: PLC0415

    t, y = np.array(series.t), np.array(series.y)

    def at(wanted: str, logarithm: float) -> float:
        paths = iter(named(kernel))
        moved = mapped(lambda p: p * math.exp(logarithm) if next(paths) == wanted else p, kernel)
        return float(kernels.log_marginal_likelihood(moved, t, y, np))

    return {name: (at(name, FACTOR) - at(name, -FACTOR)) / (2.0 * FACTOR) for name in named(kernel)}
