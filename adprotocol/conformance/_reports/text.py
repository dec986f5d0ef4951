"""The report as text: what a terminal shows.

In each part what matters most comes first; the verdict is last, where the prompt
will be. On a terminal that rich knows, the same lines are coloured.
"""

from __future__ import annotations

import shutil
import textwrap
from typing import TYPE_CHECKING, Any, TextIO

from adprotocol.conformance._reports.digest import ALSO, MEANINGS, Digest, Tally
from adprotocol.conformance._reports.looks import SIGNS
from adprotocol.conformance._reports.words import clean, cut, line, seconds, some
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, OUTCOMES, PASS, WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from adprotocol.conformance._reports.entries import Entry
    from adprotocol.conformance._run.result import Report

_STYLES = {
    WRONG: "bold white on red",
    FAIL: "bold red",
    EXPECTED: "yellow",
    PASS: "green",
    NOT_APPLICABLE: "dim",
    "head": "bold",
    "": "",
}


def write(report: Report, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the report; `verbose` adds tracebacks, and the expected failures in full."""
    console = console_of(stream)
    width = shutil.get_terminal_size().columns if console else None
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
        yield f"adprotocol conformance of {self.digest.title}", "head"
        for name, fact in self.digest.facts.items():
            yield f"  {name:<11}{fact}", ""
        yield from self._problems()
        for outcome in (WRONG, FAIL, EXPECTED):
            yield from self._list(outcome)
        yield from self._also_declared()
        for outcome in (WRONG, FAIL, *([EXPECTED] if self.verbose else [])):
            for entry in self.digest.entries[outcome]:
                if entry.first.ran:  # else the problems say all that there is to say
                    yield from self._full(entry)
        yield from self._capabilities()
        yield from self._table()
        yield from self._slowest()
        yield from self._head(f"{self.digest.verdict}: {self.report.sentence()}", self.digest.verdict_outcome)
        if self.digest.advice:
            yield from self._field("next: ", self.digest.advice)

    def _head(self, text: str, style: str = "head") -> Iterator[tuple[str, str]]:
        yield "", ""
        yield text, style

    def _problems(self) -> Iterator[tuple[str, str]]:
        if self.report.problems:
            yield from self._head(f"PROBLEMS{self.report.troubled} ({len(self.report.problems)})", FAIL)
        for problem in self.report.problems:
            yield from self._field("  ", f"{line(problem.where)}: {line(problem.message)}")
            if self.verbose:
                yield from _block(problem.detail)

    def _list(self, outcome: str) -> Iterator[tuple[str, str]]:
        found = self.digest.entries[outcome]
        if found:
            count = sum(len(entry.results) for entry in found)
            yield from self._head(f"{outcome.upper()} ({count}): {MEANINGS[outcome]}", outcome)
        for entry in found:
            reason = line(self.report.reason(entry.first)) if outcome == EXPECTED else cut(line(entry.message))
            result, several = entry.first, len(entry.results) > 1
            who = f"{len(entry.results)} scenarios" if several else f"{line(result.id)}  {result.level} {result.rule}"
            yield from self._field(f"  {SIGNS[outcome]:<2} {who}  ", reason, hang=5)
            if several:
                yield from self._field("     ", self._named(entry.ids, outcome))

    def _named(self, ids: Sequence[str], outcome: str) -> str:
        """Return ids: all of those that are silently wrong, else a few that stand for all."""
        return ", ".join(map(line, ids)) if self.verbose or outcome == WRONG else some(ids)

    def _also_declared(self) -> Iterator[tuple[str, str]]:
        entries = self.digest.also_declared
        if entries:
            yield from self._head(f"ALSO DECLARED ({len(entries)}): {ALSO}")
        for entry in entries:
            yield from self._field("  ", line(entry.brief), hang=5)

    def _full(self, entry: Entry) -> Iterator[tuple[str, str]]:
        result = entry.first
        yield from self._head(f"{SIGNS[result.outcome]} {result.outcome.upper()}: {line(result.id)}", result.outcome)
        fields = {
            "level": self.digest.standing(entry),
            "summary": line(result.summary),
            "expects": line(result.expects),
            "found": line(result.message),
            "declared": line(self.report.reason(result)) if result.outcome == EXPECTED else "",
            "source": line(result.source),
            "also": f"{len(entry.others)} more: {self._named(entry.others, result.outcome)}" if entry.others else "",
        }
        for name, value in fields.items():
            if value:
                yield from self._field(f"  {name:<9}", value)
        if result.repro:
            yield "  to reproduce, paste into Python:", ""
            yield "", ""
            yield from _block(result.repro)
        if self.verbose and result.detail:
            yield "", ""
            yield from _block(result.detail)

    def _capabilities(self) -> Iterator[tuple[str, str]]:
        missing, others = self.digest.missing, self.digest.other_reasons
        if not missing and not others:
            return
        count = len(self.digest.of(NOT_APPLICABLE))
        yield from self._head(f"CAPABILITIES: {self.digest.available} are there; {count} scenarios are n/a")
        for one in missing:
            state = f"{one.state}{': ' * bool(one.reason)}{one.reason}; {one.scenarios} n/a"
            yield from self._field(f"  {one.capability:<15}", state)
        for reason, ids in others.items():
            yield from self._field(f"  {'other':<15}", f"{reason}; {len(ids)} n/a: {some(ids)}")

    def _table(self) -> Iterator[tuple[str, str]]:
        if not self.digest.hooks:
            return
        rows: list[tuple[str, ...]] = [("hook", "ran", *OUTCOMES)]
        rows += [
            (line(tally.name), tally.ran, *(str(count or "-") for count in tally.counts.values()))
            for tally in (*self.digest.hooks, Tally("all", self.report.results))
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        yield "", ""
        if self.width is not None and self.width < sum(widths) + 2 * len(widths[1:]):
            for name, ran, *counts in rows[1:]:
                named = [f"{count} {outcome}" for outcome, count in zip(OUTCOMES, counts, strict=True) if count != "-"]
                yield from self._field(f"{name:<{widths[0]}}  ", f"{ran} ran: {', '.join(named)}")
            return
        for place, (name, *cells) in enumerate(rows):
            numbers = "  ".join(cell.rjust(size) for cell, size in zip(cells, widths[1:], strict=True))
            yield f"{name:<{widths[0]}}  {numbers}", "" if place else "head"

    def _slowest(self) -> Iterator[tuple[str, str]]:
        slowest = self.report.slowest()
        if slowest:
            yield from self._head(f"SLOWEST, of {seconds(self.report.seconds)}")
        for result in slowest:
            yield f"  {seconds(result.seconds):>8}  {line(result.id)}", ""

    def _field(self, lead: str, text: str, hang: int | None = None) -> Iterator[tuple[str, str]]:
        """Yield `lead` and `text`: wrapped on a terminal, elsewhere one line, which can be searched for."""
        whole = f"{lead}{text}".rstrip()
        if self.width is None:
            yield whole, ""
            return
        indent = " " * (len(lead) if hang is None else hang)
        wrapped = textwrap.wrap(
            whole,
            max(self.width, len(indent) + 40),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for row in wrapped:
            yield row, ""


def _block(text: str) -> Iterator[tuple[str, str]]:
    for row in clean(text).rstrip("\n").split("\n"):
        yield f"      {row}".rstrip(), ""


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
    # A stream that cannot write a sign, such as a pipe in the C locale, gets its escape; it must not raise.
    encoding = getattr(stream, "encoding", None) or "utf-8"
    text = text.encode(encoding, "backslashreplace").decode(encoding)
    if console is None:
        stream.write(text + "\n")
        return
    from rich.text import Text  # noqa: PLC0415  (an optional dependency)

    # As Text: a message may hold brackets, which rich would read as markup.
    console.print(Text(text, style=style), soft_wrap=True)
