"""The report as Markdown, to publish: silently wrong first, every scenario last, and nothing that breaks a table."""

from __future__ import annotations

import html
import re
from collections import Counter
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import digest, matrix
from adprotocol.conformance._reports.digest import clean, line
from adprotocol.conformance._run.result import EXPECTED, FAIL, OUTCOMES, PASS, WRONG, count_ran

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from adprotocol.conformance._run.result import Divergence, Report, Result


def to_markdown(report: Report) -> str:
    """Return the report as a Markdown document for GitHub, MyST and CommonMark with tables."""
    parts = (
        _head(report),
        _problems(report),
        _failures(report, WRONG),
        _failures(report, FAIL),
        _expected(report),
        _also_declared(report),
        _matrix(report),
        _capabilities(report),
        _slowest(report),
        _every(report),
    )
    return "\n".join(row for part in parts for row in part)


def escape(text: str) -> str:
    """Return text on one line in which Markdown and HTML find nothing of theirs, in a table or outside of one."""
    safe = re.sub(r"[\\`*_\[\]|~$#]", r"\\\g<0>", line(text))
    return safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """Return text as a code span for a table; a text that a span in a table cannot hold is escaped instead."""
    text = line(text)
    return escape(text) if not text or "`" in text or "|" in text or "\\" in text else f"`{text}`"


def fenced(text: str, language: str = "") -> str:
    """Return text as a block of code, whatever fences it holds."""
    text = clean(text).rstrip("\n")
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def table(rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table whose first row is the head; the cells have to be escaped."""
    for place, row in enumerate(rows):
        cells = list(row)
        yield f"| {' | '.join(cells)} |"
        if not place:
            yield f"|{' --- |' * len(cells)}"
    yield ""


def _head(report: Report) -> Iterator[str]:
    yield f"# Conformance of {escape(digest.title(report))}"
    yield ""
    yield f"**{digest.verdict(report)}**: {escape(report.sentence())}."
    yield ""
    rows: list[tuple[str, ...]] = [("level", "ran", *OUTCOMES)]
    for level, results in digest.by_level(report).items():
        counts = Counter(result.outcome for result in results)
        rows.append(
            (
                level,
                f"{count_ran(results)} of {len(results)}",
                *(_count(outcome, counts[outcome]) for outcome in OUTCOMES),
            )
        )
    yield from table(rows)
    yield from table([("", ""), *((name, escape(fact)) for name, fact in digest.facts(report).items())])


def _count(outcome: str, number: int) -> str:
    if not number:
        return "0" if outcome == WRONG else "-"
    return f"**{digest.SIGNS[outcome]} {number}**" if outcome in (WRONG, FAIL) else str(number)


def _problems(report: Report) -> Iterator[str]:
    if not report.problems:
        return
    yield f"## Problems{report.troubled}"
    yield ""
    for problem in report.problems:
        yield f"- **{escape(problem.where)}**: {escape(problem.message)}"
    yield ""
    for problem in report.problems:
        if problem.detail:
            yield from _details(f"Traceback: {line(problem.message)}", problem.detail, "text")


def _failures(report: Report, outcome: str) -> Iterator[str]:
    results = digest.listed(report, outcome)
    if not results and outcome != WRONG:
        return
    yield f"## {outcome.capitalize()}: {len(results)}"
    yield ""
    if results:
        yield f"{digest.MEANINGS[outcome].capitalize()}."
    else:
        yield digest.none_wrong(report)
    yield ""
    for result in results:
        yield from _full(result)


def _full(result: Result) -> Iterator[str]:
    yield f"### {digest.SIGNS[result.outcome]} {code(result.id)}"
    yield ""
    yield f"- **level**: {escape(digest.standing(result))}"
    yield f"- **summary**: {escape(result.summary)}"
    yield f"- **expects**: {escape(result.expects)}"
    yield f"- **found**: {escape(result.message)}"
    yield f"- **source**: {escape(result.source)}"
    yield ""
    if result.repro:
        yield from _details("To reproduce, paste into Python", result.repro, "python")
    if result.detail:
        yield from _details("Traceback", result.detail, "text")


def _details(summary: str, text: str, language: str) -> Iterator[str]:
    yield _unfolds(html.escape(line(summary), quote=False))
    yield ""
    yield fenced(text, language)
    yield ""
    yield "</details>"
    yield ""


def _unfolds(summary: str) -> str:
    # Up to the next empty line this is HTML, in which Markdown's escapes would be shown.
    return f"<details><summary>{summary}</summary>"


def _expected(report: Report) -> Iterator[str]:
    groups = digest.by_divergence(report)
    if not groups:
        return
    yield f"## Expected failures: {sum(map(len, groups.values()))}"
    yield ""
    yield f"{digest.MEANINGS[EXPECTED].capitalize()}."
    yield ""
    found = {divergence.name: divergence for divergence in report.divergences}
    for name, results in groups.items():
        divergence = found.get(name)
        yield f"### {' '.join(_prose(divergence.title).split()) if divergence else escape(name)}"
        yield ""
        if divergence:
            yield from _told(divergence)
        yield from table(
            [
                ("scenario", "level", "rule", "found"),
                *((code(result.id), result.level, result.rule, escape(result.message)) for result in results),
            ]
        )


def _told(divergence: Divergence) -> Iterator[str]:
    remedy = f" Remedy: {escape(divergence.remedy)}." if divergence.remedy else ""
    yield f"*{digest.how(divergence)}*{remedy}"
    yield ""
    for kind, text in digest.blocks(divergence.text):
        yield _prose(text) if kind == "prose" else fenced(text)
        yield ""


def _also_declared(report: Report) -> Iterator[str]:
    found = digest.also_declared(report)
    if not found:
        return
    yield f"## Also declared: {len(found)}"
    yield ""
    yield f"{digest.ALSO.capitalize()}."
    yield ""
    for divergence in found:
        yield _unfolds(digest.spans(line(divergence.title)))
        yield ""
        yield from _told(divergence)
        yield "</details>"
        yield ""


def _prose(markdown: str) -> str:
    """Return an author's Markdown as it is, but for HTML, which could swallow what follows."""
    parts = re.split(r"(`[^`]+`)", clean(markdown))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def _matrix(report: Report) -> Iterator[str]:
    if report.results:
        yield "## Support matrix"
        yield ""
        yield matrix.to_markdown(matrix.Matrix.of([report]))


def _capabilities(report: Report) -> Iterator[str]:
    lacks, others = digest.lacks(report), digest.other_reasons(report)
    if not lacks and not others:
        return
    yield "## Not applicable"
    yield ""
    yield digest.not_applicable(report)
    yield ""
    rows = [("capability", "state", "reason", "scenarios")]
    rows += [(code(lack.capability), lack.state, escape(lack.reason), str(lack.scenarios)) for lack in lacks]
    rows += [
        ("other", "", f"{escape(reason)}: {digest.named(ids, code)}", str(len(ids))) for reason, ids in others.items()
    ]
    yield from table(rows)


def _slowest(report: Report) -> Iterator[str]:
    slowest = report.slowest()
    if slowest:
        yield f"## Slowest, of {digest.seconds(report.seconds)}"
        yield ""
        rows = [(code(result.id), digest.seconds(result.seconds)) for result in slowest]
        yield from table([("scenario", "time"), *rows])


def _every(report: Report) -> Iterator[str]:
    yield "## Every scenario"
    yield ""
    if not report.results:
        yield "None ran."
        yield ""
    for hook, results in digest.by_hook(report).items():
        said = digest.summary(result.outcome for result in results)
        yield _unfolds(html.escape(f"{line(hook)}: {count_ran(results)} of {len(results)} ran: {said}", quote=False))
        yield ""
        yield from table([("scenario", "level", "rule", "outcome", "time"), *map(_row, results)])
        yield "</details>"
        yield ""


def _row(result: Result) -> tuple[str, ...]:
    staged = " (staged)" if result.staged and result.outcome == PASS else ""
    said = f"{digest.SIGNS[result.outcome]} {result.outcome}{staged}".replace("~", r"\~")
    said = f"**{said}**" if result.bad else said
    return (code(result.id), result.level, result.rule, said, digest.spent(result) or "-")
