"""The support matrix as data: what each hook does under each transformation, of one report or of several side by side.

A row is a nesting of transformations, a column a hook of a backend. Each cell shows
the worst outcome among its scenarios.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from adprotocol.conformance._reports import looks
from adprotocol.conformance._reports.words import cut, line, some
from adprotocol.conformance._run.result import EXPECTED, PASS, count_ran
from adprotocol.conformance.scenario import HOOKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adprotocol.conformance._run.result import Report, Result

# The row of the scenarios that are about no transformation.
NO_TRANSFORM = "no transform"
GROUPS = ("one transform or none", "two, nested", "three and more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Hold the outcomes of the scenarios of one hook under one nesting on one backend.

    Attributes:
        state: one of `adprotocol.conformance._reports.looks.STATES`.
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
        wrong = [result for result in results if states[result.id] in (looks.SILENT, looks.DECLARED, looks.LOUD)]
        return cls(
            state=min(states.values(), key=looks.STATES.index),
            passed=sum(state in (looks.RIGHT, looks.STAGED) for state in states.values()),
            ran=count_ran(results),
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
        counted = f"{len(self.ids)} scenario(s)" if self.state == looks.ABSENT else passed
        return "\n".join([f"{self.state}: {counted}", *why, *others])


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Hold the cells by row, hook and backend; there is none where no scenario asks.

    Attributes:
        rows: the nestings, single transformations first, then pairs, then the rest.
        hooks: the hooks that have a cell.
        backends: the names of the reports.
    """

    rows: tuple[str, ...]
    hooks: tuple[str, ...]
    backends: tuple[str, ...]
    cells: Mapping[tuple[str, str, str], Cell]

    @classmethod
    def of(cls, reports: Mapping[str, Report]) -> Self:
        """Return the matrix of some reports by name."""
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
        )

    def applicable(self) -> Self:
        """Return the matrix without the rows in which nothing applies: the capabilities tell why."""
        rows = {row for (row, _, _), cell in self.cells.items() if cell.state != looks.ABSENT}
        cells = {key: cell for key, cell in self.cells.items() if key[0] in rows}
        return replace(self, rows=tuple(row for row in self.rows if row in rows), cells=cells)

    @property
    def key(self) -> str:
        """Return what the signs that are there mean, and the numbers."""
        states = {cell.state for cell in self.cells.values()}
        signs = "; ".join(
            f"{looks.LOOKS[state].sign} {looks.LOOKS[state].meaning}" for state in looks.LEGEND if state in states
        )
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
        return looks.LOUD if declared is not None and declared.outcome == "error" else looks.DECLARED
    return looks.STAGED if result.outcome == PASS and result.staged else looks.COLOURED_AS[result.outcome]


def _depth(row: str) -> int:
    return min(row.count(" of ") + 1, len(GROUPS))
