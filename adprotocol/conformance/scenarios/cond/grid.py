"""`cond` under every transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, LOOPS, SINGLE, X, compare, grid

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

# Between x and 2 x, so that the rows of a batch take different branches.
_BREAK = 3.0


def _chosen(x: float) -> list[float]:
    """Return the derivatives of x ** 3 above 3, else of x ** 2."""
    return [x**3, 3 * x**2, 6 * x, 6.0, 0.0] if x > _BREAK else [x**2, 2 * x, 2.0, 0.0, 0.0]


@grid("cond/", (*SINGLE, *DERIVATIVE_PAIRS, *LOOPS), rule="C6")
def branches(h: Checked, transforms: str) -> None:
    """A branch is chosen and differentiated under {transforms}.

    Expect {transforms} of x ** 3 above 3, else of x ** 2, at 2.5 and at 5.
    """

    def f(x: Any) -> Any:
        # The second branch is 0 / 0 where the first is taken in a batch.
        return adprotocol.cond(x > _BREAK, lambda x: x * x * x, lambda x: x * x + (0.0 * x) / (x - 2.0 * X), x)

    compare(h, transforms, f, _chosen, X, 2.0 * X)
