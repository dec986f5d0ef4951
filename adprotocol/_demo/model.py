"""The model of the demo: a trend and a season, fitted to a series that has outliers.

This file imports `adprotocol` and no framework. The array namespace is the
parameter `xp`: `numpy`, `autograd.numpy`, `jax.numpy` or `torch` itself. The model
is made of ordinary dataclasses, and its loss is differentiated as it is written.
Four things need to know about that, and one call lets ``jax.jit`` take the model as an argument (`register_structure`):

- the period is known, and takes no gradient (`NonDifferentiable`, in `start`);
- input dropout leaves observations out in training, and in training only
  (`within_gradient`, `cond`);
- the spread that tells outliers is computed from the residuals, but taken as a
  constant (`non_differentiable`);
- growth at a rate of exactly zero, where training starts, divides zero by zero
  in the branch that is not taken (`cond`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adprotocol import NonDifferentiable, cond, non_differentiable, register_structure, within_gradient

if TYPE_CHECKING:
    from collections.abc import Callable

# Eight years of months; one month of each year is an outlier.
T = [month / 12.0 - 4.0 for month in range(96)]
Y = [1.3 * t + 0.02 * t**2 + 2.5 * math.sin(2.0 * math.pi * t) + 3.0 * (i % 12 == 0) for i, t in enumerate(T)]
KEPT = [0.0 if i % 5 == 0 else 1.0 for i in range(len(T))]  # by input dropout: the same for every framework


@register_structure
@dataclass(frozen=True)
class Trend:
    """Exponential growth, from zero; a straight line where the rate is zero."""

    slope: Any
    rate: Any

    def __call__(self, t: Any, xp: Any) -> Any:
        """Return the trend at the times `t`."""
        return self.slope * growth(self.rate, t, xp)


@register_structure
@dataclass(frozen=True)
class Season:
    """What repeats itself."""

    amplitude: Any
    period: Any

    def __call__(self, t: Any, xp: Any) -> Any:
        """Return the season at the times `t`."""
        return self.amplitude * xp.sin(2.0 * math.pi * t / self.period)


@register_structure
@dataclass(frozen=True)
class Model:
    """The sum of both."""

    trend: Trend
    season: Season

    def __call__(self, t: Any, xp: Any) -> Any:
        """Return what the model says at the times `t`."""
        return self.trend(t, xp) + self.season(t, xp)


def start(array: Callable[[float], Any]) -> Model:
    """Return the model before any training; `array` makes an array of a number."""
    return Model(
        Trend(slope=array(1.0), rate=array(0.0)),
        Season(amplitude=array(2.0), period=NonDifferentiable(array(1.0))),
    )


def growth(rate: Any, t: Any, xp: Any) -> Any:
    """Return ``(exp(rate * t) - 1) / rate``, which is ``t`` at rate zero, with the right derivative there."""
    return cond(
        xp.abs(rate) > 1e-4,
        lambda rate: xp.expm1(rate * t) / rate,
        lambda rate: t * (1.0 + rate * t / 2.0 + (rate * t) ** 2 / 6.0),
        rate,
    )


@non_differentiable
def spread(residual: Any, xp: Any) -> Any:
    """Return the size of a usual residual, as a constant."""
    return xp.sqrt(xp.mean(residual**2))


def robust(residual: Any, scale: Any, weights: Any, xp: Any) -> Any:
    """Return the weighted mean of Cauchy's loss, which grows slowly for what is far out."""
    return xp.sum(weights * xp.log1p((residual / scale) ** 2)) / xp.sum(weights)


def loss(model: Model, t: Any, y: Any, kept: Any, xp: Any) -> Any:
    """Return the loss of the model: of all observations when it is evaluated, of those in `kept` in training.

    Args:
        model: its parameters are arrays of shape ``()``, float64.
        t: times in years, shape ``(n,)``, float64.
        y: observations, shape ``(n,)``, float64.
        kept: 1.0 where input dropout keeps the observation, else 0.0, shape ``(n,)``, float64.
        xp: the array namespace.
    """
    residual = y - model(t, xp)
    weights = cond(within_gradient(model), lambda: kept, lambda: xp.ones_like(kept))
    return robust(residual, spread(residual, xp), weights, xp)


def mode(model: Model) -> Any:
    """Return what `within_gradient` answers: 1.0 for True, 0.0 for False, staged where the answer is."""
    return cond(within_gradient(model), lambda: 1.0, lambda: 0.0)
