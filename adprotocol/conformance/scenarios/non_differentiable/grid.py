"""`non_differentiable` under every transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import adprotocol
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, LOOPS, SINGLE, compare, grid

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


def with_constant(x: float) -> list[float]:
    """Return the derivatives of c x x where c is x."""
    return [x**3, 2 * x**2, 2 * x, 0.0, 0.0]


def _estimated(x: float) -> list[float]:
    """Return the value of x ** 3 with the derivatives of x."""
    return [x**3, 1.0, 0.0, 0.0, 0.0]


@grid(
    "non_differentiable/",
    (*SINGLE, *DERIVATIVE_PAIRS, *LOOPS),
    rule="N1",
)
def constant(h: Checked, transforms: str) -> None:
    """A constant stays one under {transforms}.

    Expect {transforms} of c x x at 2.5, with c the constant of x.
    """
    compare(h, transforms, lambda x: adprotocol.non_differentiable(x) * x * x, with_constant)


@grid(
    "non_differentiable/straight-through-",
    ("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "grad of grad", "compile of grad"),
    rule="N1",
)
def straight_through(h: Checked, transforms: str) -> None:
    """The straight-through estimator has the derivative of its input under {transforms}.

    Expect {transforms} of x + constant(x ** 3 - x) at 2.5, which has the value x ** 3 and the derivative of x.
    """
    compare(h, transforms, lambda x: x + adprotocol.non_differentiable(x * x * x - x), _estimated)
