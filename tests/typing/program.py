"""A user's program: it passes mypy and pyright as it is, and runs.

`assert_type` states what each call is to the checkers; the functions of a library are written as a user writes them,
with no cast and no ignored error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, assert_type

import numpy as np
from numpy.typing import NDArray

import adprotocol
from adprotocol import (
    NonDifferentiable,
    combine,
    cond,
    grad,
    jacobian,
    jvp,
    non_differentiable,
    partition,
    tree_map,
    value_and_grad,
    vjp,
    where,
    within_gradient,
)
from adprotocol.typing import Answer

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Kernel:
    variance: float
    period: float | NonDifferentiable[float]


class Model(NamedTuple):
    kernel: Kernel
    offset: float


def dropout(x: Array, mask: Array, train: Answer) -> Array:
    return cond(train, lambda x, mask: x * mask, lambda x, _: x, x, mask)


def layer(x: Array, mask: Array) -> Array:
    if not within_gradient(x, mask):
        return x
    return dropout(x, mask, within_gradient(x) | within_gradient(mask))


def safe_sqrt(x: Array) -> Array:
    return where(x > 0, np.sqrt, lambda _: 0.0, x)


def softplus(x: Array) -> Array:
    return where(x < -30.0, lambda _: 0.0, lambda x: np.log1p(np.exp(x)), x)


def ignored(x: float, _scale: float = 1.0) -> None: ...


@non_differentiable
def scale(x: float, *, floor: float) -> float:
    return max(abs(x), floor)


def loss(model: Model, x: float, *, power: int = 2) -> float:
    return (model.kernel.variance * x + model.offset) ** power


def loss_and_size(model: Model, x: float) -> tuple[float, dict[str, int]]:
    return loss(model, x) / scale(x, floor=1.0), {"size": 1}


@value_and_grad
def decorated(x: float, y: float = 3.0) -> float:
    return x**2 * y


@dataclass
class Quadratic:
    a: float

    @grad
    def slope(self, x: float) -> float:
        return self.a * x**2


def untyped(params: Any, x: float) -> float:
    return float(params["w"]) if x < 0 else params["w"] * x


def descend(model: Model, gradient: Model) -> Model:
    kernel = replace(model.kernel, variance=model.kernel.variance - 0.1 * gradient.kernel.variance)
    return model._replace(kernel=kernel, offset=model.offset - 0.1 * gradient.offset)


Params = TypeVar("Params")


def fit(loss: Callable[[Params, Array], float], params: Params, x: Array, steps: int) -> Params:
    for _ in range(steps):
        value, gradient = value_and_grad(loss)(params, x)
        assert_type(value, float)
        assert_type(gradient, Params)
        assert_type(grad(loss)(params, x), Params)
        kept, rest = partition(params)
        new = tree_map(lambda leaf, slope: leaf - 0.1 * slope, kept, gradient)
        assert_type(new, Params)
        params = combine(new, rest)
    return params


def residual(model: Model, x: Array) -> float:
    total: float = ((model.kernel.variance * x + model.offset) ** 2).sum()
    return total


def main() -> None:
    fitted = fit(residual, Model(Kernel(2.0, NonDifferentiable(1.5)), 1.0), np.array([0.0, 1.0]), 300)
    assert_type(fitted, Model)
    assert abs(fitted.offset) < 1e-3
    model = Model(Kernel(2.0, NonDifferentiable(1.5)), 1.0)

    value, gradient = value_and_grad(loss)(model, 3.0, power=2)
    assert_type(value, float)
    assert_type(gradient, Model)
    assert descend(model, gradient).offset < model.offset
    assert_type(grad(loss)(model, 3.0), Model)
    assert_type(grad(loss, argnums=1)(model, 3.0), Any)
    assert_type(grad(loss, argnums=(0, 1))(model, 3.0), tuple[Any, ...])
    (value, aux), gradient = value_and_grad(loss_and_size, has_aux=True)(model, 3.0)
    assert_type(aux, dict[str, int])
    assert_type(grad(loss_and_size, has_aux=True, where="*.variance")(model, 3.0), tuple[Model, dict[str, int]])

    assert_type(decorated(2.0, y=4.0), tuple[float, float])
    assert_type(decorated.__name__, str)
    assert_type(grad(grad(lambda x: x**3))(2.0), Any)
    assert_type(grad(value_and_grad(scale), has_aux=True)(2.0, floor=1.0), tuple[float, float])
    assert_type(Quadratic(2.0).slope(3.0), Quadratic)
    value, (slopes, slope) = value_and_grad(untyped, argnums=(0, 1))({"w": 2.0}, 3.0)
    assert (value, slopes["w"], slope) == (6.0, 3.0, 2.0)

    # The class of the primals in, the same out; of the value in a tangent.
    product, pull = vjp(loss, model, 3.0)
    assert_type(product, float)
    assert_type(pull, Callable[[Any], tuple[Model, float]])
    assert_type(pull(1.0)[0].offset, float)
    _, pull_all, aux = vjp(loss_and_size, model, 3.0, has_aux=True)
    assert_type(aux, dict[str, int])
    assert len(pull_all(1.0)) == 2
    assert_type(jvp(loss, (model, 3.0), (None, 1.0)), tuple[float, float])
    assert_type(jvp(loss_and_size, (model, 3.0), (None, 1.0), has_aux=True), tuple[float, float, dict[str, int]])
    # A Jacobian has the structure of the value over that of the argument, which no type says.
    assert_type(jacobian(loss)(model, 3.0, power=2), Any)
    assert_type(jacobian(loss_and_size, argnums=1, has_aux=True)(model, 3.0), tuple[Any, dict[str, int]])

    params, rest = adprotocol.partition(model, where=lambda path, leaf: path.endswith("variance"))
    assert_type(adprotocol.combine(params, rest), Model)
    assert_type(adprotocol.trainable({"w": 1.0}), dict[str, float])
    adprotocol.register_trainable(Quadratic, ["a"])

    x: Array = np.ones(3)
    assert_type(within_gradient(x), Answer)
    assert_type(layer(x, x), Array)
    assert_type(where(x > 0, layer, lambda x, _: -x, x, x), Array)
    assert (safe_sqrt(np.array([4.0, -1.0])) == [2.0, 0.0]).all()
    assert softplus(np.array([-40.0, 0.0]))[0] == 0.0
    assert_type(cond(x.sum() > 0, lambda x: x, lambda x: -x, x), Array)
    assert_type(cond(model.offset > 0, loss, lambda model, x: model.offset, model, 3.0), float)
    assert_type(cond(bool(within_gradient(x)), ignored, lambda _: 0.0, 2.0), None | float)

    assert_type(NonDifferentiable(1.5).value, float)
    assert_type(non_differentiable(model), Model)
    assert_type(scale(2.0, floor=1.0), float)
    assert_type(adprotocol.explain(x, model), str)
    assert_type(adprotocol.is_concrete(x, model), bool)


if __name__ == "__main__":
    main()
