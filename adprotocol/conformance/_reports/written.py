"""The report as Markdown, and its badge."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from adprotocol.conformance._reports.entries import BAD, MEANINGS, entries, missing, other_reasons
from adprotocol.conformance._reports.words import clean, line, some
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, PASS, WRONG, counts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adprotocol.conformance._run.result import Report


def to_markdown(report: Report) -> str:
    """Return the report as a Markdown document for GitHub, MyST and CommonMark with tables."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# adprotocol conformance of {escaped(report.title)}\n"
    yield f"**{'PASS' if report.ok else 'FAIL'}**: {escaped(report.sentence())}.\n"
    yield f"- plugin: {escaped(f'{report.plugin} {report.plugin_version}')}"
    yield f"- device: {escaped(report.device or 'the default')}"
    yield f"- adprotocol {report.adprotocol}, Python {report.python} on {escaped(report.platform)}"
    for problem in report.problems:
        yield f"- **problem**: {escaped(f'{problem.where}: {problem.message}')}"
    for outcome in BAD:
        found = entries(report, outcome)
        if found:
            yield f"\n## {outcome.capitalize()}: {sum(map(len, found))}\n\n{MEANINGS[outcome].capitalize()}.\n"
        for results in found:
            first = results[0]
            yield f"### {escaped(first.id)}\n\n{first.level} {first.rule}: {escaped(first.message)}\n"
            if len(results) > 1:
                yield f"So are {len(results) - 1} more: {escaped(', '.join(result.id for result in results[1:]))}\n"
            if results[0].repro:
                yield fenced(results[0].repro, "python")
    declared = entries(report, EXPECTED)
    if declared:
        yield f"\n## Expected failures: {sum(map(len, declared))}\n"
    for results in declared:
        entry = report.divergence_of(results[0])
        title, text = (clean(entry.title), clean(entry.text).strip()) if entry is not None else ("", "")
        yield f"### {title}\n\n{text}\n"
        yield f"{len(results)} scenarios: {escaped(some([result.id for result in results]))}\n"
    yield "\n## Capabilities\n\n| capability | | scenarios n/a |\n|---|---|---|"
    for name, (state, needed) in missing(report).items():
        yield f"| {escaped(name)} | {escaped(state)} | {needed} |"
    for reason, names in other_reasons(report).items():
        yield f"| {escaped(some(names))} | {escaped(reason)} | {len(names)} |"
    yield f"\n## Every scenario: {len(report.results)}\n"
    yield "| scenario | level | rule | outcome | |\n|---|---|---|---|---|"
    for result in report.results:
        cells = (result.id, result.level, result.rule, result.outcome, report.reason(result))
        yield f"| {' | '.join(map(escaped, cells))} |"


def escaped(text: str) -> str:
    """Return text on one line in which neither Markdown nor HTML finds markup, inside a table or outside."""
    safe = re.sub(r"[\\`*_\[\]|~$#]", r"\\\g<0>", line(text))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def fenced(text: str, language: str = "") -> str:
    """Return text as a Markdown block of code, whatever fences it holds."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{clean(text).rstrip()}\n{fence}\n"


def to_badge(report: Report) -> str:
    """Return the badge as the JSON that badge services read (an endpoint badge of shields.io)."""
    message, colour = _message(report)
    # The URL of a badge cannot override the colour of an error.
    data = {"schemaVersion": 1, "label": "adprotocol", "message": message, "color": colour, "isError": not report.ok}
    return json.dumps(data, indent=1) + "\n"


def _message(report: Report) -> tuple[str, str]:
    """Return the message and the colour: the worst outcome there is, else how many of those that ran passed."""
    count = counts(report.results)
    failed = sum(result.bad for result in report.results if result.outcome == FAIL)
    if count[WRONG] or count[CRASHED]:
        worst = WRONG if count[WRONG] else CRASHED
        return f"{count[worst]} {worst}", "red"
    if failed:
        return f"{failed} of {report.ran + report.blocked} fail", "red"
    if report.problems:
        return f"{len(report.problems)} problem{'s' * (len(report.problems) > 1)}", "orange"
    if not report.ran:
        return "nothing ran", "lightgrey"
    silent = f", {report.declared_wrong} declared silent" if report.declared_wrong else ""
    passed = f"{count[PASS]}/{report.ran}"
    if len(report.results) < report.total:
        # Unless it says so, a selection would look like the whole suite.
        return f"{passed} of {report.total} selected{silent}", "yellow"
    if silent:
        return f"{passed}{silent}", "yellowgreen"
    return f"{passed}, {count[EXPECTED]} declared" if count[EXPECTED] else passed, "green"
