"""Programs of several results, of which some are constants: each is what it is by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.orders import in_both_orders

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults("within_gradient")


def squares(x: Any, constant: int) -> tuple[Any, Any]:
    """Return x x twice, at one of the places as a constant."""
    made = x * x, x * x
    stopped = adprotocol.non_differentiable(made[constant])
    return (stopped, made[1]) if constant == 0 else (made[0], stopped)


def asked_product(h: Checked, first: Any, second: Any) -> Any:
    """Return the product of both, 3 times or 5 times the first and 7 times or 11 times the second."""
    return h.probe(first) * h.scale(second, 7.0, 11.0)


# By the place of the constant. Both have the value x x; of 5 c x x 7 or 3 x x 11 c the slope is half of that of x^4.
FACTORS = (35.0, 33.0)


@scenario(
    rule="W9",
    transform="grad of {way}",
    native="grad of {way} of {way}",
    source="JAX: outputs known and unknown to partial evaluation: https://docs.jax.dev/en/latest/autodidax.html",
)
def after_several_results(h: Checked, way: str) -> None:
    """Of two results of a compiled function the constant is not tracked and the other is, in both first orders.

    Expect a compiled function returns x ** 2 twice, once as a constant: in a gradient the product of both at 2 is 5 * 7
    * 16 = 560 or 3 * 11 * 16 = 528, by the place of the constant; 5 * 11 * 16 = 880 plain.
    """
    x = h.array(2.0)
    for constant, factor in enumerate(FACTORS):
        # One that asks inside, too: x in a gradient, else 2 x; and one that does not.
        inner = iter([(lambda x: h.scale(x, 1.0, 2.0), 880.0 * 16.0), (lambda x: x, 880.0)])
        want = 16.0 * factor

        def make(constant: int = constant, inner: Any = inner) -> tuple[Any, Any, float]:
            inside, value = next(inner)
            pair = h.trace(way, lambda x: squares(inside(x), constant))
            return pair, h.trace(way, lambda x: asked_product(h, *pair(x))), value

        def plain(made: tuple[Any, Any, float]) -> None:
            _, outer, value = made
            h.assert_equal(outer(x), value, "the plain call")

        def differentiated(made: tuple[Any, Any, float], want: float = want) -> None:
            pair, outer, _ = made
            h.assert_value_and_grad(outer, (x,), want, want)
            h.assert_value_and_grad(lambda x: asked_product(h, *pair(x)), (x,), want, want, "asked outside")
            passed = h.trace(way, lambda x: pair(x))  # noqa: PLW0108  (a compiler may take a compiled function as it is)
            h.assert_value_and_grad(lambda x: asked_product(h, *passed(x)), (x,), want, want, "passed on by another")

        in_both_orders(make, plain, differentiated)
