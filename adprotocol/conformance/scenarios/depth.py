"""Calls in calls, branches in calls, branches in branches: what is one level further down counts as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD
from adprotocol.conformance.scenarios.calling import CALLED, SQUARES, about_squares
from adprotocol.conformance.scenarios.closing_over import orders
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_NESTED = "jax-mps, wrong gradients of a nested cond: https://github.com/tillahoffmann/jax-mps/issues/195"


@staged(
    "within_gradient/after-a-call-in-a-call",
    rule="W5",
    transform="grad of {way}",
    native="grad of {way} of {way} of {way}",
    expects=f"{SQUARES}; squared by a compiled function that one calls which the one that asks calls",
    source=CALLED,
)
def after_a_call_in_a_call(h: Checked, way: str) -> None:
    """The result of a compiled function that calls another is tracked as its argument is, in both first orders."""

    def make() -> Any:
        square = trace(h, way, lambda x: x * x)
        return trace(h, way, lambda x: 1.0 * square(x))

    about_squares(h, way, make)


@staged(
    "within_gradient/after-a-branch-in-a-call",
    rule="W5",
    transform="grad of {way}",
    native="grad of {way} of {way}",
    expects=f"{SQUARES}; squared in a branch of a compiled function that the one that asks calls",
    source=CALLED,
)
def after_a_branch_in_a_call(h: Checked, way: str) -> None:
    """What comes out of a branch in a called function is tracked as its operand is, in both first orders."""
    about_squares(
        h, way, lambda: trace(h, way, lambda x: adprotocol.cond(x > 0.0, lambda x: x * x, lambda x: -1.0 * x, x))
    )


def _nested(h: Checked, way: str) -> Any:
    """Return x c with x guarded where both are differentiated, 3 x c where c is, else 5 x c."""

    def inner(x: Any, c: Any) -> Any:
        def guarded(x: Any, c: Any) -> Any:
            return adprotocol.prevent_gradient(x, "not this one") * c

        return adprotocol.cond(h.asks(x), guarded, lambda x, c: 3.0 * x * c, x, c)

    return trace(h, way, lambda x, c: adprotocol.cond(h.asks(c), inner, lambda x, c: 5.0 * x * c, x, c))


@staged(
    "prevent_gradient/in-nested-branches",
    rule="N5",
    transform="grad of {way}",
    expects="x c with x guarded where both are differentiated: an error in the gradient by t of t x, t c; 5 x c plain",
    source=_NESTED,
)
def guarded_in_nested_branches(h: Checked, way: str) -> None:
    """A guard in a branch of a branch raises where both are taken."""
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)
    for first in (0, 1):
        traced = _nested(h, way)

        def plain(traced: Any = traced) -> None:
            h.equal(traced(x, c), 30.0, "the plain call")

        def differentiated(traced: Any = traced) -> None:
            # A compiler that runs Python may show the error as one of its own, with the text.
            with h.raises(Exception, words=["not this one"]):
                h.grad(lambda t: traced(t * x, t * c))(one)

        for call in orders(plain, differentiated)[first]:
            call()


@staged(
    "prevent_gradient/in-nested-branches-not-taken",
    rule="N5",
    level=SHOULD,
    transform="grad of {way}",
    expects="3 x c where x is differentiated, else 7 x c where c is, else 5 x c with x guarded, at 2, 3: 18 and 9 in "
    "x; 42, gradient 14 in c; 30 plain",
    source=_NESTED,
)
def passed_in_nested_branches(h: Checked, way: str) -> None:
    """A guard in a branch of a branch passes where the outer one is not taken."""
    x, c = h.array(2.0), h.array(3.0)

    def inner(x: Any, c: Any) -> Any:
        def guarded(x: Any, c: Any) -> Any:
            return 5.0 * adprotocol.prevent_gradient(x, "not this one") * c

        return adprotocol.cond(h.asks(c), lambda x, c: 7.0 * x * c, guarded, x, c)

    traced = trace(h, way, lambda x, c: adprotocol.cond(h.asks(x), lambda x, c: 3.0 * x * c, inner, x, c))
    for _ in range(2):
        h.equal(traced(x, c), 30.0, "the plain call")
        h.value_and_gradient(lambda x: traced(x, c), (x,), 18.0, 9.0, "in the guarded one")
        h.value_and_gradient(lambda c: traced(x, c), (c,), 42.0, 14.0, "in the other")
