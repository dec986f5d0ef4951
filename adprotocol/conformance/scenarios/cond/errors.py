"""Errors in branches, what they leave behind, which is nothing, and the branch not taken that is checked too."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol._hooks import branch_check
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.errors import BranchError, BranchMismatchError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

scenario: Decorator = defaults(
    "cond",
    rule="C2",
    transform="grad",
    source="PyTorch: exceptions and the grad mode: https://github.com/pytorch/pytorch/issues/10348",
)


def _fails(x: Any) -> Any:
    raise ZeroDivisionError(type(x).__name__)


def _sound(h: Checked, x: Any) -> None:
    """Check what holds where no derivative is under way."""
    h.assert_untracked(adprotocol.within_gradient(x), "an array")
    h.assert_untracked(adprotocol.within_gradient(2.0 * x), "a result")
    h.assert_equal(h.grad(lambda x: h.probe(x) * x)(x), 12.0, "the gradient of 3 x x")


@scenario(needs=("grad", "grad of grad"))
def recording_after_an_error(h: Checked) -> None:
    """A branch that raises inside gradients leaves them as they were: inside, outside, and in the next.

    Expect behind a branch that raised inside two gradients: 9 x x inside, the gradient 12 of 3 x x at 2 behind them.
    """
    x = h.array(2.0)
    for pred in (True, h.array(True)):

        def inner(y: Any, pred: Any = pred) -> Any:
            return adprotocol.cond(pred, _fails, lambda y: y, y)

        def f(x: Any, inner: Any = inner) -> Any:
            for call in (inner, h.grad(inner)):
                with h.raises(ZeroDivisionError):
                    call(x)
            return h.probe(x) * h.grad(lambda y: h.probe(y) * x)(x)

        h.assert_equal(h.grad(f)(x), 36.0, "the gradient of 9 x x")
        _sound(h, x)


@scenario(transform="{way}", also_needs=("grad",), native="grad of {way}")
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


@scenario(transform="", needs=("parameter", "parameter_grad", "no_grad"))
def switch_after_an_error(h: Checked) -> None:
    """What raises under the system's own switch leaves it off there, and on behind it.

    Expect a branch that raises under the switch, and a decorated function that does, leave it off there, and on behind
    it: 5 p under it, 3 p behind it; the answer behind a gradient that raised is that before it.
    """
    p = h.parameter(2.0, trains=True)
    h.require_native(lambda: h.parameter_grad(lambda: p * h.no_grad(lambda: p * p)(), p), 4.0)
    decorated = adprotocol.non_differentiable(_fails)
    before = h.numpy(h.digit(p))
    for call in (decorated, lambda p: adprotocol.cond(True, _fails, lambda p: p, p)):

        def under(call: Any = call) -> Any:
            with contextlib.suppress(ZeroDivisionError):
                call(p)
            return h.scale(p, 3.0, 5.0)

        def f(call: Any = call, under: Any = under) -> Any:
            with contextlib.suppress(ZeroDivisionError):
                call(p)
            return h.no_grad(under)() * h.scale(p, 7.0, 11.0)

        with h.raises(ZeroDivisionError):
            h.parameter_grad(lambda: call(p), p)
        h.assert_equal(h.digit(p), before, "the answer behind a gradient that raised")
        h.assert_equal(h.parameter_grad(f, p), 70.0, "the gradient of 7 p times the constant 10")


@scenario(
    rule="C9",
    transform="",
    source="JAX: cond, branches that differ are found where it is traced: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html",
)
def checked_mismatch(h: Checked) -> None:
    """The check finds that branches differ, whichever is taken.

    Expect for either predicate, in either place, an error that names both branches where one returns 2 x and the other
    a part of it, a tuple, a dict, a bool or None, or is no function.
    """
    cond, x = branch_check.checking(adprotocol.cond), h.array([1.0, 2.0])
    others = [lambda x: x[0], lambda x: (x, x), lambda x: {"y": x}, lambda _: None]
    others += [lambda x: x > 0.0] * ("boolean arrays" not in h.without)
    for other in others:
        for branches in ((lambda x: 2.0 * x, other), (other, lambda x: 2.0 * x)):
            for pred in (True, False, h.array(0.0) < 1.0):
                with h.raises(BranchMismatchError, words=["true_fun", "false_fun"]):
                    cond(pred, *branches, x)
    with h.raises(ZeroDivisionError):
        cond(x[0] > 0.0, lambda x: 2.0 * x, h.fail, x)
    with h.raises(BranchError, words=["false_fun"]):
        cond(x[0] > 0.0, lambda x: 2.0 * x, x, x)


@scenario(
    rule="C9",
    source="JAX: cond, branches that differ are found where it is traced: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html",
)
def checked_derivatives(h: Checked) -> None:
    """Value and gradient are those of the branch taken, and nothing of the other's, which asks and is a constant.

    Expect x ** 2 at 3 with its gradient 6, taken or not beside 5 x + c, whose dict has the same keys; a run of both.
    """
    runs: list[str] = []

    def square(x: Any) -> Any:
        runs.append("square")
        return {"y": x * x, "name": "text"}

    def line(x: Any) -> Any:
        runs.append("line")
        return {"y": h.probe(x) + h.array(1.0), "name": "text"}

    cond = branch_check.checking(adprotocol.cond)
    for pred, value, slope in ((True, 9.0, 6.0), (h.array(0.0) > 1.0, 10.0, 3.0)):
        runs.clear()
        h.assert_value_and_grad(lambda x: cond(pred, square, line, x)["y"], [h.array(3.0)], value, slope, f"{pred}")
        h.check(sorted(set(runs)) == ["line", "square"], f"these branches ran: {runs}")


@scenario(
    rule="C9",
    source="JAX: cond, branches that differ are found where it is traced: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html",
)
def checked_exception(h: Checked) -> None:
    """An exception of the branch not taken comes out, and leaves nothing behind.

    Expect the ZeroDivisionError of the branch not taken, an error for its tuple, and the gradient 6 of x ** 2 behind.
    """
    cond, x, c = branch_check.checking(adprotocol.cond), h.array(3.0), 4.0
    with h.raises(ZeroDivisionError):
        h.grad(lambda x: cond(c > 0.0, lambda x: x * x, h.fail, x))(x)
    with h.raises(BranchMismatchError):
        h.grad(lambda x: cond(c > 0.0, lambda x: x * x, lambda x: (x, x), x))(x)
    h.assert_untracked(adprotocol.within_gradient(x), "an array behind the exception")
    h.assert_equal(h.grad(lambda x: cond(c < 0.0, lambda x: 5.0 * x, lambda x: x * x, x))(x), 6.0, "the gradient")
