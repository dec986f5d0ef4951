"""Operands and results of many axes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios import ranks

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "cond",
    rule="C4",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)


@scenario(transform="grad")
def ranks_of_operands(h: Checked) -> None:
    """Branches take and return variables of any rank, and an unused one has zeros of its shape.

    Expect 3 x or x y for x = 2 and y = 4 of one to four axes: value and gradients of the first element in both.
    """
    for shape in ranks.SHAPES:
        x, y = ranks.filled(h, shape, 2.0), ranks.filled(h, shape, 4.0)
        for truth, value, in_x, in_y in ((True, 6.0, 3.0, 0.0), (False, 8.0, 4.0, 2.0)):
            for pred in (truth, h.array(truth)):

                def f(x: Any, y: Any, pred: Any = pred) -> Any:
                    return adprotocol.cond(pred, lambda x, _: 3.0 * x, lambda x, y: x * y, x, y)

                what = f"{truth}, shape {shape}"
                h.assert_equal(f(x, y), ranks.nested(shape, value), f"the value, {what}")
                for slope, want in (
                    (h.grad(lambda x: ranks.first(f(x, y), shape))(x), in_x),  # noqa: B023
                    (h.grad(lambda y: ranks.first(f(x, y), shape))(y), in_y),  # noqa: B023
                ):
                    h.assert_equal(slope, ranks.corner(shape, want), f"the gradient, {what}")


@scenario(rule="C3", transform="vmap")
def ranks_of_rows(h: Checked) -> None:
    """Rows of any rank choose their branches.

    Expect rows of one to four axes, 3 x where the first element is above 0, else 5 x, at 2 and -2: 6 and -10.
    """
    for shape in ranks.SHAPES:
        rows = h.array([ranks.nested(shape, 2.0), ranks.nested(shape, -2.0)])

        def row(x: Any, shape: tuple[int, ...] = shape) -> Any:
            return adprotocol.cond(ranks.first(x, shape) > 0.0, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        want = [ranks.nested(shape, 6.0), ranks.nested(shape, -10.0)]
        h.assert_equal(h.vmap(row)(rows), want, f"rows of shape {shape}")


@scenario(transform="jvp")
def ranks_of_operands_in_forward_mode(h: Checked) -> None:
    """In forward mode, too, branches take and return variables of any rank.

    Expect 3 x, or x x, for x = 2 of one to four axes along ones: 6 with the tangent 3, 4 with the tangent 4.
    """
    for shape in ranks.SHAPES:
        x, along = ranks.filled(h, shape, 2.0), ranks.filled(h, shape, 1.0)
        for truth, value, slope in ((True, 6.0, 3.0), (False, 4.0, 4.0)):
            h.assert_value_and_tangent(
                lambda x: adprotocol.cond(truth, lambda x: 3.0 * x, lambda x: x * x, x),  # noqa: B023
                x,
                along,
                ranks.nested(shape, value),
                ranks.nested(shape, slope),
                f"{truth}, shape {shape}",
            )
