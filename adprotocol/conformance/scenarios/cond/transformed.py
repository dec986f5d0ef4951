"""`cond` inside transformations: nested, closing over values, traced once, batched by rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_STALE = (
    "ReverseDiff, a tape that keeps the branch it was made with: https://github.com/tpapp/LogDensityProblems.jl/pull/85"
)
_NESTED = "jax-mps, wrong gradients of a nested cond: https://github.com/tillahoffmann/jax-mps/issues/195"
_CLOSURE = "JAX, branches that take no operands: https://github.com/jax-ml/jax/pull/3569"

scenario: Decorator = defaults("cond", rule="C6", transform="grad of {way}")


def piecewise(x: Any) -> Any:
    """Return x x x where x is positive, else 5 x."""
    return adprotocol.cond(x > 0.0, lambda x: x * x * x, lambda x: 5.0 * x, x)


def quarters(x: Any, y: Any) -> Any:
    """Return x y, 2 x, 3 y or 5, by the signs of x and y."""
    return adprotocol.cond(
        x > 0.0,
        lambda x, y: adprotocol.cond(y > 0.0, lambda x, y: x * y, lambda x, _: 2.0 * x, x, y),
        lambda x, y: adprotocol.cond(y > 0.0, lambda _, y: 3.0 * y, lambda x, _: 0.0 * x + 5.0, x, y),
        x,
        y,
    )


_QUARTERS = (
    ((2.0, 3.0), 6.0, 3.0, 2.0),
    ((2.0, -3.0), 4.0, 2.0, 0.0),
    ((-2.0, 3.0), 9.0, 0.0, 3.0),
    ((-2.0, -3.0), 5.0, 0.0, 0.0),
)


@scenario(source=_STALE)
def traced_on_one_branch(h: Checked, way: str) -> None:
    """A program traced on one branch has the right gradient on the other.

    Expect x ** 3 where x > 0, else 5 x, traced plain at 2: the gradients 12 at 2, 5 at -2 and 27 at 3, traced outside
    of the gradient or inside.
    """
    jitted = h.trace(way, piecewise)
    h.assert_equal(jitted(h.array(2.0)), 8.0, "the plain value")
    outside = h.trace(way, h.grad(piecewise))
    for point, value, slope in ((2.0, 8.0, 12.0), (-2.0, -10.0, 5.0), (3.0, 27.0, 27.0)):
        h.assert_value_and_grad(jitted, (h.array(point),), value, slope, f"at {point}")
        h.assert_equal(outside(h.array(point)), slope, f"the jitted gradient at {point}")


@scenario(transform="grad", source=_NESTED)
def nested_in_both_branches(h: Checked) -> None:
    """Both branches may branch again.

    Expect x y, 2 x, 3 y or 5 by the signs of x and y, at (2, 3), (2, -3), (-2, 3), (-2, -3).
    """
    for (a, b), value, in_x, in_y in _QUARTERS:
        x, y = h.array(a), h.array(b)
        h.assert_value_and_grad(quarters, (x, y), value, in_x, f"at {(a, b)}, in x")
        h.assert_value_and_grad(lambda y: quarters(x, y), (y,), value, in_y, f"at {(a, b)}, in y")  # noqa: B023


@scenario(source=_NESTED)
def nested(h: Checked, way: str) -> None:
    """Staged branches may branch again.

    Expect x y, 2 x, 3 y or 5 by the signs of x and y under {way}, at (2, 3), (2, -3), (-2, 3), (-2, -3).
    """
    jitted = h.trace(way, quarters)
    for (a, b), value, in_x, in_y in _QUARTERS:
        x, y = h.array(a), h.array(b)
        h.assert_value_and_grad(jitted, (x, y), value, in_x, f"at {(a, b)}, in x")
        h.assert_value_and_grad(lambda y: jitted(x, y), (y,), value, in_y, f"at {(a, b)}, in y")  # noqa: B023


@scenario(transform="grad", source=_CLOSURE)
def closes_over(h: Checked) -> None:
    """Branches may close over what is tracked and over what is not.

    Branches close over x and k = 5 and take no operands: x ** 2 * k and x + k have the gradients 30 and 1 at 3.
    """
    k = h.array(5.0)
    for truth, value, slope in ((True, 45.0, 30.0), (False, 8.0, 1.0)):
        for pred in (truth, h.array(truth)):
            h.assert_value_and_grad(
                lambda x: adprotocol.cond(pred, lambda: x * x * k, lambda: x + k),  # noqa: B023
                (h.array(3.0),),
                value,
                slope,
                f"{truth}",
            )


@scenario("closes-over", source=_CLOSURE)
def closes_over_traced(h: Checked, way: str) -> None:
    """Staged branches may close over what an outer gradient tracks.

    Branches under {way} close over a tracked x and k = 5: x y k where y > 0, else x + y; the gradients in x are 5 at y
    = 1 and 1 at y = -1.
    """
    k = h.array(5.0)

    def f(x: Any, y: Any) -> Any:
        return h.trace(way, lambda y: adprotocol.cond(y > 0.0, lambda: y * x * k, lambda: y + x))(y)

    h.assert_value_and_grad(f, (h.array(3.0), h.array(1.0)), 15.0, 5.0, "at y = 1")
    h.assert_value_and_grad(f, (h.array(3.0), h.array(-1.0)), 2.0, 1.0, "at y = -1")


@scenario(transform="grad of grad", source="JAX, grad of cond: https://github.com/jax-ml/jax/issues/2256")
def gradient_inside_a_branch(h: Checked) -> None:
    """A branch may compute a gradient, which is differentiated again.

    Expect a branch returns the gradient of x ** 3 where x > 0, else of 5 x: 27 with the gradient 18 at 3, 5 with the
    gradient 0 at -2.
    """

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, h.grad(lambda x: x * x * x), h.grad(lambda x: 5.0 * x), x)

    h.assert_value_and_grad(f, (h.array(3.0),), 27.0, 18.0, "at 3")
    h.assert_value_and_grad(f, (h.array(-2.0),), 5.0, 0.0, "at -2")


@scenario(
    transform="grad of scan",
    source="JAX, a wrong gradient of cond inside scan: https://github.com/jax-ml/jax/issues/5900",
)
def inside_scan(h: Checked) -> None:
    """Each step of a loop chooses for itself.

    Expect a carry that starts at 0, and is doubled where it is untracked: x is added, it is multiplied by x, and both
    again: x ** 3 + x ** 2 is 12 at 2, with the gradient 16.
    """

    def f(x: Any) -> Any:
        def step(c: Any, w: Any) -> Any:
            return adprotocol.cond(w > 0.0, lambda c: c * x, lambda c: c + x, h.scale(c, 1.0, 2.0)), w

        return h.scan(step, h.array(0.0), h.array([-1.0, 1.0, -1.0, 1.0]))[0]

    h.assert_value_and_grad(f, (h.array(2.0),), 12.0, 16.0)


@scenario(
    level=SHOULD,
    transform="grad of custom rule",
    source="JAX, cond around a custom rule: https://github.com/jax-ml/jax/issues/9374",
)
def custom_rule_in_a_branch(h: Checked) -> None:
    """A function with a custom derivative rule keeps it inside a branch.

    Expect r(x) where x > 0, else 5 x, with r = x ** 2, whose rule says 7: gradient 7 at 2, 5 at -2.
    """
    rule = h.custom_rule(lambda x: x * x, lambda x: 0.0 * x + 7.0)

    def f(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda x: rule(x), lambda x: 5.0 * x, x)  # noqa: PLW0108

    h.assert_value_and_grad(f, (h.array(2.0),), 4.0, 7.0, "at 2")
    h.assert_value_and_grad(f, (h.array(-2.0),), -10.0, 5.0, "at -2")
