"""The models of which parts are frozen, each written once for all array namespaces.

Parameters are a dict of groups. The groups at its beginning are frozen first;
the last one, a cheap scalar, always trains, for an argument with nothing to
train is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from frameworks import Framework

LAYERS = 12
WIDTH = 256
BATCH = 256
POINTS = 1000

Tree = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """Parameters and data as NumPy arrays, and the function of both that is differentiated.

    ``frozen`` has for each share, in per cent of the leaves other than the last
    scalar, the names of the groups that are frozen.
    """

    name: str
    parameters: Tree
    data: Tree
    loss: Callable[..., Any]
    frozen: dict[int, tuple[str, ...]]

    def trained(self, share: int) -> tuple[str, ...]:
        """Return the names of the groups that train."""
        return tuple(name for name in self.parameters if name not in self.frozen[share])

    def patterns(self, share: int) -> tuple[str, ...]:
        """Return the patterns that select them."""
        return tuple(f"{name}.*" if isinstance(self.parameters[name], dict) else name for name in self.trained(share))


def mlp() -> Model:
    """Return a multilayer perceptron, frozen from the input upwards, as in fine-tuning."""
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    layers = {
        f"layer{i}": {"w": normal(WIDTH, WIDTH) / np.float32(math.sqrt(WIDTH)), "b": 0.1 * normal(WIDTH)}
        for i in range(LAYERS)
    }
    names = tuple(layers)
    return Model(
        name=f"MLP, {LAYERS} layers of {WIDTH}",
        parameters={**layers, "scale": np.float32(1.5)},
        data={"x": normal(BATCH, WIDTH), "y": normal(BATCH, WIDTH)},
        loss=_mlp_loss,
        frozen={0: (), 50: names[:6], 90: names[:11], 100: names},
    )


def _mlp_loss(parameters: Mapping[str, Any], data: Mapping[str, Any], framework: Framework) -> Any:
    xp = framework.xp
    hidden = data["x"]
    for i in range(LAYERS):
        layer = parameters[f"layer{i}"]
        hidden = xp.tanh(hidden @ layer["w"] + layer["b"])
    error = parameters["scale"] * hidden - data["y"]
    # Not mean(error**2): of both autograd gives the gradient in double precision.
    return xp.sum(error * error) / (BATCH * WIDTH)


def gp() -> Model:
    """Return a Gaussian process: a trend, a season that drifts, a short scale, noise, and a mean that is the last."""
    rng = np.random.default_rng(0)
    t = np.sort(rng.uniform(0.0, 20.0, POINTS))
    y = 0.3 * t + np.sin(2.0 * math.pi * t) + 0.3 * rng.normal(size=POINTS)
    kernels = {
        "trend": {"variance": 9.0, "lengthscale": 8.0},
        "season": {"variance": 1.2, "lengthscale": 1.1, "period": 1.0},
        "drift": {"variance": 1.0, "lengthscale": 15.0},
        "short": {"variance": 0.2, "lengthscale": 0.7},
    }
    arrays = {name: {field: np.asarray(value) for field, value in kernel.items()} for name, kernel in kernels.items()}
    return Model(
        name=f"GP, {POINTS:,} points",
        parameters={**arrays, "noise": np.asarray(0.1), "mean": np.asarray(2.5)},
        data={"t": t, "y": y, "eye": np.eye(POINTS)},
        loss=_gp_loss,
        frozen={0: (), 50: ("trend", "season"), 90: tuple(kernels), 100: (*kernels, "noise")},
    )


def _gp_loss(parameters: Mapping[str, Any], data: Mapping[str, Any], framework: Framework) -> Any:
    """Return the negative log marginal likelihood."""
    xp = framework.xp
    apart = data["t"][:, None] - data["t"][None, :]
    square = apart**2

    def gaussian(kernel: Mapping[str, Any]) -> Any:
        return kernel["variance"] * xp.exp(-0.5 * square / kernel["lengthscale"] ** 2)

    season = parameters["season"]
    sine = xp.sin(math.pi * apart / season["period"]) / season["lengthscale"]
    periodic = season["variance"] * xp.exp(-2.0 * sine**2)
    covariance = gaussian(parameters["trend"]) + periodic * gaussian(parameters["drift"])
    covariance = covariance + gaussian(parameters["short"]) + parameters["noise"] * data["eye"]
    factor = xp.linalg.cholesky(covariance)
    white = framework.solve_lower(factor, (data["y"] - parameters["mean"])[:, None])
    return xp.sum(white**2) / 2.0 + xp.sum(xp.log(xp.diag(factor)))
