"""Constants of many axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios import ranks

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "non_differentiable",
    rule="N1",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)


@scenario(transform="grad")
def ranks_under_grad(h: Checked) -> None:
    """The constant of a variable of any rank has its value and shape, and no derivative.

    Expect c x with c the constant of x, for x of one to four axes: the gradient 2 in the first element.
    """
    for shape in ranks.SHAPES:
        x = ranks.filled(h, shape, 2.0)
        h.assert_equal(adprotocol.non_differentiable(x), ranks.nested(shape, 2.0), f"plain, shape {shape}")

        def f(x: Any, shape: tuple[int, ...] = shape) -> Any:
            return ranks.first(adprotocol.non_differentiable(x) * x, shape)

        h.assert_equal(h.grad(f)(x), ranks.corner(shape, 2.0), f"the gradient, shape {shape}")


@scenario(transform="jvp")
def ranks_under_jvp(h: Checked) -> None:
    """In forward mode, too, the constant of a variable of any rank has no derivative.

    Expect c x with c the constant of x, for x of one to four axes: 4 with the tangent 2 along ones.
    """
    for shape in ranks.SHAPES:
        x, along = ranks.filled(h, shape, 2.0), ranks.filled(h, shape, 1.0)
        want = ranks.nested(shape, 4.0), ranks.nested(shape, 2.0)
        h.assert_value_and_tangent(lambda x: adprotocol.non_differentiable(x) * x, x, along, *want, f"shape {shape}")
