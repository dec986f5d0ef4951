"""Behind a branch that raises: what was recorded is recorded again, and what was not is not."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "cond",
    rule="C2",
    source="PyTorch: exceptions and the grad mode: https://github.com/pytorch/pytorch/issues/10348",
)


def _fails(x: Any) -> Any:
    raise ZeroDivisionError(type(x).__name__)


def _sound(h: Checked, x: Any) -> None:
    """Check what holds where no derivative is under way."""
    h.assert_untracked(adprotocol.within_gradient(x), "an array")
    h.assert_untracked(adprotocol.within_gradient(2.0 * x), "a result")
    h.assert_equal(h.grad(lambda x: h.probe(x) * x)(x), 12.0, "the gradient of 3 x x")


@scenario(transform="grad", needs=("grad", "grad of grad"))
def recording_after_an_error(h: Checked) -> None:
    """A branch that raises inside gradients leaves them as they were: inside, outside, and in the next.

    Expect behind a branch that raised inside two gradients: 9 x x inside, the gradient 12 of 3 x x at 2 behind them.
    """
    x = h.array(2.0)
    for pred in (True, h.array(True)):  # noqa: FBT003

        def inner(y: Any, pred: Any = pred) -> Any:
            return adprotocol.cond(pred, _fails, lambda y: y, y)

        def f(x: Any, inner: Any = inner) -> Any:
            for call in (inner, h.grad(inner)):
                with h.raises(ZeroDivisionError):
                    call(x)
            return h.probe(x) * h.grad(lambda y: h.probe(y) * x)(x)

        h.assert_equal(h.grad(f)(x), 36.0, "the gradient of 9 x x")
        _sound(h, x)


@scenario(transform="{way}", native="grad of {way}", also_needs=("grad",))
def tracing_after_an_error(h: Checked, way: str) -> None:
    """A branch that raises while it is traced leaves nothing open, under {way}.

    Expect behind a branch that raised while {way} traced, alone and in a gradient: 5 x, and 12, that of 3 x x; an error
    where a guarded x is differentiated.
    """
    x = h.array(2.0)
    traced = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda x: x + 1.0, _fails, x))
    for call in (traced, h.grad(traced)):
        with contextlib.suppress(Exception):  # compilers raise errors of their own, and one may never run the branch
            call(x)
        _sound(h, x)
        with h.raises(Exception, words=["not this one"]):
            h.grad(h.trace(way, lambda x: adprotocol.prevent_gradient(x, "not this one") * x))(x)
        again = h.trace(way, h.probe)
        h.assert_equal(again(x), 10.0, "a layer behind it")
        h.assert_equal(h.grad(again)(x), 3.0, "its gradient")


@scenario(transform="vmap", needs=("grad", "vmap"))
def rows_after_an_error(h: Checked) -> None:
    """A branch that raises for rows leaves no batch open.

    Expect behind a branch that raised for rows: 5 x, the gradient 12 of 3 x x, and rows that choose.
    """
    x, rows = h.array(2.0), h.array([1.0, -1.0])
    with contextlib.suppress(Exception):  # as above
        h.vmap(lambda x: adprotocol.cond(x > 0.0, lambda x: x, _fails, x))(rows)
    _sound(h, x)
    h.assert_equal(
        h.vmap(lambda x: adprotocol.cond(x > 0.0, lambda x: 3.0 * x, lambda x: 5.0 * x, x))(rows), [3.0, -5.0]
    )


@scenario(needs=("parameter", "parameter_grad", "no_grad"))
def switch_after_an_error(h: Checked) -> None:
    """What raises under the system's own switch leaves it off there, and on behind it.

    Expect a branch that raises under the switch, and a decorated function that does, leave it off there, and on behind
    it: 5 p under it, 3 p behind it; the answer behind a gradient that raised is that before it.
    """
    p = h.parameter(2.0, trains=True)
    h.require_native(lambda: h.parameter_grad(lambda: p * h.no_grad(lambda: p * p)(), p), 4.0)
    decorated = adprotocol.non_differentiable(_fails)
    before = h.numpy(h.digit(p))
    for call in (decorated, lambda p: adprotocol.cond(True, _fails, lambda p: p, p)):  # noqa: FBT003

        def under(call: Any = call) -> Any:
            with contextlib.suppress(ZeroDivisionError):
                call(p)
            return h.scale(p, 3.0, 5.0)

        def f(call: Any = call, under: Any = under) -> Any:
            with contextlib.suppress(ZeroDivisionError):
                call(p)
            return h.no_grad(under)() * h.scale(p, 7.0, 11.0)

        with h.raises(ZeroDivisionError):
            h.parameter_grad(lambda: call(p), p)  # noqa: B023
        h.assert_equal(h.digit(p), before, "the answer behind a gradient that raised")
        h.assert_equal(h.parameter_grad(f, p), 70.0, "the gradient of 7 p times the constant 10")
