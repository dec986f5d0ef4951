"""`non_differentiable` on functions that raise, in threads, and on generators."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.threads import PATIENCE, in_threads

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults("non_differentiable", rule="N3")


@scenario(
    transform="grad", source="PyTorch, exceptions during training: https://github.com/pytorch/pytorch/issues/10348"
)
def decorated_raises(h: Checked) -> None:
    """An error in a decorated function leaves nothing behind.

    The error comes out as it is; x ** 2 afterwards has the gradient 2 x = 6, in the same gradient and after it.
    """

    @adprotocol.non_differentiable
    def fails(x: Any) -> Any:
        raise ZeroDivisionError(type(x).__name__)

    def f(x: Any) -> Any:
        with h.raises(ZeroDivisionError):
            fails(x)
        return x * x

    h.assert_equal(h.grad(f)(h.array(3.0)), 6.0, "the gradient in the same call")
    with h.raises(ZeroDivisionError):
        h.grad(fails)(h.array(3.0))
    h.assert_equal(h.grad(lambda x: x * x)(h.array(3.0)), 6.0, "the gradient after it")


@scenario(
    transform="threads",
    needs=("grad", "threads"),
    source="PyTorch, a switch and another thread: https://github.com/pytorch/pytorch/issues/20528",
)
def decorated_in_another_thread(h: Checked) -> None:
    """A decorated function does not stop what another thread differentiates meanwhile.

    While a decorated s(x) = x runs in another thread, x ** 2 at 3 has the gradient 6; there s(x) x has 1.
    """
    barrier = threading.Barrier(2, timeout=PATIENCE)

    @adprotocol.non_differentiable
    def waits(x: Any) -> Any:
        barrier.wait()  # inside of the decorated function
        barrier.wait()  # the other thread has differentiated
        return x

    def differentiates() -> Any:
        barrier.wait()
        slope = h.grad(lambda x: x * x)(h.array(3.0))
        barrier.wait()
        return slope

    beside, slope = in_threads(h, lambda: h.grad(lambda x: waits(x) * x)(h.array(1.0)), differentiates, barrier=barrier)
    h.assert_equal(slope, 6.0, "the gradient meanwhile")
    h.assert_equal(beside, 1.0, "the gradient beside the decorated function")


@scenario(level=SHOULD, source="docs/non_differentiable.md: what is refused")
def decorated_generator(h: Checked) -> None:
    """A function whose result cannot be made constant is refused when decorated.

    Expect a TypeError for a generator function and for a class, whose bodies run after the call or elsewhere.
    """

    def values(x: Any) -> Any:
        yield x

    with h.raises(TypeError, words=("values",)):
        adprotocol.non_differentiable(values)
    with h.raises(TypeError, words=("Harness",)):
        adprotocol.non_differentiable(type("Harness", (), {}))
