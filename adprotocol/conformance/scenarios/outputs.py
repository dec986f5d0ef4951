"""Programs and branches of several results, of which some are constants: each is what it is by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenarios.closing_over import orders
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_RESULTS = "JAX: outputs known and unknown to partial evaluation: https://docs.jax.dev/en/latest/autodidax.html"
_STOPPED = "TensorFlow: stop_gradient: https://www.tensorflow.org/api_docs/python/tf/stop_gradient"


def _pair(x: Any, constant: int) -> tuple[Any, Any]:
    """Return x x twice, at one of the places as a constant."""
    made = x * x, x * x
    stopped = adprotocol.non_differentiable(made[constant])
    return (stopped, made[1]) if constant == 0 else (made[0], stopped)


def _asked(h: Checked, first: Any, second: Any) -> Any:
    """Return the product of both, 3 times or 5 times the first and 7 times or 11 times the second."""
    return h.scaled(first, 3.0, 5.0) * h.scaled(second, 7.0, 11.0)


# By the place of the constant. Both have the value x x; of 5 c x x 7 or 3 x x 11 c the slope is half of that of x^4.
_FACTORS = (35.0, 33.0)


@staged(
    "within_gradient/after-several-results",
    rule="W9",
    transform="grad of {way}",
    native="grad of {way} of {way}",
    expects="a compiled function returns x x twice, one of them constant; k v l w of both with k = 3, 5, l = 7, 11, "
    "asked outside and in another one, at 2: 560 or 528, the gradient too; 880 plain",
    source=_RESULTS,
)
def after_several_results(h: Checked, way: str) -> None:
    """Of two results of a compiled function the constant is not tracked and the other is, in both first orders."""
    x = h.array(2.0)
    for constant, factor in enumerate(_FACTORS):
        for first in (0, 1):
            # One of them asks inside, too: x in a gradient, else 2 x.
            inside, plainly = (h.scaled, 880.0 * 16.0) if first == 0 else (lambda x, *_: x, 880.0)

            def made(x: Any, constant: int = constant, inside: Any = inside) -> tuple[Any, Any]:
                return _pair(inside(x, 1.0, 2.0), constant)

            pair = trace(h, way, made)
            outer = trace(h, way, lambda x, pair=pair: _asked(h, *pair(x)))

            def plain(outer: Any = outer, want: float = plainly) -> None:
                h.equal(outer(x), want, "the plain call")

            def differentiated(outer: Any = outer, pair: Any = pair, want: float = 16.0 * factor) -> None:
                h.value_and_gradient(outer, (x,), want, want)
                h.value_and_gradient(lambda x: _asked(h, *pair(x)), (x,), want, want, "asked outside")

            for call in orders(plain, differentiated)[first]:
                call()


@staged(
    "non_differentiable/beside-a-result",
    rule="N1",
    transform="grad of {way}",
    expects="a compiled function returns x x twice, one of them constant; at 2 the gradient of that is 0, of the other "
    "4, and of their product c x x 16",
    source=_STOPPED,
)
def beside_a_result(h: Checked, way: str) -> None:
    """A constant that a compiled function returns leaves the derivative of its other result alone."""
    x = h.array(2.0)
    for constant in (0, 1):
        pair = trace(h, way, lambda x, constant=constant: _pair(x, constant))
        for _ in range(2):
            h.value_and_gradient(lambda x: pair(x)[0] * pair(x)[1], (x,), 16.0, 16.0, "of the product")  # noqa: B023
            h.value_and_gradient(lambda x: pair(x)[1 - constant] * 1.0, (x,), 4.0, 4.0, "of the variable")  # noqa: B023
            h.value_and_gradient(lambda x: pair(x)[constant] + 0.0 * x, (x,), 4.0, 0.0, "of the constant")  # noqa: B023


@staged(
    "cond/constant-beside-a-result",
    rule="C5",
    transform="grad of {way}",
    native="grad of {way}",
    expects="both branches return x x twice, at one place constant; k v l w of both with k = 3 or 5, l = 7 or 11, at 2 "
    "and -2: 560 or 528, the gradients these and their negatives; 880 plain",
    source=_RESULTS,
)
def constant_beside_a_result(h: Checked, way: str) -> None:
    """Of two results of a staged cond the constant is not tracked and the other is, in both first orders."""
    for constant, factor in enumerate(_FACTORS):

        def function(x: Any, constant: int = constant) -> Any:
            made = adprotocol.cond(x > 0.0, lambda x: _pair(x, constant), lambda x: _pair(-1.0 * x, constant), x)
            return _asked(h, *made)

        for first in (0, 1):
            traced = trace(h, way, function)

            def plain(traced: Any = traced) -> None:
                for point in (2.0, -2.0):
                    h.equal(traced(h.array(point)), 880.0, "the plain call")

            def differentiated(traced: Any = traced, want: float = 16.0 * factor) -> None:
                for point, sign in ((2.0, 1.0), (-2.0, -1.0)):
                    h.value_and_gradient(traced, (h.array(point),), want, sign * want, f"at {point}")

            for call in orders(plain, differentiated)[first]:
                call()
