"""Kernels that compose, and a Gaussian process with them.

This file imports `adprotocol` and no framework; the array namespace is the
parameter `xp`. The kernels are ordinary frozen dataclasses, and ``k1 + k2 * k3``
is one too: a structure to be trained as it is, without registration and without
a function that takes the parameters out. What takes no gradient says so at its
place, by the label `NonDifferentiable`; `SquaredExponential` and `Periodic` do not
know about it.
"""

from __future__ import annotations

import functools
import math
import operator
from dataclasses import dataclass
from typing import Any

from adprotocol import NonDifferentiable


class Kernel:
    """A function of the distance in time, with the operators that compose."""

    def __call__(self, apart: Any, xp: Any) -> Any:
        """Return the covariance of two points in time that are `apart` years, elementwise."""
        raise NotImplementedError

    def __add__(self, other: Kernel) -> Sum:
        return Sum((*(self.terms if isinstance(self, Sum) else (self,)), other))

    def __mul__(self, other: Kernel) -> Product:
        return Product((*(self.factors if isinstance(self, Product) else (self,)), other))

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True)
class SquaredExponential(Kernel):
    """Smooth functions: the variance in ppm squared, the lengthscale in years."""

    variance: Any
    lengthscale: Any

    def __call__(self, apart: Any, xp: Any) -> Any:
        """Return the covariance."""
        return self.variance * xp.exp(-((apart / self.lengthscale) ** 2) / 2.0)


@dataclass(frozen=True)
class Periodic(Kernel):
    """Functions that repeat themselves: a correlation, to be multiplied with what has a variance."""

    lengthscale: Any
    period: Any

    def __call__(self, apart: Any, xp: Any) -> Any:
        """Return the correlation."""
        return xp.exp(-2.0 * (xp.sin(math.pi * apart / self.period) / self.lengthscale) ** 2)


@dataclass(frozen=True)
class Noise(Kernel):
    """What has nothing to do with any other point in time."""

    variance: Any

    def __call__(self, apart: Any, xp: Any) -> Any:  # noqa: ARG002  (as of every kernel)
        """Return the covariance."""
        return self.variance * (apart == 0.0)


@dataclass(frozen=True)
class Sum(Kernel):
    """The kernel of a sum of independent functions."""

    terms: tuple[Kernel, ...]

    def __call__(self, apart: Any, xp: Any) -> Any:
        """Return the covariance."""
        return functools.reduce(operator.add, [term(apart, xp) for term in self.terms])

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms))


@dataclass(frozen=True)
class Product(Kernel):
    """The kernel of a product of independent functions."""

    factors: tuple[Kernel, ...]

    def __call__(self, apart: Any, xp: Any) -> Any:
        """Return the covariance."""
        return functools.reduce(operator.mul, [factor(apart, xp) for factor in self.factors])

    def __str__(self) -> str:
        return " * ".join(f"({factor})" if isinstance(factor, Sum) else str(factor) for factor in self.factors)


# A trend, a season whose shape drifts, variations from year to year, and noise:
# rough guesses, but for the length of a year, which is known and not trained.
START = (
    SquaredExponential(variance=100.0, lengthscale=10.0)
    + Periodic(lengthscale=2.0, period=NonDifferentiable(1.0)) * SquaredExponential(variance=10.0, lengthscale=10.0)
    + SquaredExponential(variance=1.0, lengthscale=1.0)
    + Noise(variance=1.0)
)


def log_marginal_likelihood(kernel: Kernel, t: Any, y: Any, xp: Any) -> Any:
    """Return the log marginal likelihood of a series: `t` in years, `y` in ppm from the mean, shape ``(n,)``."""
    factor = xp.linalg.cholesky(kernel(t[:, None] - t[None, :], xp))
    white = xp.linalg.solve(factor, y[:, None])
    return -xp.sum(white**2) / 2.0 - xp.sum(xp.log(xp.diag(factor))) - len(y) * math.log(2.0 * math.pi) / 2.0


def posterior(kernel: Sum, t: Any, y: Any, at: Any, xp: Any) -> tuple[Any, Any]:
    """Return mean and standard deviation of observations at the times `at`, shape ``(m,)`` each, given the series."""
    # A new observation has noise of its own, also at the time of an old one.
    signal = Sum(tuple(term for term in kernel.terms if not isinstance(term, Noise)))
    across = signal(t[:, None] - at[None, :], xp)
    solved = xp.linalg.solve(kernel(t[:, None] - t[None, :], xp), across)
    variance = kernel(xp.zeros_like(at), xp) - xp.sum(across * solved, 0)
    return y @ solved, xp.sqrt(variance)
