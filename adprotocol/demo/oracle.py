"""The independent checks of the demo: finite differences of the NumPy code, with no AD system at all.

Input dropout is done by hand here, by taking the observations out of the
series, and the constant is held by computing it once. The training value and
gradient of every backend must come out nevertheless.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from adprotocol.demo import kernels, model
from adprotocol.demo.backends import Trained
from adprotocol.demo.training import mapped, named

if TYPE_CHECKING:
    from adprotocol.demo.data import Series

STEP = 1e-5  # around rate 0 it stays within the branch taken there
FACTOR = 1e-4  # the step in the logarithm of a parameter


def finite_differences(series: Series) -> Trained:
    """Return the training value and gradient by central differences of fourth order."""
    import numpy as np  # noqa: PLC0415

    kept = [i for i, weight in enumerate(series.mask) if weight]
    t, y = np.array(series.t)[kept], np.array(series.y)[kept]
    ones = np.ones(len(kept))
    start = {name: np.float64(value) for name, value in model.START.items()}
    nugget = model.jitter(model.covariance(start, np.array(series.t), np), np)
    scale = len(series.t) / len(kept)

    def at(name: str, steps: int) -> float:
        params = start | {name: start[name] + steps * STEP}
        return scale * float(model.log_likelihood(params, nugget, t, y, ones, np))

    gradient = {
        name: (8.0 * (at(name, 1) - at(name, -1)) - (at(name, 2) - at(name, -2))) / (12.0 * STEP) for name in start
    }
    return Trained(at("slope", 0), gradient)


def slopes(kernel: kernels.Sum, series: Series) -> dict[str, float]:
    """Return the derivative of the log marginal likelihood for the logarithm of each parameter, frozen or not."""
    import numpy as np  # noqa: PLC0415

    t, y = np.array(series.t), np.array(series.y)

    def at(wanted: str, logarithm: float) -> float:
        paths = iter(named(kernel))
        moved = mapped(lambda p: p * math.exp(logarithm) if next(paths) == wanted else p, kernel)
        return float(kernels.log_marginal_likelihood(moved, t, y, np))

    return {name: (at(name, FACTOR) - at(name, -FACTOR)) / (2.0 * FACTOR) for name in named(kernel)}
