"""The progress of a run: a bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self, TextIO

from adprotocol.conformance._reports.text import console_of, write_line
from adprotocol.conformance._reports.words import cut, line, seconds
from adprotocol.conformance._run.result import FAIL, WRONG

if TYPE_CHECKING:
    from adprotocol.conformance._run.result import Result

# How often a bar is drawn, and how often a line is written where there is none.
_REDRAW = 0.1
_LINES = 10


class Progress:
    """Show how far a run is: a bar on a terminal with rich, elsewhere a line for each tenth.

    No thread draws it: scenarios look at threads.

    Args:
        total: how many scenarios will run; if not known yet, call `start` later.
        stream: where to write; standard error unless given.
    """

    def __init__(self, total: int = 0, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = sys.stderr if stream is None else stream
        self.counts: Counter[str] = Counter()
        self._console = console_of(self.stream)
        self._bar: Any = None
        self._drawn = 0.0
        self._begin = time.monotonic()

    def __enter__(self) -> Self:
        if self._console is not None:
            from rich import progress  # noqa: PLC0415  (an optional dependency)

            self._bar = progress.Progress(
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TimeElapsedColumn(),
                # The last, since a long id leaves no room after it.
                progress.TextColumn("{task.description}", markup=False),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
            )
            self._bar.add_task("checking the harness", total=self.total or None)
            self._bar.start()
            self._bar.refresh()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, total: int) -> None:
        """Set how many scenarios will run."""
        self.total = total

    def advance(self, result: Result) -> None:
        """Count a result, and redraw if it is time."""
        before = self.counts.total()
        self.counts[result.outcome] += 1
        if self._bar is None:
            self._line(before)
            return
        now = time.monotonic()
        due = now - self._drawn >= _REDRAW
        self._drawn = now if due else self._drawn
        (task,) = self._bar.task_ids
        text = f"{self._bad()}{cut(line(result.id), 60)}"
        self._bar.update(task, advance=1, total=self.total or None, description=text, refresh=due)

    def _line(self, before: int) -> None:
        done = self.counts.total()
        if not self.total or before * _LINES // self.total == done * _LINES // self.total:
            return
        spent = seconds(time.monotonic() - self._begin)
        text = f"{done} of {self.total} scenarios, {spent}  {self._bad()}".rstrip()
        write_line(self.stream, None, text, "")
        self.stream.flush()

    def _bad(self) -> str:
        return "".join(f"{self.counts[outcome]} {outcome}  " for outcome in (WRONG, FAIL) if self.counts[outcome])
