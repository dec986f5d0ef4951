"""`value_and_grad` leaves nothing behind: after exceptions, in threads, from call to call."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.programs import in_threads

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


_EXCEPTION = "PyTorch: functional_call corrupts the original parameters: "
_EXCEPTION += "https://github.com/pytorch/pytorch/pull/195593"
_THREADS = "autograd: one counter of traces for all threads: https://github.com/HIPS/autograd/pull/659"

scenario: Decorator = defaults("value_and_grad", rule="T9")


@scenario(rule="T5", transform="exception", needs=("grad",), source=_EXCEPTION)
def after_exception(h: Checked) -> None:
    """An exception in the function or a refused result leaves nothing behind; the next call is right.

    Expect ValueError as it was raised; then the answer False for the model, and 3 w + 5 b with the gradient 3.
    """
    model = {"w": h.array(1.0), "b": h.array(1.0)}

    def broken(m: dict[str, Any]) -> Any:
        _ = m["w"] * m["w"]
        msg = "raised in the function"
        raise ValueError(msg)

    def text(m: dict[str, Any]) -> Any:
        return "text" if m["w"] is not None else None

    with h.raises(ValueError, words=["raised in the function"]):
        adprotocol.grad(broken, where="w", backend=h.name)(model)
    with h.raises(errors.OutputError):
        adprotocol.grad(text, where="w", backend=h.name)(model)
    h.assert_untracked(adprotocol.within_gradient(model), "the model after the exception")
    run = adprotocol.value_and_grad(lambda m: h.probe(m["w"]) + h.probe(m["b"]), where="w", backend=h.name)
    value, gradient = run(model)
    h.assert_equal(value, 8.0, "the value of the next call")
    h.assert_gradients(gradient, {"w": 3.0, "b": None}, "the gradient of the next call")


@scenario(rule="T5", transform="exception", needs=("grad",), source=_EXCEPTION)
def answer_after_exception(h: Checked) -> None:
    """What a function has kept of its arguments is after an exception what it is after a return.

    Expect of the argument that the function kept the same answer, or an error of the same class, whether it returned or
    raised.
    """
    kept: list[Any] = []

    def returns(x: Any) -> Any:
        kept.append(x)
        return x * x

    def raises(x: Any) -> Any:
        kept.append(x)
        msg = "raised in the function"
        raise ValueError(msg)

    def answer() -> Any:
        try:
            found = adprotocol.within_gradient(kept[-1])
        except Exception as error:  # noqa: BLE001  (a value that has escaped from its gradient)
            return type(error)
        return found if isinstance(found, bool) else type(found)

    x = h.array(2.0)
    adprotocol.grad(returns, backend=h.name)(x)
    want = answer()
    with h.raises(ValueError, words=["raised in the function"]):
        adprotocol.grad(raises, backend=h.name)(x)
    h.assert_is(answer(), want, "the answer after the exception")


@scenario(rule="T5", transform="exception", needs=("grad", "parameter"), source=_EXCEPTION)
def flags_after_exception(h: Checked) -> None:
    """After an exception in a call that trains a parameter against its flag, the flags are as before.

    Expect the flags as before: trainable leaves the first parameter; the gradient 3 of a b at (2, 3) for it alone.
    """
    model = {"on": h.parameter(2.0, trains=True), "off": h.parameter(3.0, trains=False)}

    def broken(m: dict[str, Any]) -> Any:
        _ = m["on"] * m["off"]
        msg = "raised in the function"
        raise ValueError(msg)

    with h.raises(ValueError, words=["raised in the function"]):
        adprotocol.grad(broken, where="off", backend=h.name)(model)
    found = adprotocol.trainable(model)
    h.assert_is(found["on"], model["on"], "the parameter whose flag is on")
    h.assert_is(found["off"], None, "what is left of the parameter whose flag is off")
    h.assert_gradients(adprotocol.grad(lambda m: m["on"] * m["off"], backend=h.name)(model), {"on": 3.0, "off": None})


@scenario(
    transform="grad",
    needs=("grad", "grad of grad"),
    varies=True,
    source="ForwardDiff.jl: perturbation confusion: https://github.com/JuliaDiff/ForwardDiff.jl/issues/83",
)
def exception_inside_outer_gradient(h: Checked) -> None:
    """An exception in a gradient inside another one disturbs neither the outer one nor the next inner one.

    The gradient of x ** 2 * D(y -> y ** 2)(3) at 5 is 60, after an inner gradient that raised.
    """
    three = h.array(3.0)

    def broken(y: Any) -> Any:
        msg = f"raised in the function of {type(y).__name__}"
        raise ValueError(msg)

    def outer(x: Any) -> Any:
        with contextlib.suppress(ValueError):
            adprotocol.grad(broken, backend=h.name)(x * three)
        return x * x * adprotocol.grad(lambda y: y * y, backend=h.name)(three)

    h.assert_value_and_grad(outer, (h.array(5.0),), 150.0, 60.0)


@scenario(
    rule="T3",
    needs=("grad",),
    source="GPflow: two ways to set trainable, one without effect: https://github.com/GPflow/GPflow/issues/1184",
)
def one_function_many_selections(h: Checked) -> None:
    """One function and one model are differentiated with other parts frozen, from call to call.

    Expect w ** 2 * b ** 2 at (2, 3): {w: 36}, then {b: 24}, then both, then {w: 36} again.
    """
    model = {"w": h.array(2.0), "b": h.array(3.0)}
    for where in ("w", "b", None, "w"):
        run = adprotocol.grad(lambda m: m["w"] * m["w"] * m["b"] * m["b"], where=where, backend=h.name)
        expected = {"w": 36.0 if where != "b" else None, "b": 24.0 if where != "w" else None}
        h.assert_gradients(run(model), expected, f"the gradient with where={where!r}")


@scenario(transform="threads", needs=("grad", "threads"), source=_THREADS)
def threads(h: Checked) -> None:
    """Two threads differentiate one model at the same time, each with another part frozen.

    Expect 3 w + 5 b with the gradient 3 for w in one thread, 5 w + 3 b with 3 for b in the other, ten times.
    """
    model = {"w": h.array(1.0), "b": h.array(2.0)}
    meeting = threading.Barrier(2)

    def loss(m: dict[str, Any]) -> Any:
        first = h.probe(m["w"])
        # So that both are in the middle of their functions; a system that lets one in at a time goes on alone.
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(1.0)
        return first + h.probe(m["b"])

    def differentiated(where: str) -> list[Any]:
        run = adprotocol.value_and_grad(loss, where=where, backend=h.name)
        return [run(model) for _ in range(10)]

    first, second = in_threads(h, lambda: differentiated("w"), lambda: differentiated("b"))
    for value, gradient in first:
        h.assert_equal(value, 13.0, "the value in the thread that freezes b")
        h.assert_gradients(gradient, {"w": 3.0, "b": None}, "the gradient in the thread that freezes b")
    for value, gradient in second:
        h.assert_equal(value, 11.0, "the value in the thread that freezes w")
        h.assert_gradients(gradient, {"w": None, "b": 3.0}, "the gradient in the thread that freezes w")


@scenario(transform="threads", needs=("grad", "threads"), source=_THREADS)
def child_thread(h: Checked) -> None:
    """A gradient in a thread is independent of one that is active in another thread.

    Expect 6 of w ** 2 at 3 in the child thread; the gradient of the function that waits for it at 5 is 12 x = 60.
    """
    three = h.array(3.0)

    def slope() -> Any:
        return adprotocol.grad(lambda m: m["w"] * m["w"], backend=h.name)({"w": three})["w"]

    def outer(m: dict[str, Any]) -> Any:
        before = m["x"] * m["x"]
        (other,) = in_threads(h, slope)
        h.assert_equal(other, 6.0, "the gradient in the child thread")
        return before * other

    value, gradient = adprotocol.value_and_grad(outer, backend=h.name)({"x": h.array(5.0)})
    h.assert_equal(value, 150.0, "the value")
    h.assert_gradients(gradient, {"x": 60.0})


@scenario(
    transform="no_grad",
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)
def under_the_switch(h: Checked) -> None:
    """Under the system's own switch our gradient is the gradient or an error, never zeros.

    Of w ** 2 * b at (3, 2) with b frozen expect 18, and 12 at w, or an error; never zeros.
    """
    model = {"w": h.array(3.0), "b": h.array(2.0)}
    differentiated = adprotocol.value_and_grad(lambda m: m["w"] * m["w"] * m["b"], where="w", backend=h.name)
    try:
        value, gradient = h.no_grad(lambda: differentiated(model))()
    except adprotocol.ADProtocolError:
        return
    h.assert_equal(value, 18.0, "the value")
    h.assert_gradients(gradient, {"w": 12.0, "b": None})
