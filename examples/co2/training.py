"""The training: Adam on the logarithms of the parameters, alike on every framework.

A gradient comes in the structure of the model, with None where none is taken,
so an update maps over it; `combine` puts back what is frozen. The logarithms
keep variances and lengthscales positive: ``dL/dlog(p)`` is ``p * dL/dp``, and a
step in ``log(p)`` is a factor.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import kernels
from adprotocol import combine, trainable, value_and_grad

if TYPE_CHECKING:
    from collections.abc import Callable

    from series import Series

STEPS = 300
RATE = 0.2  # of the first step, on the logarithms; it falls to zero as half a cosine
DECAY = (0.9, 0.99)  # Adam's, of the mean and of the mean square
EPSILON = 1e-8


class State(NamedTuple):
    """The kernel in training, and Adam's two running means, None where the kernel has no gradient."""

    kernel: Any
    mean: Any
    square: Any


@dataclass(frozen=True)
class Fit:
    """Hold what a training gave.

    Args:
        kernel: the trained kernel, its parameters as Python floats.
        gradient: of the log marginal likelihood at the end, in the structure of the kernel, None where none was taken.
        values: the log marginal likelihood, at the start and at the end.
        norms: the norm of the gradient with respect to the logarithms, at the start and at the end.
    """

    kernel: kernels.Sum
    gradient: Any
    values: tuple[float, float]
    norms: tuple[float, float]


def train(
    series: Series,
    xp: Any,
    array: Callable[[Any], Any],
    compiled: Callable[[Any], Any] = lambda function: function,
) -> Fit:
    """Train `kernels.START` on the series.

    Args:
        series: the observations.
        xp: the array namespace.
        array: makes a float64 array of a number or a list.
        compiled: the framework's compiler.
    """
    kernel = combine(mapped(array, trainable(kernels.START)), kernels.START)
    zero = mapped(xp.zeros_like, trainable(kernel))
    state = State(kernel, zero, zero)
    called = compiled(functools.partial(step, t=array(series.t), y=array(series.y), xp=xp))
    seen = []
    for i in range(STEPS + 1):
        following, value, gradient = called(state, rate(i))
        seen.append((float(value), norm(gradient, state.kernel)))
        # The last call is for value and gradient alone.
        if i < STEPS:
            state = following
    values, norms = zip(seen[0], seen[-1], strict=True)
    return Fit(mapped(float, state.kernel), mapped(float, gradient), values, norms)


def step(state: State, rate: Any, t: Any, y: Any, xp: Any) -> tuple[State, Any, Any]:
    """Return the state after one step of Adam, with value and gradient before it."""

    def likelihood(kernel: Any) -> Any:
        return kernels.log_marginal_likelihood(kernel, t, y, xp)

    value, gradient = value_and_grad(likelihood)(state.kernel)
    slope = mapped(lambda g, p: g * p, gradient, state.kernel)
    mean = mapped(lambda m, s: DECAY[0] * m + (1.0 - DECAY[0]) * s, state.mean, slope)
    square = mapped(lambda v, s: DECAY[1] * v + (1.0 - DECAY[1]) * s**2, state.square, slope)
    moved = mapped(lambda p, m, v: p * xp.exp(rate * m / (xp.sqrt(v) + EPSILON)), trainable(state.kernel), mean, square)
    return State(combine(moved, state.kernel), mean, square), value, gradient


def rate(i: int) -> float:
    """Return the rate of step `i`, from 0, with the correction for means that start at zero."""
    fallen = RATE * (1.0 + math.cos(math.pi * i / STEPS)) / 2.0
    return fallen * math.sqrt(1.0 - DECAY[1] ** (i + 1)) / (1.0 - DECAY[0] ** (i + 1))


def norm(gradient: Any, kernel: Any) -> float:
    """Return the norm of the gradient with respect to the logarithms of the parameters."""
    slopes = named(mapped(lambda g, p: float(g) * float(p), gradient, kernel))
    return math.hypot(*(slope for slope in slopes.values() if slope is not None))


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Return the structure of dataclasses and tuples with `function` applied to the leaves, but for None in `tree`."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        return tuple(mapped(function, *column) for column in zip(tree, *others, strict=True))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        parts = {name: mapped(function, *(getattr(each, name) for each in (tree, *others))) for name in names}
        return dataclasses.replace(tree, **parts)
    return function(tree, *others)


def named(tree: Any) -> dict[str, Any]:
    """Return the leaves by their dotted paths, as `where` knows them."""
    if isinstance(tree, tuple):
        parts = {str(i): part for i, part in enumerate(tree)}
    elif dataclasses.is_dataclass(tree):
        parts = {field.name: getattr(tree, field.name) for field in dataclasses.fields(tree)}
    else:
        return {"": tree}
    return {f"{name}.{path}".rstrip("."): leaf for name, part in parts.items() for path, leaf in named(part).items()}
