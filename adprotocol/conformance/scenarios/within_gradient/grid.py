"""`within_gradient` under every transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenarios.grid import LOOPS, PAIRS, SINGLE, compare, grid

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_AROUND_LOOPS = (
    "jit of grad of scan",
    "jit of jvp of scan",
    "compile of grad of scan",
    "jit of grad of while_loop",
    "jit of jvp of while_loop",
    "compile of grad of while_loop",
)
_TRIPLES = (
    "grad of jit of vmap",
    "grad of vmap of jit",
    "jit of grad of vmap",
    "vmap of grad of jit",
    "jvp of grad of jit",
    "grad of jvp of vmap",
    "grad of grad of jit",
    "grad of jit of grad",
    "jvp of vmap of grad",
    "vmap of jit of vmap",
    "grad of scan of jit",
    "grad of checkpoint of jit",
    "grad of vmap of checkpoint",
    "compile of grad of vmap",
    "compile of jvp of grad",
    "grad of grad of grad",
)


def _tracked(x: float) -> list[float]:
    """Return the derivatives of x ** 3."""
    return [x**3, 3 * x**2, 6 * x, 6.0, 0.0]


def _plain(x: float) -> list[float]:
    """Return the value of 5 x ** 2, which nobody differentiates."""
    return [5 * x**2]


@grid(
    "within_gradient/",
    (*SINGLE, *PAIRS, *LOOPS, *_AROUND_LOOPS, *_TRIPLES),
    rule="W5",
    also_vary=("vmap of grad",),
)
def answers(h: Checked, transforms: str) -> None:
    """`within_gradient` answers correctly under {transforms}.

    Expect {transforms} of x ** 3 at 2.5 if that differentiates, since the answer is True, else of 5 x ** 2.
    """

    def f(x: Any) -> Any:
        return adprotocol.cond(h.query(x), lambda x: x * x * x, lambda x: 5.0 * x * x, x)

    compare(h, transforms, f, _tracked if nesting.differentiates(transforms) else _plain)
