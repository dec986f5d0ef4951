"""Several guards in one program, and guards in branches: which of them raises, and with which message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_CHECKS = "JAX: checks inside of transformed functions, and which of them failed: https://docs.jax.dev/en/latest/debugging/checkify_guide.html"


@staged(
    "prevent_gradient/two-messages",
    rule="N5",
    transform="grad of {way}",
    expects="x c of guarded x and c compiled, at 2, 3: 6 plain; in each gradient an error with the message of that one",
    source=_CHECKS,
)
def two_messages(h: Checked, way: str) -> None:
    """Of two guards in a compiled function the one raises whose value is differentiated, with its own message."""
    x, c = h.array(2.0), h.array(3.0)

    def product(x: Any, c: Any) -> Any:
        return adprotocol.prevent_gradient(x, "not the first") * adprotocol.prevent_gradient(c, "not the second")

    traced = trace(h, way, product)
    for _ in range(2):
        h.equal(traced(x, c), 6.0, "the plain call")
        # A compiler that runs Python may show the error as one of its own, with the text.
        with h.raises(Exception, words=["not the second"]):
            h.grad(lambda c: traced(x, c))(c)
        with h.raises(Exception, words=["not the first"]):
            h.grad(lambda x: traced(x, c))(x)


@staged(
    "prevent_gradient/in-the-other-branch",
    rule="N5",
    transform="grad of {way}",
    expects="7 c where c is differentiated, else 3 x c with x guarded, at 2, 3: 18 plain; an error in the gradient in "
    "x, and 21 with the gradient 7 in that in c",
    source=_CHECKS,
)
def in_the_other_branch(h: Checked, way: str) -> None:
    """A guard in the branch for what is not differentiated raises where something else is."""
    x, c = h.array(2.0), h.array(3.0)

    def guarded(x: Any, c: Any) -> Any:
        return 3.0 * adprotocol.prevent_gradient(x, "not this one") * c

    traced = trace(h, way, lambda x, c: adprotocol.cond(h.asks(c), lambda _, c: 7.0 * c, guarded, x, c))
    for _ in range(2):
        h.equal(traced(x, c), 18.0, "the plain call")
        h.value_and_gradient(lambda c: traced(x, c), (c,), 21.0, 7.0, "in what decides")
        with h.raises(Exception, words=["not this one"]):
            h.grad(lambda x: traced(x, c))(x)


@staged(
    "prevent_gradient/after-an-error-in-a-branch",
    rule="N5",
    transform="grad of {way}",
    expects="the error of a branch; then of x x with x guarded, at 2: 4 plain, and an error in the gradient",
    source=_CHECKS,
)
def after_an_error_in_a_branch(h: Checked, way: str) -> None:
    """An exception in a branch that is being traced leaves nothing behind that disarms a guard."""
    x = h.array(2.0)

    def fails(_: Any) -> Any:
        msg = "the branch fails"
        raise ValueError(msg)

    for t, f in ((fails, lambda x: 1.0 * x), (lambda x: 1.0 * x, fails)):
        failing = trace(h, way, lambda x, t=t, f=f: adprotocol.cond(h.asks(x), t, f, x))
        with h.raises(Exception):
            # Compiled for what is asked, only the branch taken is there to fail.
            h.grad(failing)(x)
            failing(x)
        traced = trace(h, way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x)
        for _ in range(2):
            h.equal(traced(x), 4.0, "the plain call")
            with h.raises(Exception, words=["not this one"]):
                h.grad(traced)(x)
