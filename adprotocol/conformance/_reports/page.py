"""The report as one HTML file that takes nothing from elsewhere: to open, to send, to publish.

All text of the report is escaped. Scripts only filter and copy; without them the
page holds the same.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from importlib import resources
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import digest, matrix, state
from adprotocol.conformance._reports.digest import clean, line
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, OUTCOMES, PASS, WRONG, count_ran
from adprotocol.conformance.scenario import LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from adprotocol.conformance._run.result import Divergence, Problem, Report, Result

# An outcome has the colours of the state of a cell with nothing else in it.
_KINDS: Mapping[str, str] = {
    WRONG: state.kind(state.SILENT),
    FAIL: state.kind(state.LOUD),
    EXPECTED: state.kind(state.DECLARED),
    PASS: state.kind(state.RIGHT),
    NOT_APPLICABLE: state.kind(state.ABSENT),
}

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def to_html(report: Report) -> str:
    """Return the page."""
    return "\n".join(_page(report)) + "\n"


def _page(report: Report) -> Iterator[str]:
    name = f"Conformance of {digest.title(report)}"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<link rel="icon" href="data:,">'
    yield f"<title>{_escaped(name)}: {digest.verdict(report)}</title>"
    yield f"<style>\n{_file('page.css')}{state.css('.chip')}\n</style>\n</head>\n<body>\n<main>"
    yield f"<h1>{_escaped(name)}</h1>"
    yield from _head(report)
    yield from _problems(report)
    yield from _failures(report, WRONG)
    yield from _failures(report, FAIL)
    yield from _expected(report)
    yield from _also_declared(report)
    yield from _matrix(report)
    yield from _capabilities(report)
    yield from _slowest(report)
    yield from _every(report)
    yield f"</main>\n<script>\n{_file('page.js')}</script>\n</body>\n</html>"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _escaped(text: str) -> str:
    return html.escape(line(text))


def _code(text: str) -> str:
    return f"<code>{_escaped(text)}</code>"


def _pre(text: str, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<pre tabindex="0"{styled}>{html.escape(clean(text).rstrip())}</pre>'


def _chip(outcome: str, *, staged: bool = False) -> str:
    said = f"{outcome}, staged" if staged else outcome
    return f'<span class="chip {_KINDS[outcome]}">{digest.SIGNS[outcome]} {html.escape(said)}</span>'


def _section(heading: str, rows: Iterable[str]) -> Iterator[str]:
    yield f"<section>\n<h2>{_escaped(heading)}</h2>"
    yield from rows
    yield "</section>"


def _table(caption: str, heads: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield a table; the cells have to be HTML, and the first of each row is its head."""
    yield f'<div class="scroll"><table class="plain">\n<caption>{_escaped(caption)}</caption>'
    yield _heads(heads)
    for first, *rest in rows:
        yield f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
    yield "</tbody>\n</table></div>"


def _heads(heads: Iterable[str]) -> str:
    cells = (f'<th scope="col">{_escaped(head)}</th>' for head in heads)
    return f"<thead><tr>{''.join(cells)}</tr></thead>\n<tbody>"


def _head(report: Report) -> Iterator[str]:
    kind = _KINDS[digest.verdict_kind(report) if report.ok else WRONG]
    sign = digest.SIGNS[PASS if report.ok else FAIL]
    yield f'<p><span class="chip verdict {kind}">{sign} {digest.verdict(report)}</span></p>'
    yield f"<p>{_escaped(report.sentence())}.</p>"
    yield "<dl>"
    for name, fact in digest.facts(report).items():
        yield f"<dt>{name}</dt><dd>{_escaped(fact)}</dd>"
    yield "</dl>"
    rows = []
    for level, results in digest.by_level(report).items():
        counts = Counter(result.outcome for result in results)
        cells = (str(counts[outcome]) for outcome in OUTCOMES)
        rows.append((level, f"{count_ran(results)} of {len(results)}", *cells))
    yield from _table("Outcomes by level", ("level", "ran", *OUTCOMES), rows)


def _problems(report: Report) -> Iterator[str]:
    if report.problems:
        yield from _section(f"Problems{report.troubled}", map(_problem, report.problems))


def _problem(problem: Problem) -> str:
    detail = f"<details><summary>Traceback</summary>{_pre(problem.detail)}</details>" if problem.detail else ""
    return f'<div class="failure"><b>{_escaped(problem.where)}</b>: {_escaped(problem.message)}{detail}</div>'


def _failures(report: Report, outcome: str) -> Iterator[str]:
    results = digest.listed(report, outcome)
    if results:
        meaning = f"<p>{digest.MEANINGS[outcome].capitalize()}.</p>"
        shown = (row for result in results for row in _failure(report, result))
        yield from _section(f"{outcome.capitalize()}: {len(results)}", [meaning, *shown])
    elif outcome == WRONG:
        yield from _section(f"{outcome.capitalize()}: 0", [f"<p>{digest.none_wrong(report)}</p>"])


def _failure(report: Report, result: Result) -> Iterator[str]:
    yield f'<article class="failure" id="{_anchor(report, result)}">'
    yield f"<h3>{_chip(result.outcome)} {_code(result.id)}</h3>"
    yield "<dl>"
    fields = {
        "level": digest.standing(result),
        "summary": result.summary,
        "expects": result.expects,
        "found": result.message,
        "source": result.source,
    }
    for name, value in fields.items():
        yield f"<dt>{name}</dt><dd>{_escaped(value)}</dd>"
    yield "</dl>"
    if result.repro:
        yield f"<details open><summary>To reproduce, paste into Python</summary>{_pre(result.repro, 'repro')}</details>"
    if result.detail:
        yield f"<details><summary>Traceback</summary>{_pre(result.detail)}</details>"
    yield "</article>"


def _anchor(report: Report, result: Result) -> str:
    # Not the id, in which a variant may have any character.
    return f"failure-{next(place for place, each in enumerate(report.results) if each is result)}"


def _expected(report: Report) -> Iterator[str]:
    groups = digest.by_divergence(report)
    if not groups:
        return
    found = {divergence.name: divergence for divergence in report.divergences}
    rows = [f"<p>{digest.MEANINGS[EXPECTED].capitalize()}.</p>"]
    for name, results in groups.items():
        rows.append('<article class="failure">')
        rows.append(f"<h3>{digest.spans(line(found[name].title)) if name in found else _escaped(name)}</h3>")
        rows.extend(_told(found[name]) if name in found else [])
        cells = ((_code(result.id), result.level, result.rule, _escaped(result.message)) for result in results)
        rows.extend(_table("Scenarios that fail because of it", ("scenario", "level", "rule", "found"), cells))
        rows.append("</article>")
    yield from _section(f"Expected failures: {sum(map(len, groups.values()))}", rows)


def _also_declared(report: Report) -> Iterator[str]:
    found = digest.also_declared(report)
    if not found:
        return
    rows = [f"<p>{digest.ALSO.capitalize()}.</p>"]
    for divergence in found:
        rows.append(f"<details><summary>{digest.spans(line(divergence.title))}</summary>")
        rows.extend(_told(divergence))
        rows.append("</details>")
    yield from _section(f"Also declared: {len(found)}", rows)


def _told(divergence: Divergence) -> Iterator[str]:
    remedy = f" Remedy: {_escaped(divergence.remedy)}." if divergence.remedy else ""
    yield f"<p><i>{digest.how(divergence)}</i>{remedy}</p>"
    for kind, text in digest.blocks(divergence.text):
        if kind == "code":
            yield _pre(text)
        else:
            yield from (f"<p>{digest.spans(paragraph)}</p>" for paragraph in re.split(r"\n\s*\n", text))


def _matrix(report: Report) -> Iterator[str]:
    if report.results:
        made = matrix.Matrix.of([report])
        table = f'<details><summary>As a table</summary><div class="scroll">{matrix.to_html(made)}</div></details>'
        yield from _section("Support matrix", [f'<div class="scroll">{matrix.to_svg(made)}</div>', table])


def _capabilities(report: Report) -> Iterator[str]:
    lacks, others = digest.lacks(report), digest.other_reasons(report)
    if not lacks and not others:
        return
    rows = [(_code(lack.capability), lack.state, _escaped(lack.reason), str(lack.scenarios)) for lack in lacks]
    rows += [
        ("other", "", f"{_escaped(reason)}: {digest.named(ids, _code)}", str(len(ids)))
        for reason, ids in others.items()
    ]
    said = f"<p>{digest.not_applicable(report)}</p>"
    heads = ("capability", "state", "reason", "scenarios")
    yield from _section("Not applicable", [said, *_table("Capabilities that are not there", heads, rows)])


def _slowest(report: Report) -> Iterator[str]:
    slowest = report.slowest()
    if slowest:
        rows = ((_code(result.id), digest.seconds(result.seconds)) for result in slowest)
        heads = ("scenario", "time")
        yield from _section(f"Slowest, of {digest.seconds(report.seconds)}", _table("The slowest", heads, rows))


def _every(report: Report) -> Iterator[str]:
    heads = ("outcome", "scenario", "level", "rule", "under", "found", "time")
    rows = [
        *_filters(report),
        '<div class="scroll"><table class="plain" id="scenarios">',
        "<caption>Every scenario, the worst outcomes first</caption>",
        _heads(heads),
        *(_row(report, result) for result in report.sorted()),
        "</tbody>\n</table></div>",
    ]
    yield from _section("Every scenario", rows if report.results else ["<p>None ran.</p>"])


def _filters(report: Report) -> Iterator[str]:
    yield '<form class="filters" hidden>'
    chosen = {
        "outcome": (Counter(result.outcome for result in report.results), OUTCOMES),
        "level": (Counter(result.level for result in report.results), LEVELS),
        "hook": (Counter(result.hook for result in report.results), tuple(digest.by_hook(report))),
    }
    for name, (counts, values) in chosen.items():
        options = "".join(
            f'<option value="{_escaped(value)}">{_escaped(value)} ({counts[value]})</option>'
            for value in values
            if counts[value]
        )
        yield f'<label>{name}<select name="{name}"><option value="">all</option>{options}</select></label>'
    yield '<label>words<input type="search" name="text" placeholder="grad of jit"></label>'
    yield '<button type="reset">Reset</button><output aria-live="polite"></output>\n</form>'


def _row(report: Report, result: Result) -> str:
    found = digest.declared(report, result) if result.outcome == EXPECTED else digest.cut(line(result.message))
    name = _code(result.id)
    if result.outcome in (WRONG, FAIL):
        name = f'<a href="#{_anchor(report, result)}">{name}</a>'
    cells = (
        f"<td>{_chip(result.outcome, staged=result.staged and result.outcome == PASS)}</td>",
        f'<th scope="row">{name}<br><span class="faint">{_escaped(result.summary)}</span></th>',
        f"<td>{_escaped(result.level)}</td>",
        f"<td>{_escaped(result.rule)}</td>",
        f"<td>{_escaped(result.transform)}</td>",
        f"<td>{html.escape(found)}</td>",
        f'<td class="number">{digest.spent(result)}</td>',
    )
    data = {"outcome": result.outcome, "level": result.level, "hook": result.hook}
    marks = "".join(f' data-{key}="{_escaped(value)}"' for key, value in data.items())
    return f"<tr{marks}>{''.join(cells)}</tr>"
