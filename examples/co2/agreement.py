"""Whether the trainings found the same optimum, and by how much they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import kernels
from adprotocol import partition
from training import named

if TYPE_CHECKING:
    from training import Fit

OPTIMUM_TOLERANCE = 1e-6  # of trained parameters; what is seen is 1e-10 for the whole series
CONVERGED = 1e-3  # of the norm of the gradient at the start


@dataclass(frozen=True)
class Verdict:
    """Hold whether a training agrees with the others.

    Args:
        agrees: within the tolerance, and what has to be so otherwise is so.
        difference: the largest relative difference from the first training.
    """

    agrees: bool
    difference: float


def optima(fits: dict[str, Fit]) -> dict[str, Verdict]:
    """Compare value and parameters of each fit with the first; each must be an optimum and keep what is frozen."""
    reference = next(iter(fits.values()), None)
    return {name: _optimum(fit, reference or fit) for name, fit in fits.items()}


def _optimum(fit: Fit, reference: Fit) -> Verdict:
    numbers, others = named(fit.kernel), named(reference.kernel)
    differences = [relative(number, others[name]) for name, number in numbers.items()]
    difference = largest([relative(fit.values[1], reference.values[1]), *differences])
    right = fit.norms[1] <= CONVERGED * fit.norms[0] and kept(fit)
    return Verdict(right and difference <= OPTIMUM_TOLERANCE, difference)


def kept(fit: Fit) -> bool:
    """Tell whether exactly the frozen parameters have no gradient, and are where they were."""
    numbers = named(fit.kernel)
    without = {name for name, part in named(fit.gradient).items() if part is None}
    return without == set(frozen()) and all(numbers[name] == value for name, value in frozen().items())


def frozen() -> dict[str, float]:
    """Return the parameters that are not trained, by their paths."""
    _, rest = partition(kernels.START)
    return {name: float(leaf) for name, leaf in named(rest).items() if leaf is not None}


def relative(number: float, reference: float) -> float:
    """Return the relative difference."""
    return abs(number - reference) / abs(reference)


def largest(numbers: list[float]) -> float:
    """Return the largest number, which is NaN if one is: max() would pass over it."""
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)
