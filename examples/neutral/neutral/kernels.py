"""Kernels that compose, and a kernel regression."""

import functools
import math
import operator
from dataclasses import dataclass
from typing import Any

from adprotocol import register_structure


class _Kernel:
    def __add__(self, other: Any) -> "Sum":
        return Sum((self, other))

    def __mul__(self, other: Any) -> "Product":
        return Product((self, other))


@register_structure
@dataclass(frozen=True)
class SquaredExponential(_Kernel):
    """``exp(-d² / (2 lengthscale²))``."""

    lengthscale: Any

    def __call__(self, squared: Any) -> Any:
        """Return the kernel of squared distances."""
        return math.e ** (-0.5 * squared / self.lengthscale**2)


@register_structure(static=("alpha",))
@dataclass(frozen=True)
class RationalQuadratic(_Kernel):
    """``(1 + d² / (2 alpha lengthscale²)) ** -alpha``; `alpha` is part of the structure."""

    lengthscale: Any
    alpha: float = 1.0

    def __call__(self, squared: Any) -> Any:
        """Return the kernel of squared distances."""
        return (1.0 + 0.5 * squared / self.alpha / self.lengthscale**2) ** (-self.alpha)


@register_structure
@dataclass(frozen=True)
class Scaled(_Kernel):
    """A kernel times a variance."""

    variance: Any
    kernel: Any

    def __call__(self, squared: Any) -> Any:
        """Return the kernel of squared distances."""
        return self.variance * self.kernel(squared)


@register_structure
@dataclass(frozen=True)
class Sum(_Kernel):
    """The sum of kernels."""

    terms: tuple[Any, ...]

    def __call__(self, squared: Any) -> Any:
        """Return the kernel of squared distances."""
        return functools.reduce(operator.add, [term(squared) for term in self.terms])


@register_structure
@dataclass(frozen=True)
class Product(_Kernel):
    """The product of kernels."""

    factors: tuple[Any, ...]

    def __call__(self, squared: Any) -> Any:
        """Return the kernel of squared distances."""
        return functools.reduce(operator.mul, [factor(squared) for factor in self.factors])


def smooth(kernel: Any, x: Any, points: Any, values: Any) -> Any:
    """Return the average of `values` at `points`, weighted by a kernel of the distance to `x` (Nadaraya and Watson).

    Args:
        kernel: from squared distances to weights.
        x: where to predict, of shape ``(n,)``.
        points: of shape ``(m,)``.
        values: of shape ``(m,)``.
    """
    weights = kernel((x[:, None] - points[None, :]) ** 2)
    return weights @ values / weights.sum(1)
