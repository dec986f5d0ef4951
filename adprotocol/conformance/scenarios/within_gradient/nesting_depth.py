"""Calls in calls, branches in calls, branches in branches: what is one level further down counts as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.within_gradient.call_styles import SQUARES, about_squares

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

scenario = defaults(
    "within_gradient",
    rule="W5",
    source="TensorFlow: a function calls another: https://www.tensorflow.org/guide/function",
)


@scenario(
    transform="grad of {way}",
    native="grad of {way} of {way} of {way}",
    expects=f"{SQUARES}; squared in a compiled function that a second one calls, which the one that asks calls",
)
def after_a_call_in_a_call(h: Checked, way: str) -> None:
    """The result of a compiled function that calls another is tracked as its argument is, in both first orders."""

    def make() -> Any:
        square = h.trace(way, lambda x: x * x)
        return h.trace(way, lambda x: 1.0 * square(x))

    about_squares(h, way, make)


@scenario(
    transform="grad of {way}",
    native="grad of {way} of {way}",
    expects=f"{SQUARES}; squared in a branch of a compiled function that the one that asks calls",
)
def after_a_branch_in_a_call(h: Checked, way: str) -> None:
    """What comes out of a branch in a called function is tracked as its operand is, in both first orders."""
    about_squares(
        h, way, lambda: h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda x: x * x, lambda x: -1.0 * x, x))
    )
