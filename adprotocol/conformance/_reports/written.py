"""The report as Markdown, which a terminal shows in short, and its badge.

What a framework, a plugin or a harness says stands in indented blocks, in which neither Markdown nor HTML finds markup.
"""

from __future__ import annotations

import json
import re
import textwrap
from typing import TYPE_CHECKING

from adprotocol._cli import terminal
from adprotocol.conformance._reports.entries import BAD, MEANINGS, entries, missing, other_reasons
from adprotocol.conformance._reports.words import clean, line, some
from adprotocol.conformance._run.result import EXPECTED, OUTCOMES, PASS, Report, counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from adprotocol.conformance._run.result import Result


def to_markdown(report: Report) -> str:
    """Return the report as a Markdown document."""
    rows = [(each.outcome, each.level, each.rule, each.id, report.reason(each)) for each in report.results]
    every = ["", f"## Every scenario: {len(rows)}", "", *_block("  ".join(map(line, row)) for row in rows)]
    return "\n".join([*summary(report, verbose=True), *every]) + "\n"


def summary(report: Report, *, verbose: bool = False) -> Iterator[str]:
    """Yield the lines of a report but the list of every scenario; `verbose` adds tracebacks and declarations."""
    yield f"# adprotocol conformance of {escaped(report.title)}\n"
    yield from _block(map(line, report.tested))
    if report.since:
        yield f"\n## Changed since {escaped(report.since)}: {len(report.changes)}\n"
        yield from _block(f"{line(name)}: {then} -> {now}" for name, then, now in report.changes)
    if report.problems:
        yield f"\n## Problems: {len(report.problems)}\n"
    for problem in report.problems:
        yield from _block([f"{line(problem.where)}: {line(problem.message)}", *(problem.detail,) * verbose])
    for outcome in (*BAD, EXPECTED):
        groups = entries(report, outcome)
        if groups:
            yield f"\n## {outcome.capitalize()}: {sum(map(len, groups))} ({MEANINGS[outcome]})"
        for results in groups:
            yield from _entry(report, results, verbose=verbose)
    yield from _capabilities(report)
    hooks = dict.fromkeys(result.hook for result in report.results)
    rows: list[tuple[str, ...]] = [("hook", "ran", *OUTCOMES)]
    for name, hook in [*((hook, hook) for hook in hooks), ("all", "")]:
        results = [result for result in report.results if hook in ("", result.hook)]
        ran = f"{sum(result.applied for result in results)} of {len(results)}"
        rows.append((line(name), ran, *(str(count or "-") for count in counts(results).values())))
    yield ""
    yield from _block(terminal.aligned(rows, "  "))
    yield f"\n{'PASS' if report.ok else 'FAIL'}: {report.sentence()}"
    if not report.ok:
        yield "\nnext: begin with what comes first above; -k ID -v runs one scenario alone and shows its traceback"


def _entry(report: Report, results: list[Result], *, verbose: bool) -> Iterator[str]:
    """Yield what is said of results with one cause."""
    first, names = results[0], [result.id for result in results]
    declared = report.divergence_of(first) if first.outcome == EXPECTED else None
    heading = declared.title if declared is not None else f"{first.level} {first.rule}: {first.description}"
    yield f"\n### {some(names)}\n\n{line(heading)}\n"
    yield from _block([line(report.reason(first)), f"source: {line(first.source)}"])
    if declared is not None and verbose:
        yield f"\n{clean(declared.text).strip()}"
    if first.repro:
        yield from ("\nTo reproduce, paste into Python:\n", *_block([first.repro]))
    if verbose and first.detail:
        yield from ("\nTraceback:\n", *_block([first.detail]))
    if verbose and len(names) > 1:
        yield from (f"\nAll {len(names)}:\n", *_block(names))


def _capabilities(report: Report) -> Iterator[str]:
    states = [f"{name}  {line(state)}; {needed} n/a" for name, (state, needed) in missing(report).items()]
    others = [f"other  {reason}; {len(names)} n/a: {some(names)}" for reason, names in other_reasons(report).items()]
    if states or others:
        there = len(report.capabilities) - len(states)
        yield f"\n## Capabilities: {there} of {len(report.capabilities)} are there\n"
        yield from _block([*states, *others])


def _block(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield textwrap.indent(clean(text).rstrip("\n"), "    ")


def escaped(text: str) -> str:
    """Return text on one line in which neither Markdown nor HTML finds markup, inside a table or outside."""
    safe = re.sub(r"[\\`*_\[\]|~$#]", r"\\\g<0>", line(text))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def to_badge(report: Report) -> str:
    """Return the badge as the JSON that badge services read (an endpoint badge of shields.io).

    It shows how many scenarios passed, or how many have the worst outcome.
    """
    count = counts(report.results)
    worst = next((f"{count[outcome]} {outcome}" for outcome in BAD if count[outcome]), "a problem")
    passed = f"{count[PASS]}/{report.ran}" + f", {count[EXPECTED]} declared" * bool(count[EXPECTED])
    # Unless it says so, a selection would look like the whole suite.
    selected = f" of {report.total} selected" * (len(report.results) < report.total)
    message, colour = (passed + selected, "green") if report.ok else (worst if report.results else "nothing ran", "red")
    # The URL of a badge cannot override the colour of an error.
    data = {"schemaVersion": 1, "label": "adprotocol", "message": message, "color": colour, "isError": not report.ok}
    return json.dumps(data, indent=1) + "\n"
