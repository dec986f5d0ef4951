"""A time limit for code that may never return."""

from __future__ import annotations

import contextlib
import ctypes
import queue
import sys
import threading
import time
import traceback
from concurrent.futures import thread as pools
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable


# Seconds within which an interrupt by the user is seen. A wait does not see it on Windows, nor one that arrives just
# before the wait.
STEP = 0.5

# How many frames of a hanging call are shown.
FRAMES = 20


class TimeLimit(Exception):  # noqa: N818
    """A call did not return in time; `detail` shows where it was."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Stop(BaseException):
    """Raised in an abandoned thread at its next Python instruction."""


class Worker:
    """Run calls in a thread, and abandon the thread when a call takes too long.

    One thread serves all calls as long as they return: frameworks keep state per
    thread. Code that hangs in Python is interrupted; code that hangs elsewhere is left
    behind in a daemon thread. Code that never releases the interpreter's lock, such as
    a regular expression, cannot be timed from within the process.
    """

    def __init__(self) -> None:
        # The thread, and the queue from which it takes calls.
        self._serving: tuple[threading.Thread, queue.SimpleQueue[Any]] | None = None

    def run(self, call: Callable[[], object], seconds: float) -> BaseException | None:
        """Return None once `call` has returned, the exception that it raised, or a `TimeLimit` after `seconds`.

        Only an interrupt by the user while waiting is raised. A KeyboardInterrupt that
        the call itself raises is returned like any other exception.
        """
        if self._serving is None:
            calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
            thread = threading.Thread(target=_serve, args=(calls,), name="conformance", daemon=True)
            thread.start()
            self._serving = thread, calls
        thread, calls = self._serving
        answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        calls.put((call, answer))
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    return answer.get(timeout=min(left, STEP))
        except BaseException:  # interrupted by the user
            self._abandon(thread, calls)
            raise
        return TimeLimit(f"it did not return within {seconds:g} s", self._abandon(thread, calls))

    def _abandon(self, thread: threading.Thread, calls: queue.SimpleQueue[Any]) -> str:
        self._serving = None
        number = cast("int", thread.ident)
        frame = sys._current_frames().get(number)  # noqa: SLF001  (documented, in spite of its name)
        detail = "".join(traceback.format_stack(frame)[-FRAMES:]) if frame is not None else ""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(number), ctypes.py_object(Stop))
        # At exit Python waits for the threads of executors, even daemons. Those that a call here started are daemons.
        waited_for = cast("dict[Any, Any]", pools._threads_queues)  # noqa: SLF001  (there is no other way)
        for other in [other for other in waited_for if other.daemon]:
            del waited_for[other]
        # This ends the thread if the call swallows `Stop` or returns before it arrives.
        calls.put(None)
        return detail

    def close(self) -> None:
        """End the thread."""
        if self._serving is not None:
            self._serving[1].put(None)
            self._serving = None


def _serve(calls: queue.SimpleQueue[Any]) -> None:
    try:
        while (item := calls.get()) is not None:
            call, answer = item
            error = None
            try:
                call()
            except Stop:
                return
            # Every exception is a result of the call, SystemExit and KeyboardInterrupt included.
            except BaseException as raised:  # noqa: BLE001
                error = raised
                _leave(error)
            answer.put(error)
            del item, call, answer, error
    except Stop:
        return


def _leave(error: BaseException) -> None:
    """Clear the frames of an exception and of those behind it, in the thread that ran them.

    A context that a framework entered in a generator, as a checkpoint of PyTorch before 2.13 does, would stay entered
    as long as the frames are held, and every later call would run in it.
    """
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
            waiting += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
