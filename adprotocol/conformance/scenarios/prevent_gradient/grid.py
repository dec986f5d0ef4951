"""`prevent_gradient` under every transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenarios.grid import PAIRS, SINGLE, X, compare, grid
from adprotocol.conformance.scenarios.non_differentiable.grid import with_constant
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

MESSAGE = "nobody may differentiate this"


def guarded(value: Any) -> Any:
    """Return a value that nobody may differentiate."""
    return adprotocol.prevent_gradient(value, MESSAGE)


@grid("prevent_gradient/", (*SINGLE, *PAIRS), rule="N5")
def prevented(h: Checked, transforms: str) -> None:
    """`prevent_gradient` passes what nobody differentiates, and nothing else, under {transforms}.

    Without a derivative expect x ** 3 at 2.5. With one expect {transforms} of c x x for a guarded constant c of x, and
    an error with the message for a guarded x.
    """
    if not nesting.differentiates(transforms):
        compare(h, transforms, lambda x: guarded(x) * x * x, with_constant)
        return
    compare(h, transforms, lambda x: guarded(adprotocol.non_differentiable(x)) * x * x, with_constant)
    # A compiler that runs Python may show an error that is raised meanwhile as one of its own, with the text.
    traced = {"jit", "compile"} & {*nesting.parse(transforms)}
    expected = (Exception,) if traced else (GradientPreventedError,)
    with h.raises(*expected, words=[MESSAGE]):
        h.nest(transforms, lambda x: guarded(x) * x * x)(h.array(X))
