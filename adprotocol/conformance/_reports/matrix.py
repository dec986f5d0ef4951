"""The support matrix: what each hook does under each transformation, of one report or of several side by side.

A row is a nesting of transformations, a column a hook of a backend. A cell shows
the worst of what came of its scenarios. `to_svg` draws it (in
`adprotocol.conformance._reports.picture`); Markdown and HTML are written here.
"""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from adprotocol.conformance._reports import digest
from adprotocol.conformance._reports.picture import to_svg
from adprotocol.conformance._reports.state import (
    ABSENT,
    DECLARED,
    LOOKS,
    LOUD,
    RIGHT,
    SHOWN,
    SILENT,
    STAGED,
    STATES,
    css,
    kind,
)
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, WRONG, count_ran
from adprotocol.conformance.scenario import HOOKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adprotocol.conformance._run.result import Report, Result

__all__ = ["GROUPS", "NO_TRANSFORM", "Cell", "Matrix", "state_of", "to_html", "to_markdown", "to_svg"]

# The row of the scenarios that are about no transformation.
NO_TRANSFORM = "no transform"
GROUPS = ("one transform or none", "two, nested", "three and more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Hold what came of the scenarios of one hook under one nesting on one backend.

    Attributes:
        state: one of `adprotocol.conformance._reports.state.STATES`.
        passed: how many passed, staged ones included.
        ran: how many applied and ran.
        ids: the ids of all, also of those that do not apply.
        reasons: the id of each that did not pass, with the title of the divergence or what went wrong.
    """

    state: str
    passed: int
    ran: int
    ids: tuple[str, ...]
    reasons: Mapping[str, str]

    @property
    def sentence(self) -> str:
        """Return what a reader is told of the cell: the state, how many of how many, which failed and which did not."""
        none = self.state == ABSENT
        said = f"{len(self.ids)} scenario(s)" if none else f"{self.passed} of {self.ran} scenario(s) passed"
        others = (name for name in self.ids if name not in self.reasons)
        return "\n".join([f"{self.state}: {said}", *(": ".join(item) for item in self.reasons.items()), *others])


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Hold the cells by row, hook and backend; there is none where no scenario asks.

    Attributes:
        rows: the nestings, single transformations first, then pairs, then the rest.
        hooks: the hooks that have a cell.
        backends: the names of the reports, made different where they are not.
        versions: the version of each backend's framework, or an empty text.
        totals: how many scenarios of each backend are in each state, those of no transform included.
    """

    rows: tuple[str, ...]
    hooks: tuple[str, ...]
    backends: tuple[str, ...]
    versions: Mapping[str, str]
    cells: Mapping[tuple[str, str, str], Cell]
    totals: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, reports: Sequence[Report], *, plain: bool = True) -> Self:
        """Return the matrix of some reports; `plain` adds the row of what is about no transform."""
        names = _names(reports)
        found: dict[tuple[str, str, str], dict[str, str]] = {}
        reasons: dict[tuple[str, str, str], dict[str, str]] = {}
        ran: Counter[tuple[str, str, str]] = Counter()
        totals: dict[str, Counter[str]] = {name: Counter() for name in names}
        rows: dict[str, None] = {}
        for name, report in zip(names, reports, strict=True):
            for result in report.results:
                said = state_of(report, result)
                totals[name][said] += 1
                if not (result.transform or plain):
                    continue
                row = digest.line(result.transform) or NO_TRANSFORM
                key = (row, result.hook, name)
                rows.setdefault(row)
                found.setdefault(key, {})[result.id] = said
                ran[key] += count_ran([result])
                if said in (SILENT, DECLARED, LOUD):
                    reasons.setdefault(key, {})[result.id] = _reason(report, result)
        hooks = {hook for _, hook, _ in found}
        return cls(
            rows=tuple(sorted(rows, key=lambda row: (row != NO_TRANSFORM, _depth(row)))),
            hooks=tuple(sorted(hooks, key=lambda hook: (HOOKS.index(hook) if hook in HOOKS else len(HOOKS), hook))),
            backends=names,
            versions={name: report.framework_version or "" for name, report in zip(names, reports, strict=True)},
            cells={key: _cell(states, reasons.get(key, {}), ran[key]) for key, states in found.items()},
            totals={name: {each: counted[each] for each in STATES} for name, counted in totals.items()},
        )

    def groups(self) -> dict[str, list[str]]:
        """Return the rows by the number of transformations, in the order of `GROUPS`; empty groups are left out."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            found.setdefault(GROUPS[_depth(row) - 1], []).append(row)
        return found


def state_of(report: Report, result: Result) -> str:
    """Return the state that a result gives to its cell."""
    if result.outcome == NOT_APPLICABLE:
        return ABSENT
    if result.outcome == WRONG:
        return SILENT
    if result.outcome == EXPECTED:
        outcomes = {divergence.name: divergence.outcome for divergence in report.divergences}
        return LOUD if outcomes.get(result.divergence) == "error" else DECLARED
    if result.outcome == FAIL:
        return LOUD
    return STAGED if result.staged else RIGHT


def _cell(states: Mapping[str, str], reasons: Mapping[str, str], ran: int) -> Cell:
    found = set(states.values())
    return Cell(
        state=next(each for each in STATES if each in found),
        passed=sum(each in (RIGHT, STAGED) for each in states.values()),
        ran=ran,
        ids=tuple(states),
        reasons=reasons,
    )


def _reason(report: Report, result: Result) -> str:
    return digest.cut(digest.declared(report, result) if result.outcome == EXPECTED else digest.line(result.message))


def _depth(row: str) -> int:
    return min(row.count(" of ") + 1, len(GROUPS))


def _names(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return a name for each report: its backend, with the device, the version or a number where that is not enough."""
    parts = [(report.backend, report.device, report.framework_version) for report in reports]
    tries = [[digest.line(" ".join(filter(None, part[:length]))) for part in parts] for length in (1, 2, 3)]
    names: list[str] = []
    for place in range(len(reports)):
        name = next((each[place] for each in tries if each.count(each[place]) == 1), tries[-1][place])
        numbered = (f"{name} #{number}" for number in range(2, len(reports) + 2))
        names.append(name if name not in names else next(each for each in numbered if each not in names))
    return tuple(names)


def to_markdown(matrix: Matrix) -> str:
    """Return a key and tables: of one backend one with a column for each hook, of several one table for each hook."""
    rows = [_key(matrix), ""]
    if len(matrix.backends) == 1:
        keys = [(hook, matrix.backends[0]) for hook in matrix.hooks]
        rows += _table(matrix, keys, matrix.hooks)
    else:
        for hook in matrix.hooks:
            rows += [f"**{digest.line(hook)}**", ""]
            rows += _table(matrix, [(hook, backend) for backend in matrix.backends], matrix.backends)
    return "\n".join(rows)


def _key(matrix: Matrix) -> str:
    used = {cell.state for cell in matrix.cells.values()}
    said = "; ".join(f"{_sign(each)} {LOOKS[each].meaning}" for each in SHOWN if each in used)
    return f"{said or 'Nothing ran'}. The numbers tell how many scenarios passed of how many ran; no sign, no scenario."


def _sign(each: str) -> str:
    return f"**{LOOKS[each].sign}**" if each == SILENT else LOOKS[each].sign


def _table(matrix: Matrix, keys: Sequence[tuple[str, str]], heads: Sequence[str]) -> Iterator[str]:
    from adprotocol.conformance._reports import markdown  # noqa: PLC0415  (which shows a matrix)

    rows = [["under", *map(markdown.escape, heads)]]
    for row in matrix.rows:
        cells = [matrix.cells.get((row, *key)) for key in keys]
        if any(cells):
            rows.append([markdown.escape(row), *map(_counted, cells)])
    return markdown.table(rows)


def _counted(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return _sign(cell.state) if cell.state == ABSENT else f"{_sign(cell.state)} {cell.passed}/{cell.ran}"


_STYLE = "".join(
    [
        ".adp-matrix{border-collapse:separate;border-spacing:2px;font-size:.8125rem}",
        ".adp-matrix caption{text-align:left}",
        ".adp-matrix th{font-weight:600;padding:.15rem .4rem;text-align:left}",
        ".adp-matrix tbody th[scope=row]{font-weight:400;white-space:nowrap}",
        ".adp-matrix td{border-radius:4px;padding:.1rem .4rem;text-align:center;white-space:nowrap}",
        css(".adp-matrix "),
    ]
)


def to_html(matrix: Matrix) -> str:
    """Return a fragment of HTML: one table, with its style, a heading for each group of rows and the state in words."""
    return "\n".join(_fragment(matrix))


def _fragment(matrix: Matrix) -> Iterator[str]:
    yield f'<style>{_STYLE}</style>\n<table class="adp-matrix">'
    yield "<caption>Support matrix: hooks of the protocol under transformations</caption>\n<thead>"
    if len(matrix.backends) == 1:
        yield f'<tr><th scope="col">under</th>{"".join(map(_column, matrix.hooks))}</tr>'
    else:
        span = len(matrix.backends)
        hooks = (f'<th scope="colgroup" colspan="{span}">{_escaped(hook)}</th>' for hook in matrix.hooks)
        yield f'<tr><th scope="col" rowspan="2">under</th>{"".join(hooks)}</tr>'
        yield f"<tr>{''.join(map(_column, matrix.backends)) * len(matrix.hooks)}</tr>"
    yield "</thead>"
    columns = len(matrix.hooks) * len(matrix.backends)
    for group, rows in matrix.groups().items():
        yield f'<tbody>\n<tr><th scope="rowgroup" colspan="{columns + 1}">{group}</th></tr>'
        for row in rows:
            cells = (_data(matrix.cells.get((row, hook, name))) for hook in matrix.hooks for name in matrix.backends)
            yield f'<tr><th scope="row">{_escaped(row)}</th>{"".join(cells)}</tr>'
        yield "</tbody>"
    yield "</table>"


def _column(head: str) -> str:
    return f'<th scope="col">{_escaped(head)}</th>'


def _data(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    count = "" if cell.state == ABSENT else f" {cell.passed}/{cell.ran}"
    said = html.escape(digest.clean(cell.sentence))
    shown = f'<span role="img" aria-label="{cell.state}">{LOOKS[cell.state].sign}</span>{count}'
    return f'<td class="{kind(cell.state)}" title="{said}">{shown}</td>'


def _escaped(text: str) -> str:
    return html.escape(digest.line(text))
