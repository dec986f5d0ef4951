"""A time limit for code that may never return."""

from __future__ import annotations

import ctypes
import queue
import sys
import threading
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


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
    behind, in a daemon thread.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]] | None] | None = None
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[[], Any], seconds: float) -> Any:
        """Return what `call` returns, raise what it raises; raises `TimeLimit` after `seconds`."""
        if self._calls is None:
            self._calls = queue.SimpleQueue()
            self._thread = threading.Thread(target=_serve, args=(self._calls,), name="conformance", daemon=True)
            self._thread.start()
        answer: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._calls.put((call, answer))
        try:
            value, error = answer.get(timeout=seconds)
        except queue.Empty:
            detail = self._give_up()
            msg = f"it did not return within {seconds:g} s"
            raise TimeLimit(msg, detail) from None
        except BaseException:  # interrupted by the user
            self._give_up()
            raise
        if error is not None:
            raise error
        return value

    def _give_up(self) -> str:
        thread, self._thread, self._calls = self._thread, None, None
        if thread is None or thread.ident is None:
            return ""
        frame = sys._current_frames().get(thread.ident)  # noqa: SLF001  (documented, in spite of its name)
        detail = "".join(traceback.format_stack(frame)[-8:]) if frame is not None else ""
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stop))
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
            try:
                outcome = (call(), None)
            except Stop:
                return
            # Whatever it is, SystemExit included, is raised where it was asked for.
            except BaseException as error:  # noqa: BLE001
                outcome = (None, error)
            answer.put(outcome)
            del item, call, answer, outcome
    except Stop:
        return
