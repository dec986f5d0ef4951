"""The model of the demo: a Gaussian process for the carbon dioxide record of Mauna Loa.

This file imports `adprotocol` and no framework. The array namespace is the
parameter `xp`: `numpy`, `autograd.numpy`, `jax.numpy` or `torch` itself. Three
things in it need to know how they are differentiated:

- input dropout leaves observations out in training, and in training only
  (`within_gradient`, `cond`);
- the jitter on the diagonal follows the size of the covariance, but is a
  numerical aid and takes no derivative (`non_differentiable`);
- growth at a rate of exactly zero, where training starts, divides zero by zero
  in the branch that is not taken (`cond`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from adprotocol import cond, non_differentiable, within_gradient

Params = Mapping[str, Any]

# A straight line, a slow trend around it, a yearly season whose shape drifts, and noise.
START: dict[str, float] = {
    "slope": 1.3,  # ppm a year
    "rate": 0.0,  # of exponential growth, a year; 0 is the straight line
    "log_trend": math.log(3.0),  # ppm
    "log_trend_years": math.log(6.0),
    "log_season": math.log(2.5),  # ppm
    "log_season_years": math.log(30.0),
    "log_noise": math.log(0.4),  # ppm
}


def growth(rate: Any, t: Any, xp: Any) -> Any:
    """Return ``(exp(rate * t) - 1) / rate``, which is ``t`` at rate zero, with the right derivative there."""
    return cond(
        xp.abs(rate) > 1e-4,  # noqa: PLR2004  (below it, the series is exact to 1e-9)
        lambda rate: xp.expm1(rate * t) / rate,
        lambda rate: t * (1.0 + rate * t / 2.0 + (rate * t) ** 2 / 6.0),
        rate,
    )


def covariance(params: Params, t: Any, xp: Any) -> Any:
    """Return the covariance of trend and season at the times `t`, without noise."""
    apart = t[:, None] - t[None, :]
    trend = xp.exp(2.0 * params["log_trend"] - (apart / xp.exp(params["log_trend_years"])) ** 2 / 2.0)
    drift = (apart / xp.exp(params["log_season_years"])) ** 2 / 2.0
    season = xp.exp(2.0 * params["log_season"] - 2.0 * xp.sin(math.pi * apart) ** 2 - drift)
    return trend + season


@non_differentiable
def jitter(signal: Any, xp: Any) -> Any:
    """Return what keeps the Cholesky factor real: a small part of the mean variance, as a constant."""
    return 1e-4 * xp.mean(xp.diag(signal))


def log_likelihood(params: Params, nugget: Any, t: Any, y: Any, mask: Any, xp: Any) -> Any:  # noqa: PLR0913, PLR0917
    """Return the log marginal likelihood for a given jitter; in training, of the observations in `mask`."""
    noise = xp.exp(2.0 * params["log_noise"]) + nugget
    total = covariance(params, t, xp) + noise * xp.diag(xp.ones_like(t))
    residual = y - params["slope"] * growth(params["rate"], t, xp)

    # Input dropout: an observation left out has variance one, residual zero and
    # no correlation, which adds nothing to either term of the likelihood.
    def drop(total: Any, residual: Any) -> Any:
        return total * mask[:, None] * mask[None, :] + xp.diag(1.0 - mask), residual * mask, xp.sum(mask)

    def keep(total: Any, residual: Any) -> Any:
        return total, residual, xp.sum(xp.ones_like(mask))

    total, residual, count = cond(within_gradient(params), drop, keep, total, residual)

    factor = xp.linalg.cholesky(total)
    white = xp.linalg.solve(factor, residual[:, None])
    likelihood = -xp.sum(white**2) / 2.0 - xp.sum(xp.log(xp.diag(factor))) - count * math.log(2.0 * math.pi) / 2.0
    # Scaled, as dropout is, so that the size does not depend on how many were left out.
    return likelihood * (len(t) / count)


def log_marginal_likelihood(params: Params, t: Any, y: Any, mask: Any, xp: Any) -> Any:
    """Return the log marginal likelihood of the series.

    Args:
        params: the entries of `START`, as arrays of shape ``()``, float64.
        t: times in years, shape ``(n,)``, float64.
        y: parts per million from their mean, shape ``(n,)``, float64.
        mask: 1.0 where input dropout keeps the observation, else 0.0, shape ``(n,)``, float64.
        xp: the array namespace.

    Returns:
        A scalar, shape ``()``: of all observations when it is evaluated, of
        those in `mask` when it is differentiated.
    """
    return log_likelihood(params, jitter(covariance(params, t, xp), xp), t, y, mask, xp)


def mode(params: Params) -> Any:
    """Return what `within_gradient` answers: 1.0 for True, 0.0 for False, staged where the answer is."""
    return cond(within_gradient(params), lambda: 1.0, lambda: 0.0)
