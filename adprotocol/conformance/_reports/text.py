"""The summary of a run for a terminal: what is silently wrong first, the verdict last, where the prompt will be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

from adprotocol._cli import terminal
from adprotocol.conformance._reports.entries import BAD, MEANINGS, entries, missing, other_reasons
from adprotocol.conformance._reports.words import clean, cut, encodable, line, some
from adprotocol.conformance._run.result import EXPECTED, NOT_APPLICABLE, OUTCOMES, RUN, THERE, counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adprotocol.conformance._run.result import Report, Result

__all__ = ["TextIO", "encodable", "write"]


def write(report: Report, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the summary; `verbose` adds tracebacks."""
    width = terminal.width_of(stream)
    for text in _lines(report, verbose=verbose):
        whole = "\n".join(terminal.wrapped(text, width, 5)) if "\n" not in text else text
        stream.write(encodable(stream, whole) + "\n")


def _lines(report: Report, *, verbose: bool) -> Iterator[str]:
    yield f"adprotocol conformance of {line(report.title)}"
    if report.problems:
        yield f"\nPROBLEMS ({len(report.problems)})"
    for problem in report.problems:
        yield f"  {line(problem.where)}: {line(problem.message)}"
        if verbose and problem.detail:
            yield _block(problem.detail)
    for outcome in (*BAD, EXPECTED):
        found = entries(report, outcome)
        if found:
            yield f"\n{outcome.upper()} ({sum(map(len, found))}): {MEANINGS[outcome]}"
        for results in found:
            first, names = results[0], [result.id for result in results]
            reason = line(report.reason(first))
            shown = line(first.id) if len(names) == 1 else f"{len(names)} scenarios, {some(names)}"
            yield f"  {shown}  {first.level} {first.rule}: {cut(reason) if outcome == EXPECTED else reason}"
    for outcome in BAD:
        for results in entries(report, outcome):
            yield from _repro(results[0], verbose=verbose)
    yield from _capabilities(report)
    yield from _table(report)
    yield f"\n{'PASS' if report.ok else 'FAIL'}: {report.sentence()}"
    if not report.ok:
        yield f"next: {_advice(report)}"


def _repro(result: Result, *, verbose: bool) -> Iterator[str]:
    if result.repro:
        yield f"\n{result.outcome}: {line(result.id)}: {line(result.description)}"
        yield f"  source: {line(result.source)}"
        yield f"  to reproduce, paste into Python:\n\n{_block(result.repro)}"
    if verbose and result.detail:
        yield f"\n{_block(result.detail)}"


def _capabilities(report: Report) -> Iterator[str]:
    absent, others = missing(report), other_reasons(report)
    if absent or others:
        there = sum(state == THERE for state in report.capabilities.values())
        count = counts(report.results)[NOT_APPLICABLE]
        yield f"\nCAPABILITIES: {there} of {len(report.capabilities)} are there; {count} scenarios are n/a"
    for name, (state, needed) in absent.items():
        yield f"  {line(name):<15}{line(state)}; {needed} n/a"
    for reason, names in others.items():
        yield f"  {'other':<15}{reason}; {len(names)} n/a: {some(names)}"


def _table(report: Report) -> Iterator[str]:
    hooks = dict.fromkeys(result.hook for result in report.results)
    groups = {hook: [result for result in report.results if result.hook == hook] for hook in hooks}
    rows: list[tuple[str, ...]] = [("hook", "ran", *OUTCOMES)]
    for name, results in {**groups, "all": list(report.results)}.items():
        ran = f"{sum(result.applied for result in results)} of {len(results)}"
        rows.append((line(name), ran, *(str(count or "-") for count in counts(results).values())))
    yield ""
    yield from terminal.aligned(rows, "  ")


def _advice(report: Report) -> str:
    """Return what to do next."""
    places = [problem.where for problem in report.problems]
    bad = next(
        (result for outcome in BAD for result in report.results if result.bad and result.outcome == outcome), None
    )
    if RUN in places:
        return "run it again; the report has what ran until then"
    if "harness" in places:
        return "begin with the problems, which come first above, and run it again; -v shows where each is raised"
    if bad is not None:
        remedy = "paste its repro into Python, or " * bool(bad.repro)
        return f"begin with {line(bad.id)}: {remedy}run that alone with its traceback, by -k {line(bad.id)} -v"
    if places:
        return "correct what the plugin declares, as the problems above say, and run it again"
    return "nothing ran: let the harness have the capabilities that are missing, or select other scenarios"


def _block(text: str) -> str:
    return "\n".join(f"      {row}".rstrip() for row in clean(text).rstrip("\n").split("\n"))
