"""The support matrix as data: what each hook does under each transformation, of one report or of several side by side.

A row is a nesting of transformations, a column a hook of a backend. Each cell shows
the worst outcome among its scenarios.
"""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Self

from adprotocol.conformance._reports.words import clean, line, some
from adprotocol.conformance._reports.written import escaped
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG
from adprotocol.conformance.scenario import HOOKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adprotocol.conformance._run.result import Report, Result

# The states of a cell, the worst first.
SILENT = "silently wrong"
DECLARED = "wrong, declared"
LOUD = "loud error"
STAGED = "staged"
RIGHT = "right"
ABSENT = "not applicable"
STATES = (SILENT, DECLARED, LOUD, STAGED, RIGHT, ABSENT)

# The order of a legend: from right to wrong, then what says nothing about the plugin.
LEGEND = (RIGHT, STAGED, LOUD, DECLARED, SILENT, ABSENT)

# An outcome has the colours of the state that it gives to a cell.
COLOURED_AS: Mapping[str, str] = {
    WRONG: SILENT,
    CRASHED: LOUD,
    FAIL: LOUD,
    EXPECTED: DECLARED,
    PASS: RIGHT,
    NOT_APPLICABLE: ABSENT,
}


class Look(NamedTuple):
    """Hold how a state looks.

    Signs differ without the colours, and colours without the signs, also for readers who confuse red and green.
    """

    sign: str
    meaning: str
    fill: str
    ink: str
    dark_fill: str
    dark_ink: str


_NO_ERROR = "a wrong answer with no error"
_ABSENT = "the harness lacks a capability, or the system itself refuses the nesting"
_STAGED = "right, decided when the transformation is applied"
_DECLARED = f"{_NO_ERROR}, which the plugin declares"

LOOKS: Mapping[str, Look] = {
    SILENT: Look("!!", _NO_ERROR, "#c4161c", "#ffffff", "#ff5a52", "#2a0000"),
    DECLARED: Look("≠", _DECLARED, "#e0b3e6", "#5b1a66", "#77307f", "#fbe3ff"),
    LOUD: Look("✗", "an error", "#ffd479", "#5c3d00", "#8a5f00", "#fff1d0"),
    STAGED: Look("◐", _STAGED, "#b5d8f5", "#0c4a7c", "#17507f", "#d0e9ff"),
    RIGHT: Look("✓", "right", "#b7e4cd", "#0b5136", "#14573c", "#c4f2dc"),
    ABSENT: Look("-", _ABSENT, "#eceff2", "#5b6570", "#2b3138", "#9aa5b1"),
}


def cut(text: str, limit: int = 160) -> str:
    """Return text cut to a length, for a list; it stands in full elsewhere."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def css_class(state: str) -> str:
    """Return the class of a state in HTML and SVG."""
    return f"s{STATES.index(state)}"


# The row of the scenarios that are about no transformation.
NO_TRANSFORM = "no transform"
# A transformation has a column in the summary if so many hooks have scenarios for it.
_FEWEST_HOOKS = 3
GROUPS = ("one transform or none", "two, nested", "three and more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Hold the outcomes of the scenarios of one hook under one nesting on one backend.

    Attributes:
        state: one of `STATES`.
        passed: how many passed, staged ones included.
        ran: how many applied and ran.
        ids: the ids of all, including those that do not apply.
        reasons: for each id that did not pass, the title of its divergence or what went wrong.
    """

    state: str
    passed: int
    ran: int
    ids: tuple[str, ...]
    reasons: Mapping[str, str]

    @classmethod
    def of(cls, report: Report, results: Sequence[Result]) -> Self:
        """Return the cell of some results of a report."""
        states = {result.id: state_of(report, result) for result in results}
        wrong = [result for result in results if states[result.id] in (SILENT, DECLARED, LOUD)]
        return cls(
            state=min(states.values(), key=STATES.index),
            passed=sum(state in (RIGHT, STAGED) for state in states.values()),
            ran=sum(result.applied for result in results),
            ids=tuple(states),
            reasons={result.id: cut(line(report.reason(result))) for result in wrong},
        )

    @property
    def sentence(self) -> str:
        """Return the text of a tooltip: the state, how many passed, then the scenarios, failures first."""
        passed = f"{self.passed} of {self.ran} scenario(s) passed"
        told: dict[str, list[str]] = {}
        for name, reason in self.reasons.items():
            told.setdefault(reason, []).append(name)
        why = (f"{some(names)}: {reason}" for reason, names in told.items())
        others = (name for name in self.ids if name not in self.reasons)
        counted = f"{len(self.ids)} scenario(s)" if self.state == ABSENT else passed
        return "\n".join([f"{self.state}: {counted}", *why, *others])


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Hold the cells by row, hook and backend; there is none where no scenario asks.

    Attributes:
        rows: the nestings, single transformations first, then pairs, then the rest.
        hooks: the hooks that have a cell.
        backends: the names of the reports.
        versions: the version of each backend's framework, or an empty text.
        totals: how many scenarios of each backend are in each state.
    """

    rows: tuple[str, ...]
    hooks: tuple[str, ...]
    backends: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]
    versions: Mapping[str, str]
    totals: Mapping[str, Mapping[str, int]]

    @classmethod
    def of(cls, reports: Mapping[str, Report]) -> Self:
        """Return the matrix of some reports by name."""
        states = {name: Counter(state_of(each, result) for result in each.results) for name, each in reports.items()}
        groups: dict[tuple[str, str, str], list[Result]] = {}
        for name, report in reports.items():
            for result in report.results:
                groups.setdefault((line(result.transform) or NO_TRANSFORM, result.hook, name), []).append(result)
        rows = dict.fromkeys(row for row, _, _ in groups)
        hooks = {hook for _, hook, _ in groups}
        return cls(
            rows=tuple(sorted(rows, key=lambda row: (row != NO_TRANSFORM, _depth(row)))),
            hooks=tuple(sorted(hooks, key=lambda hook: (HOOKS.index(hook) if hook in HOOKS else len(HOOKS), hook))),
            backends=tuple(reports),
            cells={key: Cell.of(reports[key[2]], results) for key, results in groups.items()},
            versions={name: report.framework_version or "" for name, report in reports.items()},
            totals={name: {state: counted[state] for state in STATES} for name, counted in states.items()},
        )

    @property
    def key(self) -> str:
        """Return what the signs that are there mean, and the numbers."""
        states = {cell.state for cell in self.cells.values()}
        signs = "; ".join(f"{LOOKS[state].sign} {LOOKS[state].meaning}" for state in LEGEND if state in states)
        numbers = "The numbers are how many scenarios passed of how many ran; an empty cell has no scenario."
        return f"{signs or 'Nothing ran'}. {numbers}"

    def groups(self) -> dict[str, list[str]]:
        """Return the rows by the number of transformations, in the order of `GROUPS`; empty groups are left out."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            found.setdefault(GROUPS[_depth(row) - 1], []).append(row)
        return found

    def cells_of(self, row: str, hooks: Sequence[str]) -> list[Cell | None]:
        """Return the cells of a row, for some hooks: by hook, and for each by backend."""
        return [self.cells.get((row, hook, name)) for hook in hooks for name in self.backends]


def state_of(report: Report, result: Result) -> str:
    """Return the state that a result gives to its cell."""
    if result.outcome == EXPECTED:
        declared = report.divergence_of(result)
        return LOUD if declared is not None and declared.outcome == "error" else DECLARED
    return STAGED if result.outcome == PASS and result.staged else COLOURED_AS[result.outcome]


def _depth(row: str) -> int:
    return min(row.count(" of ") + 1, len(GROUPS))


def to_markdown(matrix: Matrix) -> str:
    """Return a legend, and a table for each hook."""
    parts = [matrix.key]
    for hook in matrix.hooks:
        rows = [f"| under | {' | '.join(matrix.backends)} |", "| --- |" + " --- |" * len(matrix.backends)]
        for row in matrix.rows:
            cells = matrix.cells_of(row, [hook])
            if any(cells):
                rows.append(f"| {escaped(row)} | {' | '.join(map(_plain, cells))} |")
        parts.append(f"**{hook}**\n\n" + "\n".join(rows))
    return "\n\n".join(parts) + "\n"


def summary(matrix: Matrix) -> str:
    """Return one table of hooks by single transformations, each cell with the signs of all backends."""
    known = {(row, hook) for row, hook, _ in matrix.cells}
    columns = [
        row for row in matrix.groups()[GROUPS[0]] if sum((row, hook) in known for hook in matrix.hooks) >= _FEWEST_HOOKS
    ]
    heads = (escaped(row).replace("_", "_<wbr>") for row in columns)
    lines = [f"| | {' | '.join(heads)} |", "| --- |" + " --- |" * len(columns)]
    for hook in matrix.hooks:
        cells = ([cell for cell in matrix.cells_of(row, [hook]) if cell] for row in columns)
        # Signs that no line is broken between: a hyphen would allow that.
        signs = ("&#8239;".join(LOOKS[cell.state].sign.replace("-", "&#8209;") for cell in found) for found in cells)
        lines.append(f"| {escaped(hook)} | {' | '.join(signs)} |")
    return "\n".join(lines) + "\n"


def _plain(cell: Cell | None) -> str:
    if cell is None:
        return ""
    bold = "**" * (cell.state == SILENT)
    numbers = f" {cell.passed}/{cell.ran}" * (cell.state != ABSENT)
    return f"{bold}{LOOKS[cell.state].sign}{bold}{numbers}"


STYLE = """\
.adp-matrix { border-collapse: separate; border-spacing: 2px; font-size: .8125rem; }
.adp-matrix th { font-weight: 600; padding: .15rem .4rem; text-align: left; white-space: nowrap; }
.adp-matrix td { border-radius: 4px; padding: .1rem .4rem; text-align: center; white-space: nowrap; }
"""


def to_html(matrix: Matrix) -> str:
    """Return a fragment of HTML: one table, with its style, a heading for each group of rows and the state in words."""
    colours = "\n".join(
        f".adp-matrix .{css_class(state)} {{ background: light-dark({look.fill}, {look.dark_fill}); "
        f"color: light-dark({look.ink}, {look.dark_ink}); }}"
        for state, look in LOOKS.items()
    )
    width = len(matrix.backends)
    hooks = "".join(f'<th scope="colgroup" colspan="{width}">{html.escape(hook)}</th>' for hook in matrix.hooks)
    names = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in matrix.backends) * len(matrix.hooks)
    parts = [
        f"<p>{html.escape(matrix.key)}</p>\n<style>\n{STYLE}{colours}\n</style>",
        '<table class="adp-matrix">\n<caption>Support matrix: hooks of the protocol under transformations</caption>',
        f'<thead>\n<tr><th scope="col" rowspan="2">under</th>{hooks}</tr>\n<tr>{names}</tr>\n</thead>',
    ]
    for group, rows in matrix.groups().items():
        head = f'<th scope="rowgroup" colspan="{width * len(matrix.hooks) + 1}">{group}</th>'
        lines = [
            f'<tr><th scope="row">{html.escape(row)}</th>{"".join(map(_html, matrix.cells_of(row, matrix.hooks)))}</tr>'
            for row in rows
        ]
        parts.append("\n".join(["<tbody>", f"<tr>{head}</tr>", *lines, "</tbody>"]))
    return "\n".join([*parts, "</table>"])


def _html(cell: Cell | None) -> str:
    if cell is None:
        return "<td></td>"
    title, numbers = html.escape(clean(cell.sentence)), f" {cell.passed}/{cell.ran}" * (cell.state != ABSENT)
    sign = f'<span role="img" aria-label="{cell.state}">{LOOKS[cell.state].sign}</span>'
    return f'<td class="{css_class(cell.state)}" title="{title}">{sign}{numbers}</td>'
