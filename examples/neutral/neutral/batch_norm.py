"""Batch normalisation: statistics of the batch in training, running ones otherwise."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from adprotocol import cond, non_differentiable, register_structure


class Statistics(NamedTuple):
    """The running mean and variance of each feature, arrays of shape ``(features,)``."""

    mean: Any
    variance: Any


@register_structure(static=("momentum",))
@dataclass(frozen=True)
class BatchNorm:
    """Normalise each feature of a batch; `scale` and `shift` have the shape ``(features,)``."""

    scale: Any
    shift: Any
    momentum: float = 0.1

    __trainable__ = ("scale", "shift")

    def __call__(self, x: Any, statistics: Statistics, training: Any) -> tuple[Any, Statistics]:
        """Return the normalised batch, of shape ``(batch, features)``, and the next running statistics."""

        def batch(x: Any, running: Statistics) -> tuple[Statistics, Statistics]:
            mean = x.mean(0)
            used = Statistics(mean, ((x - mean) ** 2).mean(0))
            m = self.momentum
            return used, Statistics(*((1.0 - m) * old + m * new for old, new in zip(running, used, strict=True)))

        def running(_: Any, running: Statistics) -> tuple[Statistics, Statistics]:
            return Statistics(*(value * 1.0 for value in running)), Statistics(*(value * 1.0 for value in running))

        used, after = cond(training, batch, running, x, statistics)
        y = (x - used.mean) / (used.variance + 1e-5) ** 0.5
        return y * self.scale + self.shift, non_differentiable(after)
