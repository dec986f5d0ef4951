"""Work in several threads at once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from adprotocol.conformance.checks import Absent

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


# No wait of one thread for another lasts longer.
PATIENCE = 20.0


def in_threads(h: Checked, *works: Callable[[], Any], barrier: threading.Barrier | None = None) -> list[Any]:
    """Return the results of `works`, each run in a thread of its own, all started before one is waited for.

    If one raises, `barrier` is broken, so that the others do not wait for it in vain.
    """
    if not h.threads():
        msg = "the system says that it is not to be used from several threads"
        raise Absent(msg)

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
