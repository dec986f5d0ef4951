"""Programs: calls in both orders, in several threads at once, behind a gradient that ends inside."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


def in_both_orders(
    make: Callable[[], Any], plain: Callable[[Any], None], differentiated: Callable[[Any], None]
) -> None:
    """Call what `make` returns plain, differentiated, plain; and what it returns next the other way around."""
    for first, second in ((plain, differentiated), (differentiated, plain)):
        made = make()
        for call in (first, second, first):
            call(made)


def behind_a_gradient(h: Checked, layer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function that calls `layer` for x ** 2, which a gradient before it has closed over."""
    c = h.array(1.0)

    def f(x: Any) -> Any:
        y = x * x
        h.grad(lambda z: z * y)(c)
        return layer(y)

    return f


# No wait of one thread for another lasts longer: less than the command's time limit of a scenario, 60 s.
PATIENCE = 50.0


def in_threads(h: Checked, *works: Callable[[], Any], barrier: threading.Barrier | None = None) -> list[Any]:
    """Return the results of `works`, each run in a thread of its own, all started before one is waited for.

    If one raises, `barrier` is broken, so that the others do not wait for it in vain.
    """
    h.absent_if(not h.threads(), "the system says that it is not to be used from several threads")

    def run(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except BaseException:
            if barrier is not None:
                barrier.abort()
            raise

    with ThreadPoolExecutor(len(works)) as pool:
        futures = [pool.submit(run, work) for work in works]
    errors = [error for error in (future.exception() for future in futures) if error is not None]
    # Who waited in vain says nothing of the cause.
    for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
        raise error
    return [future.result() for future in futures]
