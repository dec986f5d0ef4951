"""Whether the outcomes agree to rounding, and by how much they differ."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adprotocol.demo.backends import Outcome, Trained

TOLERANCE = 1e-8  # relative, in float64; what is seen is 1e-10 or less


@dataclass(frozen=True)
class Verdict:
    """Hold whether an outcome agrees with the others.

    Args:
        agrees: within the tolerance, and `within_gradient` answered what the situation is.
        difference: the largest relative difference from the first outcome that has the number.
    """

    agrees: bool
    difference: float


def verdicts(ran: dict[str, Outcome]) -> dict[str, Verdict]:
    """Compare each outcome with the first, and each gradient with the first gradient."""
    value = next((outcome.value for outcome in ran.values()), 0.0)
    trained = next((outcome.trained for outcome in ran.values() if outcome.trained), None)
    return {name: _verdict(outcome, value, trained) for name, outcome in ran.items()}


def _verdict(outcome: Outcome, value: float, trained: Trained | None) -> Verdict:
    differences = [relative(outcome.value, value)]
    if outcome.trained and trained:
        differences.append(training_difference(outcome.trained, trained))
    right = all(answer == ("grad" in situation) for situation, answer in outcome.answers.items())
    difference = largest(differences)
    return Verdict(right and difference <= TOLERANCE, difference)


def training_difference(trained: Trained, reference: Trained) -> float:
    """Return the largest difference of value and gradient, the latter relative to its largest component."""
    scale = largest([abs(component) for component in reference.gradient.values()])
    gradient = [abs(trained.gradient[name] - component) / scale for name, component in reference.gradient.items()]
    return largest([relative(trained.value, reference.value), *gradient])


def relative(number: float, reference: float) -> float:
    """Return the relative difference."""
    return abs(number - reference) / abs(reference)


def largest(numbers: list[float]) -> float:
    """Return the largest number, which is NaN if one is: max() would pass over it."""
    return math.nan if any(map(math.isnan, numbers)) else max(numbers)
