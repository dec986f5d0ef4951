"""`value_and_grad` inside and around every transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, SINGLE, X, compare, grid

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


def _partial_gradient(x: float) -> list[float]:
    """Return the derivatives of 3 w ** 2 b where both are x, b included."""
    return [3 * x**3, 9 * x**2, 18 * x, 18.0, 0.0]


def _quarter(x: float) -> list[float]:
    """Return the derivatives of x ** 4 / 4."""
    return [x**4 / 4, x**3, 3 * x**2, 6 * x, 6.0]


@grid(
    "value_and_grad/inside-",
    (*SINGLE, *DERIVATIVE_PAIRS),
    rule="T9",
    native="{transforms} of grad",
)
def inside(h: Checked, transforms: str) -> None:
    """The gradient of a model with a frozen part is right inside {transforms}.

    Expect {transforms} of our gradient 3 w ** 2 b of w ** 3 b, with x = 2.5 at w and, frozen, at b, and None for b.
    """

    def f(x: Any) -> Any:
        gradient = adprotocol.grad(lambda m: m["w"] * m["w"] * m["w"] * m["b"], where="w", backend=h.name)
        result = gradient({"w": x, "b": x})
        h.assert_is(result["b"], None, "the gradient of the frozen part")
        return result["w"]

    compare(h, transforms, f, _partial_gradient)


@grid(
    "value_and_grad/of-",
    (*SINGLE, *DERIVATIVE_PAIRS),
    rule="T9",
    native="grad of {transforms}",
)
def around(h: Checked, transforms: str) -> None:
    """The gradient of a model is right around {transforms}.

    Expect our value and gradient of {transforms} of x ** 4 / 4 at 2.5, and None for an integer.
    """

    def f(x: Any) -> Any:
        return x * x * x * x * 0.25

    differentiated = adprotocol.value_and_grad(lambda m: h.nest(transforms, f)(m["x"]), backend=h.name)
    value, gradient = differentiated({"x": h.array(X), "n": 1})
    h.assert_equal(value, nesting.expected(transforms, _quarter)(X)[0], "the value")
    h.assert_gradients(gradient, {"x": nesting.expected(f"grad of {transforms}", _quarter)(X)[0], "n": None})
