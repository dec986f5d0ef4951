"""Rules under every transformation: one function has the vjp alone, one the jvp alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adprotocol.conformance import nesting
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, SINGLE, compare, grid
from adprotocol.conformance.scenarios.rules import ruled, square, vjp_of_cube

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_NESTINGS = (*SINGLE, *DERIVATIVE_PAIRS)
_TRACED_OR_BATCHED = tuple(name for name in _NESTINGS if set(nesting.parse(name)) - set(nesting.DERIVATIVES))


def _sum(x: float) -> list[float]:
    """Return the derivatives of twice x ** 2, by the rules those of x ** 3 and of 5 / 3 of it."""
    return [2 * x**2, 8 * x**2, 16 * x, 16.0, 0.0]


def in_each_mode(h: Checked, transforms: str) -> None:
    """A vjp and a jvp, the only rules of their functions, serve both modes under {transforms}.

    Expect {transforms} of twice x ** 2 at 2.5, where the rules say 3 x ** 2 and 5 x ** 2.
    """
    by_vjp = ruled(h, square, vjp_of_cube)
    by_jvp = ruled(h, square, jvp=lambda tangents, _, x: 5.0 * tangents[0] * x * x)
    compare(h, transforms, lambda x: by_vjp(x) + by_jvp(x), _sum)


grid("custom_derivative/", _TRACED_OR_BATCHED, rule="D14")(in_each_mode)
grid("custom_derivative/", sorted(set(_NESTINGS) - set(_TRACED_OR_BATCHED)), rule="D4")(in_each_mode)
