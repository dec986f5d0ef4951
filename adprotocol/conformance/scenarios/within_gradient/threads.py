"""Threads, generators, coroutines and contexts: an answer goes by the value."""

from __future__ import annotations

import asyncio
import contextvars
import dataclasses
import functools
import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.programs import PATIENCE, in_threads
from adprotocol.conformance.scenarios.rules import noted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from adprotocol.conformance.checks import Checked

_WORKERS = "PyTorch: an outer no_grad is ignored inside a thread: https://github.com/pytorch/pytorch/issues/20528"

scenario: Decorator = defaults(
    "within_gradient", rule="W2", transform="threads", needs=("grad", "threads"), source=_WORKERS
)


_SERVER = "PyTorch: a switch set in one thread, read in another: https://github.com/pytorch/pytorch/issues/82145"


@scenario(varies=True)
def child_thread_tracked(h: Checked) -> None:
    """A tracked value of the parent is tracked in a child thread, if the system itself differentiates there.

    Expect 3 x ** 2, computed in a child thread inside of a gradient, at 3: 27, gradient 18; not applicable where the
    system itself has no derivative from there.
    """
    x = h.array(3.0)
    h.require_native(lambda: h.grad(lambda x: in_threads(h, lambda: x * x * x)[0])(x), 27.0)
    h.assert_value_and_grad(lambda x: in_threads(h, lambda: h.probe(x) * x)[0], [x], 27.0, 18.0)


@scenario(varies=True)
def child_thread_plain(h: Checked) -> None:
    """A plain value is not tracked in a child thread while the parent is inside a gradient.

    Expect 11 c for a plain c in a child thread inside of a gradient, times 3 x at 2, 1: 66, gradient 33.
    """
    c = h.array(1.0)

    def f(x: Any) -> Any:
        return h.probe(x) * in_threads(h, lambda: h.scale(c, 7.0, 11.0))[0]

    h.assert_value_and_grad(f, [h.array(2.0)], 66.0, 33.0)


@scenario(needs=("parameter", "parameter_grad", "threads"))
def child_thread_parameter(h: Checked) -> None:
    """A parameter is tracked in a child thread exactly if the system itself differentiates there.

    Expect about a parameter that a child thread reads, while its gradient is under way: True if that is 4, as of 3 p +
    p, False if it is 3, as p is a constant there.
    """
    p = h.parameter(2.0, trains=True)
    answers: list[Any] = []

    def f() -> Any:
        return 3.0 * p + in_threads(h, lambda: noted(answers, h.query(p), 1.0 * p))[0]

    slope = float(h.numpy(h.parameter_grad(f, p)))
    differentiated = abs(slope - 4.0) < abs(slope - 3.0)
    wrong = [answer for answer in answers if isinstance(answer, bool) and answer is not differentiated]
    h.check(answers and not wrong, f"the answers are {answers} where the gradient of 3 p + p is {slope}")


@scenario(source="autograd: one counter of traces for all threads: https://github.com/HIPS/autograd/pull/659")
def child_thread_gradient(h: Checked) -> None:
    """A gradient in a child thread is independent and leaves that of the parent alone.

    Expect the gradient 33 c of 3 y times 11 c in the child thread, times 13 x in the parent: 858, gradient 429.
    """
    c = h.array(1.0)

    def f(x: Any) -> Any:
        (slope,) = in_threads(h, lambda: h.grad(lambda y: h.probe(y) * h.scale(c, 7.0, 11.0))(h.array(4.0)))
        return h.scale(x, 13.0, 17.0) * slope

    h.assert_value_and_grad(f, [h.array(2.0)], 858.0, 429.0)


@scenario(
    varies=True, source="autograd: one counter of traces for all threads: https://github.com/HIPS/autograd/pull/659"
)
def concurrent_gradient(h: Checked) -> None:
    """A gradient active in another thread does not make a plain value tracked, in either direction.

    Expect 5 x in one thread while the other is inside of a gradient, 3 x in the other; then with roles exchanged.
    """
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def differentiates() -> Any:
        def f(x: Any) -> Any:
            barrier.wait()  # inside of the gradient
            before = h.probe(x)
            barrier.wait()  # the other thread has asked
            return before + h.probe(x)

        return h.grad(f)(h.array(2.0))

    def asks() -> Any:
        barrier.wait()
        answer = h.probe(h.array(2.0))
        barrier.wait()
        return answer

    def both(first: Callable[[], Any], second: Callable[[], Any]) -> tuple[Any, Any]:
        result = first()
        barrier.wait()  # both roles are over
        return result, second()

    (slope, plain), (other_plain, other_slope) = in_threads(
        h, lambda: both(differentiates, asks), lambda: both(asks, differentiates), barrier=barrier
    )
    for got in (slope, other_slope):
        h.assert_equal(got, 6.0, "the gradient of 3 x + 3 x")
    for got in (plain, other_plain):
        h.assert_equal(got, 10.0, "5 x, asked while the other thread differentiates")


@scenario(source="autograd: one counter of traces for all threads: https://github.com/HIPS/autograd/pull/659")
def concurrent_gradients(h: Checked) -> None:
    """Two threads that differentiate at once and end in the order they began each answer for themselves.

    Expect in each of two threads 3 x times 11 c, both inside of their gradients at once: the gradient 33 c.
    """
    inside, first_is_over = threading.Barrier(2, timeout=PATIENCE), threading.Event()

    def work(*, first: bool) -> Any:
        c = h.array(4.0)

        def f(x: Any) -> Any:
            inside.wait()
            if not first:
                first_is_over.wait(PATIENCE)
            return h.probe(x) * h.scale(c, 7.0, 11.0)

        try:
            slope = h.grad(f)(h.array(2.0))
        finally:
            first_is_over.set()
        return slope, h.probe(c)

    for slope, plain in in_threads(h, lambda: work(first=True), lambda: work(first=False), barrier=inside):
        h.assert_equal(slope, 132.0, "the gradient")
        h.assert_equal(plain, 20.0, "5 c afterwards")


@scenario(rule="W3", source=_SERVER)
def many_threads(h: Checked) -> None:
    """Many threads that meet a class for the first time, half of them inside a gradient, all answer correctly.

    Expect in each of 8 threads 3 x inside of a gradient and 5 x outside, of a class seen for the first time.
    """
    barrier = threading.Barrier(8, timeout=PATIENCE)
    box = dataclasses.make_dataclass("Box", ["value"])

    def ask(x: Any) -> Any:
        barrier.wait()
        return h.probe(x, box(x))

    def work(i: int) -> Any:
        x = h.array(2.0)
        return h.grad(ask)(x) if i % 2 else ask(x)

    works = [functools.partial(work, i) for i in range(8)]
    for i, got in enumerate(in_threads(h, *works, barrier=barrier)):
        h.assert_equal(got, 3.0 if i % 2 else 10.0, "the gradient of 3 x" if i % 2 else "5 x")


@scenario(source=_SERVER)
def thread_used_again(h: Checked) -> None:
    """A reused thread of a pool keeps nothing from its earlier work.

    Expect 5 x in a thread that has differentiated, and that has failed inside of a gradient; then 3 x in a gradient.
    """

    def work() -> tuple[Any, Any]:
        x = h.array(2.0)
        h.grad(h.probe)(x)
        with h.raises(ZeroDivisionError):
            h.grad(h.fail)(x)
        return h.probe(x), h.grad(h.probe)(x)

    ((plain, slope),) = in_threads(h, work)
    h.assert_equal(plain, 10.0, "5 x")
    h.assert_equal(slope, 3.0, "the gradient of 3 x")


@scenario(needs=("grad", "no_grad", "threads"), varies=True, source=_SERVER)
def no_grad_in_another_thread(h: Checked) -> None:
    """A switch that is on in another thread does not affect this one.

    Expect the gradient 3 of 3 x in one thread while another has gradients switched off.
    """
    barrier = threading.Barrier(2, timeout=PATIENCE)

    def waits(x: Any) -> Any:
        barrier.wait()  # the switch is on
        barrier.wait()  # the other thread is done
        return x

    def differentiates() -> Any:
        barrier.wait()
        slope = h.grad(h.probe)(h.array(2.0))
        barrier.wait()
        return slope

    _, slope = in_threads(h, lambda: h.no_grad(waits)(h.array(2.0)), differentiates, barrier=barrier)
    h.assert_equal(slope, 3.0)


@scenario(level=SHOULD, source="PyTorch: modes and coroutines: https://github.com/pytorch/pytorch/issues/48713")
def thread_in_context(h: Checked) -> None:
    """The context of a gradient, carried to another thread, does not make a plain value tracked there.

    Expect 5 c, asked in another thread in a copy of the context of a gradient that goes on, times 7 x: 70, and 35.
    """
    c = h.array(1.0)

    def f(x: Any) -> Any:
        context = contextvars.copy_context()
        (plain,) = in_threads(h, lambda: context.run(lambda: h.probe(1.0, c)))
        return h.scale(x, 7.0, 11.0) * plain

    h.assert_value_and_grad(f, [h.array(2.0)], 70.0, 35.0)
    h.assert_untracked(adprotocol.within_gradient(c), "the plain value afterwards")


_GENERATORS = "PyTorch: modes and paused generators: https://github.com/pytorch/pytorch/pull/49017"


def _layers(h: Checked) -> Generator[Any, Any, None]:
    """Take values that are sent with two factors, and yield them scaled."""
    result = None
    while True:
        result = h.scale(*(yield result))


@scenario(transform="grad", needs=None, varies=True, source=_GENERATORS)
def generator(h: Checked) -> None:
    """A generator started outside a gradient and resumed inside answers for the values sent to it.

    Expect 11 c for a plain c before, inside of and after a gradient, 3 x inside of it, from one generator: 66, 33.
    """
    layers, c = _layers(h), h.array(1.0)
    next(layers)
    plain = (c, 7.0, 11.0)
    h.assert_equal(layers.send(plain), 11.0, "before")
    h.assert_value_and_grad(lambda x: layers.send((x, 3.0, 5.0)) * layers.send(plain), [h.array(2.0)], 66.0, 33.0)
    h.assert_equal(layers.send(plain), 11.0, "afterwards")


@scenario(transform="grad", needs=None, source=_GENERATORS)
def paused_inside_gradient(h: Checked) -> None:
    """A generator started inside a gradient does not keep it.

    Expect 5 c for a plain value, from a generator that was begun inside of a gradient and is resumed after it.
    """
    layers, c = _layers(h), h.array(1.0)

    def f(x: Any) -> Any:
        next(layers)
        return layers.send((x, 3.0, 5.0))

    h.assert_value_and_grad(f, [h.array(2.0)], 6.0, 3.0)
    h.assert_equal(layers.send((c, 3.0, 5.0)), 5.0, "afterwards")


@scenario(
    transform="grad",
    needs=None,
    source="PyTorch: modes and coroutines: https://github.com/pytorch/pytorch/issues/48713",
)
def contexts(h: Checked) -> None:
    """An empty context does not lose the answer, and a copy of the context does not keep it.

    Expect 3 x in an empty context, and in coroutines 7 x and 17 c: 244, gradient 122; 5 c in a copy of the context
    after the gradient.
    """
    c, kept = h.array(1.0), []

    async def scaled(x: Any, inside: float, outside: float) -> Any:
        await asyncio.sleep(0)
        return h.scale(x, inside, outside)

    def f(x: Any) -> Any:
        kept.append(contextvars.copy_context())
        product = asyncio.run(scaled(x, 7.0, 11.0)) * asyncio.run(scaled(c, 13.0, 17.0))
        return contextvars.Context().run(h.probe, x) + product

    # 3 x + 7 x * 17 c
    h.assert_value_and_grad(f, [h.array(2.0)], 244.0, 122.0)
    h.assert_equal(kept[0].run(h.probe, c), 5.0, "in a copy of the context, after the gradient")
