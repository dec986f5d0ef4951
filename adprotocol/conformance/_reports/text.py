"""The report as text: what a terminal shows, and the progress while the suite runs.

What matters most comes first in each part, and the verdict last, where a terminal
leaves the eye. With rich, on a terminal, the same lines are coloured.
"""

from __future__ import annotations

import shutil
import sys
import textwrap
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self, TextIO

from adprotocol.conformance._reports import digest
from adprotocol.conformance._reports.digest import cut, line
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, OUTCOMES, PASS, WRONG, count_ran

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adprotocol.conformance._run.result import Report, Result

_STYLES = {
    WRONG: "bold white on red",
    FAIL: "bold red",
    EXPECTED: "yellow",
    PASS: "green",
    NOT_APPLICABLE: "dim",
    "head": "bold",
    "": "",
}

# How often a bar is drawn, and how often a line is written where there is none.
_REDRAW = 0.1
_LINES = 10


def write(report: Report, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the report; `verbose` adds tracebacks, and the expected failures in full."""
    console = _console(stream)
    width = shutil.get_terminal_size().columns if console else None
    for text, style in _report(report, width, verbose=verbose):
        _write(stream, console, text, _STYLES[style])


def _report(report: Report, width: int | None, *, verbose: bool) -> Iterator[tuple[str, str]]:
    yield f"adprotocol conformance of {digest.title(report)}", "head"
    for name, fact in digest.facts(report).items():
        yield f"  {name:<11}{fact}", ""
    yield from _problems(report, width, verbose=verbose)
    for outcome in (WRONG, FAIL, EXPECTED):
        yield from _listed(report, outcome, width)
    yield from _also_declared(report, width)
    for outcome in (WRONG, FAIL, *([EXPECTED] if verbose else [])):
        for result in digest.listed(report, outcome):
            yield from _full(report, result, width, verbose=verbose)
    yield from _capabilities(report, width)
    yield from _table(report)
    yield from _slowest(report)
    yield "", ""
    yield f"{digest.verdict(report)}: {report.sentence()}", digest.verdict_kind(report)


def _problems(report: Report, width: int | None, *, verbose: bool) -> Iterator[tuple[str, str]]:
    if report.problems:
        yield "", ""
        yield f"PROBLEMS{report.troubled} ({len(report.problems)})", FAIL
    for problem in report.problems:
        yield from _field("  ", f"{line(problem.where)}: {line(problem.message)}", width)
        if verbose:
            yield from _block(problem.detail)


def _listed(report: Report, outcome: str, width: int | None) -> Iterator[tuple[str, str]]:
    results = digest.listed(report, outcome)
    if not results:
        return
    yield "", ""
    yield f"{outcome.upper()} ({len(results)}): {digest.MEANINGS[outcome]}", outcome
    for result in results:
        why = digest.declared(report, result) if outcome == EXPECTED else cut(line(result.message))
        name = line(result.id)
        yield from _field(f"  {digest.SIGNS[outcome]:<2} {name}  {result.level} {result.rule}  ", why, width, hang=5)


def _also_declared(report: Report, width: int | None) -> Iterator[tuple[str, str]]:
    found = digest.also_declared(report)
    if found:
        yield "", ""
        yield f"ALSO DECLARED ({len(found)}): {digest.ALSO}", "head"
    for entry in found:
        remedy = f"; remedy: {line(entry.remedy)}" if entry.remedy else ""
        yield from _field("  ", f"{line(entry.title)}{remedy}", width, hang=5)


def _full(report: Report, result: Result, width: int | None, *, verbose: bool) -> Iterator[tuple[str, str]]:
    yield "", ""
    yield f"{digest.SIGNS[result.outcome]} {result.outcome.upper()}: {line(result.id)}", result.outcome
    fields = {
        "level": digest.standing(result),
        "summary": line(result.summary),
        "expects": line(result.expects),
        "found": line(result.message),
        "declared": digest.declared(report, result) if result.outcome == EXPECTED else "",
        "source": line(result.source),
    }
    for name, value in fields.items():
        if value:
            yield from _field(f"  {name:<9}", value, width)
    if result.repro:
        yield "  to reproduce, paste into Python:", ""
        yield "", ""
        yield from _block(result.repro)
    if verbose and result.detail:
        yield "", ""
        yield from _block(result.detail)


def _capabilities(report: Report, width: int | None) -> Iterator[tuple[str, str]]:
    lacks, others = digest.lacks(report), digest.other_reasons(report)
    if not lacks and not others:
        return
    there = len(report.capabilities) - len(lacks)
    count = report.counts()[NOT_APPLICABLE]
    yield "", ""
    yield f"CAPABILITIES: {there} of {len(report.capabilities)} are there; {count} scenarios are n/a", "head"
    for lack in lacks:
        said = f"{lack.state}{': ' * bool(lack.reason)}{lack.reason}; {lack.scenarios} n/a"
        yield from _field(f"  {lack.capability:<15}", said, width)
    for reason, ids in others.items():
        yield from _field(f"  {'other':<15}", f"{reason}; {len(ids)} n/a: {digest.named(ids)}", width)


def _table(report: Report) -> Iterator[tuple[str, str]]:
    hooks = digest.by_hook(report)
    if not hooks:
        return
    rows: list[tuple[str, ...]] = [("hook", "ran", *OUTCOMES)]
    for hook, results in (*hooks.items(), ("all", list(report.results))):
        counts = Counter(result.outcome for result in results)
        ran = f"{count_ran(results)} of {len(results)}"
        rows.append((line(hook), ran, *(str(counts[outcome] or "-") for outcome in OUTCOMES)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield "", ""
    for place, (name, *cells) in enumerate(rows):
        numbers = "  ".join(cell.rjust(size) for cell, size in zip(cells, widths[1:], strict=True))
        yield f"{name:<{widths[0]}}  {numbers}", "" if place else "head"


def _slowest(report: Report) -> Iterator[tuple[str, str]]:
    slowest = report.slowest()
    if slowest:
        yield "", ""
        yield f"SLOWEST, of {digest.seconds(report.seconds)}", "head"
    for result in slowest:
        yield f"  {digest.seconds(result.seconds):>8}  {line(result.id)}", ""


def _field(lead: str, text: str, width: int | None, hang: int | None = None) -> Iterator[tuple[str, str]]:
    """Yield `lead` and `text`: wrapped to a terminal, else one line, which can be searched for."""
    whole = f"{lead}{text}".rstrip()
    if width is None:
        yield whole, ""
        return
    indent = " " * (len(lead) if hang is None else hang)
    wrapped = textwrap.wrap(
        whole,
        max(width, len(indent) + 40),
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    for row in wrapped:
        yield row, ""


def _block(text: str) -> Iterator[tuple[str, str]]:
    for row in digest.clean(text).rstrip("\n").split("\n"):
        yield f"      {row}".rstrip(), ""


def _console(stream: TextIO) -> Any:
    """Return a console of rich's for a terminal, None elsewhere and without rich."""
    if not stream.isatty():
        return None
    try:
        from rich.console import Console  # noqa: PLC0415  (an optional dependency)
    except ImportError:
        return None
    return Console(file=stream, highlight=False)


def _write(stream: TextIO, console: Any, text: str, style: str) -> None:
    # A stream that cannot write a sign, such as a pipe in the C locale, gets its escape instead of raising.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    if console is None:
        stream.write(text + "\n")
        return
    from rich.text import Text  # noqa: PLC0415  (an optional dependency)

    # As Text, for a message may hold brackets, which rich would read as markup.
    console.print(Text(text, style=style), soft_wrap=True)


class Progress:
    """Show how far a run is: a bar on a terminal with rich, elsewhere a line for each tenth.

    No thread draws it, for the suite looks at threads.

    Args:
        total: how many scenarios are to run, if that is known yet; else call `start`.
        stream: where to write; standard error unless given.
    """

    def __init__(self, total: int = 0, stream: TextIO | None = None) -> None:
        self.total = total
        self.stream = sys.stderr if stream is None else stream
        self.counts: Counter[str] = Counter()
        self._console = _console(self.stream)
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
                # The last, for a long id leaves no room to what follows it.
                progress.TextColumn("{task.description}", markup=False),
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
            )
            self._bar.add_task("the harness is being checked", total=self.total or None)
            self._bar.start()
            self._bar.refresh()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def start(self, total: int) -> None:
        """Say how many scenarios are to run."""
        self.total = total

    def advance(self, result: Result) -> None:
        """Count a result, and show it if it is time."""
        before = self.counts.total()
        self.counts[result.outcome] += 1
        if self._bar is None:
            self._line(before)
            return
        now = time.monotonic()
        due = now - self._drawn >= _REDRAW
        self._drawn = now if due else self._drawn
        (task,) = self._bar.task_ids
        said = f"{self._bad()}{cut(line(result.id), 60)}"
        self._bar.update(task, advance=1, total=self.total or None, description=said, refresh=due)

    def _line(self, before: int) -> None:
        done = self.counts.total()
        if not self.total or before * _LINES // self.total == done * _LINES // self.total:
            return
        spent = digest.seconds(time.monotonic() - self._begin)
        said = f"{done} of {self.total} scenarios, {spent}  {self._bad()}".rstrip()
        _write(self.stream, None, said, "")
        self.stream.flush()

    def _bad(self) -> str:
        return "".join(f"{self.counts[outcome]} {outcome}  " for outcome in (WRONG, FAIL) if self.counts[outcome])
