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


# Seconds after which an interrupt by the user is seen at the latest. On Windows a wait does not see it at all, nor does
# one elsewhere that it precedes by a moment.
STEP = 0.5

# How much of the stack of a call that hangs is shown.
FRAMES = 20


class TimeLimit(Exception):  # noqa: N818
    """A call did not return in time; `detail` shows where it was."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class Stop(BaseException):
    """Raised in a thread that is given up, at its next step of Python."""


class Worker:
    """Run calls in a thread, and give the thread up when a call takes too long.

    One thread serves all calls while they return: frameworks keep state for each
    thread. Code that hangs in Python is interrupted; what hangs elsewhere is left
    behind, in a daemon thread. Code that never releases the interpreter's lock,
    such as one regular expression, cannot be timed from within the process.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], object], queue.SimpleQueue[Any]] | None] | None = None
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[[], object], seconds: float) -> BaseException | None:
        """Return None once `call` has returned, what it raised, or a `TimeLimit` after `seconds`.

        What is raised here is the user's: an interrupt while waiting. A KeyboardInterrupt
        that the call raises by itself is returned as any other exception is.
        """
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            self._thread = threading.Thread(target=_serve, args=(self._calls,), name="conformance", daemon=True)
            self._thread.start()
        answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._calls.put((call, answer))
        deadline = time.monotonic() + seconds
        try:
            while (left := deadline - time.monotonic()) > 0:
                with contextlib.suppress(queue.Empty):
                    return answer.get(timeout=min(left, STEP))
        except BaseException:  # interrupted by the user
            self._give_up()
            raise
        return TimeLimit(f"it did not return within {seconds:g} s", self._give_up())

    def _give_up(self) -> str:
        thread, calls = self._thread, self._calls
        self._thread = self._calls = None
        if thread is None or thread.ident is None or calls is None:
            return ""
        frame = sys._current_frames().get(thread.ident)  # noqa: SLF001  (documented, in spite of its name)
        detail = "".join(traceback.format_stack(frame)[-FRAMES:]) if frame is not None else ""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
        # Python waits at exit for the threads of executors, daemons or not. Those that a call here started are daemons.
        waited_for = cast("dict[Any, Any]", pools._threads_queues)  # noqa: SLF001  (there is no other way)
        for other in [other for other in waited_for if other.daemon]:
            del waited_for[other]
        # The thread ends here if the call swallows `Stop`, or returns before it arrives.
        calls.put(None)
        return detail

    def close(self) -> None:
        """End the thread."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None


def _serve(calls: queue.SimpleQueue[Any]) -> None:
    try:
        while (item := calls.get()) is not None:
            call, answer = item
            error = None
            try:
                call()
            except Stop:
                return
            # Whatever it is, SystemExit and KeyboardInterrupt included, is what came of the call.
            except BaseException as raised:  # noqa: BLE001
                error = raised
            answer.put(error)
            del item, call, answer, error
    except Stop:
        return
