"""Each hook under a nesting of transformations, by one function each; `grid` enters them.

The functions here are from a scalar to a scalar, so that transformations nest,
and their derivatives are known in closed form. What a row of the grid expects
follows by the chain rule (`adprotocol.conformance.nesting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

# Not 2, where x ** 2 and 2 x, and 3 x ** 2 and 6 x, are one number.
X = 2.5
MESSAGE = "nobody may differentiate this"
# Between x and 2 x, so that the rows of a batch take different branches.
BREAK = 3.0


def _compare(h: Checked, transforms: str, fun: Callable[[Any], Any], table: nesting.Table, at: float = X) -> None:
    """Compare what comes out at a point, and the value that comes along with the outermost derivative."""
    x = h.array(at)
    inner = nesting.value_before(transforms)
    if inner is not None and h.has("value_and_grad") and transforms.startswith("grad") and "grad" not in h.variant:
        value, _ = h.harness.value_and_grad(h.nest(inner, fun))(x)
        h.equal(value, nesting.expected(inner, table)(at)[0], "the value that comes with the gradient")
    if inner is not None and transforms.startswith("jvp"):
        value, _ = h.jvp(h.nest(inner, fun), x, h.array(1.0))
        h.equal(value, nesting.expected(inner, table)(at)[0], "the value that comes with the tangent")
    h.equal(h.nest(transforms, fun)(x), nesting.expected(transforms, table)(at)[0])


def answers(h: Checked, transforms: str) -> None:
    """Branch on the query, and compare."""

    def f(x: Any) -> Any:
        return adprotocol.cond(h.asks(x), lambda x: x * x * x, lambda x: 5.0 * x * x, x)

    _compare(h, transforms, f, tracked if nesting.differentiates(transforms) else plain)


def tracked(x: float) -> list[float]:
    """Return the derivatives of x ** 3."""
    return [x**3, 3 * x**2, 6 * x, 6.0, 0.0]


def plain(x: float) -> list[float]:
    """Return the value of 5 x ** 2, which nobody differentiates."""
    return [5 * x**2]


def constant(h: Checked, transforms: str) -> None:
    """Compare c x x with c the constant of x: c is in the value, and in no derivative."""
    _compare(h, transforms, lambda x: adprotocol.non_differentiable(x) * x * x, with_constant)


def with_constant(x: float) -> list[float]:
    """Return the derivatives of c x x where c is x."""
    return [x**3, 2 * x**2, 2 * x, 0.0, 0.0]


def guarded(value: Any) -> Any:
    """Return a value that nobody may differentiate."""
    return adprotocol.prevent_gradient(value, MESSAGE)


def prevented(h: Checked, transforms: str) -> None:
    """Guard a constant, which passes, and x, which passes if nobody differentiates it."""
    if not nesting.differentiates(transforms):
        _compare(h, transforms, lambda x: guarded(x) * x * x, with_constant)
        return
    _compare(h, transforms, lambda x: guarded(adprotocol.non_differentiable(x)) * x * x, with_constant)
    # A compiler that runs Python may show an error that is raised meanwhile as one of its own, with the text.
    traced = {"jit", "compile"} & {*nesting.parse(transforms)}
    expected = (Exception,) if traced else (GradientPreventedError,)
    with h.raises(*expected, words=[MESSAGE]):
        h.nest(transforms, lambda x: guarded(x) * x * x)(h.array(X))


def straight_through(h: Checked, transforms: str) -> None:
    """Compare x + constant(x x x - x)."""
    _compare(h, transforms, lambda x: x + adprotocol.non_differentiable(x * x * x - x), estimated)


def estimated(x: float) -> list[float]:
    """Return the value of x ** 3 with the derivatives of x."""
    return [x**3, 1.0, 0.0, 0.0, 0.0]


def branches(h: Checked, transforms: str) -> None:
    """Compare on both sides of a predicate; the second branch is 0 / 0 where the first is taken in a batch."""

    def f(x: Any) -> Any:
        return adprotocol.cond(x > BREAK, lambda x: x * x * x, lambda x: x * x + (0.0 * x) / (x - 2.0 * X), x)

    for x in (X, 2.0 * X):
        _compare(h, transforms, f, chosen, at=x)


def chosen(x: float) -> list[float]:
    """Return the derivatives of x ** 3 above 3, else of x ** 2."""
    return [x**3, 3 * x**2, 6 * x, 6.0, 0.0] if x > BREAK else [x**2, 2 * x, 2.0, 0.0, 0.0]


def model(h: Checked, transforms: str) -> None:
    """Compare the gradient of w ** 3 b in w, of a model that holds x at w and, frozen, at b."""

    def f(x: Any) -> Any:
        gradient = adprotocol.grad(lambda m: m["w"] * m["w"] * m["w"] * m["b"], where="w", backend=h.name)
        result = gradient({"w": x, "b": x})
        h.same(result["b"], None, "the gradient of the frozen part")
        return result["w"]

    _compare(h, transforms, f, partial_gradient)


def partial_gradient(x: float) -> list[float]:
    """Return the derivatives of 3 w ** 2 b where both are x, b included."""
    return [3 * x**3, 9 * x**2, 18 * x, 18.0, 0.0]


def around(h: Checked, transforms: str) -> None:
    """Compare our gradient of the transformed x ** 4 / 4, with respect to the one leaf of a model."""

    def f(x: Any) -> Any:
        return x * x * x * x * 0.25

    differentiated = adprotocol.value_and_grad(lambda m: h.nest(transforms, f)(m["x"]), backend=h.name)
    value, gradient = differentiated({"x": h.array(X), "n": 1})
    h.equal(value, nesting.expected(transforms, quarter)(X)[0], "the value")
    h.gradients(gradient, {"x": nesting.expected(f"grad of {transforms}", quarter)(X)[0], "n": None})


def quarter(x: float) -> list[float]:
    """Return the derivatives of x ** 4 / 4."""
    return [x**4 / 4, x**3, 3 * x**2, 6 * x, 6.0]
