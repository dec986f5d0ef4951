"""The report as text, and the progress of a run: what a terminal shows.

In each part what matters most comes first; the verdict is last, where the prompt
will be. On a terminal that rich knows, the same lines are coloured.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self, TextIO

from adprotocol._cli import terminal
from adprotocol.conformance._reports.digest import ALSO, BAD, MEANINGS, Digest
from adprotocol.conformance._reports.looks import SIGNS
from adprotocol.conformance._reports.words import clean, cut, encodable, line, seconds, some
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, OUTCOMES, PASS, WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from adprotocol.conformance._reports.entries import Entry
    from adprotocol.conformance._run.result import Report, Result

# How often a bar is drawn, and how often a line is written where there is none.
_REDRAW = 0.1
_LINES = 10
_STYLES = {
    WRONG: "bold white on red",
    CRASHED: "bold red",
    FAIL: "bold red",
    EXPECTED: "yellow",
    PASS: "green",
    "head": "bold",
    "": "",
}


def write(report: Report, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the report; `verbose` adds tracebacks, and the expected failures in full."""
    console = console_of(stream)
    width = terminal.width_of(stream) if console else None
    for text, style in _Text(report, width, verbose=verbose).lines():
        write_line(stream, console, text, _STYLES[style])


class _Text:
    """Yield the lines of a report with their styles; `width` is None where lines are not wrapped."""

    def __init__(self, report: Report, width: int | None, *, verbose: bool) -> None:
        self.report = report
        self.digest = Digest(report)
        self.width = width
        self.verbose = verbose

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield all lines."""
        digest, report = self.digest, self.report
        yield f"adprotocol conformance of {digest.title}", "head"
        for name, fact in digest.facts.items():
            yield f"  {name:<11}{fact}", ""
        if report.problems:
            yield _head(f"PROBLEMS{report.troubled} ({len(report.problems)})", FAIL)
        for problem in report.problems:
            yield self._field("  ", f"{line(problem.where)}: {line(problem.message)}")
            if self.verbose:
                yield _block(problem.detail)
        for outcome in (*BAD, EXPECTED):
            yield from self._list(outcome)
        if digest.also_declared:
            yield _head(f"ALSO DECLARED ({len(digest.also_declared)}): {ALSO}")
        for declared in digest.also_declared:
            yield self._field("  ", line(declared.brief), hang=5)
        for outcome in (*BAD, *([EXPECTED] if self.verbose else [])):
            for entry in digest.entries[outcome]:
                if entry.first.ran:  # else the problems say all that there is to say
                    yield from self._full(entry)
        yield from self._capabilities()
        yield from self._table()
        if report.slowest():
            yield _head(f"SLOWEST, of {seconds(report.seconds)}")
        for result in report.slowest():
            yield f"  {seconds(result.seconds):>8}  {line(result.id)}", ""
        yield _head(f"{digest.verdict}: {report.sentence()}", digest.verdict_outcome)
        if digest.suggestion:
            yield self._field("more: ", digest.suggestion)
        if digest.advice:
            yield self._field("next: ", digest.advice)

    def _list(self, outcome: str) -> Iterator[tuple[str, str]]:
        found = self.digest.entries[outcome]
        if found:
            count = sum(len(entry.results) for entry in found)
            yield _head(f"{outcome.upper()} ({count}): {MEANINGS[outcome]}", outcome)
        for entry in found:
            reason = line(self.report.reason(entry.first)) if outcome == EXPECTED else cut(line(entry.message))
            result, several = entry.first, len(entry.results) > 1
            who = f"{len(entry.results)} scenarios" if several else f"{line(result.id)}  {result.level} {result.rule}"
            yield self._field(f"  {SIGNS[outcome]:<2} {who}  ", reason, hang=5)
            if several:
                yield self._field("     ", self._named(entry.ids, outcome))

    def _named(self, ids: Sequence[str], outcome: str) -> str:
        """Return ids: all of those that are silently wrong, else a few that stand for all."""
        return ", ".join(map(line, ids)) if self.verbose or outcome == WRONG else some(ids)

    def _full(self, entry: Entry) -> Iterator[tuple[str, str]]:
        result, others = entry.first, entry.others
        yield _head(f"{SIGNS[result.outcome]} {result.outcome.upper()}: {line(result.id)}", result.outcome)
        for name, value in self.digest.fields(entry).items():
            yield self._field(f"  {name:<9}", value)
        if others:
            yield self._field("  also     ", f"{len(others)} more: {self._named(others, result.outcome)}")
        if result.repro:
            yield "  to reproduce, paste into Python:\n", ""
            yield _block(result.repro)
        if self.verbose and result.detail:
            yield f"\n{_block(result.detail)[0]}", ""

    def _capabilities(self) -> Iterator[tuple[str, str]]:
        missing, others = self.digest.missing, self.digest.other_reasons
        if missing or others:
            count = len(self.digest.of(NOT_APPLICABLE))
            yield _head(f"CAPABILITIES: {self.digest.available} are there; {count} scenarios are n/a")
        for one in missing:
            reason = f": {one.reason}" if one.reason else ""
            yield self._field(f"  {one.capability:<15}", f"{one.state}{reason}; {one.scenarios} n/a")
        for why, ids in others.items():
            yield self._field(f"  {'other':<15}", f"{why}; {len(ids)} n/a: {some(ids)}")

    def _table(self) -> Iterator[tuple[str, str]]:
        tallies = [*self.digest.hooks, self.digest.all]
        rows: list[tuple[str, ...]] = [("hook", "ran", *OUTCOMES)]
        rows += [(line(each.name), each.ran, *(str(n or "-") for n in each.counts.values())) for each in tallies]
        table = terminal.aligned(rows, "  ")
        if not self.report.results:
            return
        yield "", ""
        if self.width is not None and self.width < max(map(len, table)):
            first = max(len(row[0]) for row in rows)
            for tally in tallies:
                yield self._field(f"{line(tally.name):<{first}}  ", tally.sentence)
            return
        for place, row in enumerate(table):
            yield row, "" if place else "head"

    def _field(self, lead: str, text: str, hang: int | None = None) -> tuple[str, str]:
        """Return `lead` and `text`: wrapped on a terminal, elsewhere one line, which can be searched for."""
        indent = len(lead) if hang is None else hang
        return "\n".join(terminal.wrapped(f"{lead}{text}".rstrip(), self.width, indent)), ""


def _head(text: str, style: str = "head") -> tuple[str, str]:
    return f"\n{text}", style


def _block(text: str) -> tuple[str, str]:
    rows = clean(text).rstrip("\n").split("\n")
    return "\n".join(f"      {row}".rstrip() for row in rows), ""


def console_of(stream: TextIO) -> Any:
    """Return a console of rich's for a terminal, None elsewhere and without rich."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console  # noqa: PLC0415  (an optional dependency)
    except ImportError:
        return None
    return Console(file=stream, highlight=False)


def write_line(stream: TextIO, console: Any, text: str, style: str) -> None:
    """Write a line, by the console if there is one."""
    text = encodable(stream, text)
    if console is None:
        stream.write(text + "\n")
        return
    # As it is: a message may hold brackets, which rich would read as markup.
    console.print(text, style=style or None, markup=False, emoji=False, soft_wrap=True)


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
        return "".join(f"{self.counts[outcome]} {outcome}  " for outcome in BAD if self.counts[outcome])
