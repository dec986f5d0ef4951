"""Arrays of many axes: the answer, the constant, the guard, the branch and the gradient do not depend on the rank."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios import ranks

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "within_gradient",
    rule="W1",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)


@scenario(transform="grad")
def ranks_under_grad(h: Checked) -> None:
    """A variable of any rank is tracked, and not where nobody differentiates it.

    Expect the gradient 3 in the first element of 3 x for x of one to four axes; 5 x plain.
    """
    for shape in ranks.SHAPES:
        x = ranks.filled(h, shape, 2.0)
        h.assert_equal(h.probe(x), ranks.nested(shape, 10.0), f"plain, shape {shape}")
        slope = h.grad(lambda x: ranks.first(h.probe(x), shape))(x)  # noqa: B023
        h.assert_equal(slope, ranks.corner(shape, 3.0), f"the gradient, shape {shape}")


@scenario(transform="jvp")
def ranks_under_jvp(h: Checked) -> None:
    """In forward mode a variable of any rank is tracked.

    Expect the tangent 3 of 3 x along ones, for x of one to four axes.
    """
    for shape in ranks.SHAPES:
        x, along = ranks.filled(h, shape, 2.0), ranks.filled(h, shape, 1.0)
        want = ranks.nested(shape, 6.0), ranks.nested(shape, 3.0)
        h.assert_value_and_tangent(h.probe, x, along, *want, f"shape {shape}")
