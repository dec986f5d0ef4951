"""The support matrix of several reports side by side, as a picture: a bar for each backend, and a square for each cell.

One panel for each hook, and in it one column for each backend, so that the
frameworks stand side by side where they are compared. The picture is laid out here
and not by its viewer, so it looks the same in a page and as an image.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import written
from adprotocol.conformance._reports.looks import ABSENT, DECLARED, LEGEND, LOUD, RIGHT, SILENT, STAGED, STATES
from adprotocol.conformance._reports.matrix import Matrix, state_of
from adprotocol.conformance._reports.words import cut, line

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from adprotocol.conformance import Report

TEMPLATE = Path(__file__).with_name("matrix.svg.jinja")

WIDTH = 980  # for the panels of seven hooks
MARGIN = 20
GAP = 2  # between cells
PANEL_GAP = 12
ROW_HEIGHT = 17  # the gap included
GROUP_HEIGHT = 24
BAR_HEIGHT = 24
_LEAST_BAR = 5  # one wrong answer of hundreds has to be seen
_NARROW, _WIDE = 16, 104  # of a cell, the gap included
COUNTED = 58  # the least width of a cell that shows numbers

# The widest of common sans-serif fonts, per unit of size: what is laid out for it fits any of them.
_LETTER = 0.62
TEXT, SMALL, TITLE = 11.5, 10.5, 15

# The sign of each state, drawn in a square of 16 units, since fonts differ.
PATHS = {
    SILENT: "M5.5 3V9M5.5 12V13M10.5 3V9M10.5 12V13",
    DECLARED: "M3.5 6.2H12.5M3.5 9.8H12.5M10.5 3 5.5 13",
    LOUD: "M4.5 4.5 11.5 11.5M11.5 4.5 4.5 11.5",
    STAGED: "M8 3.5a4.5 4.5 0 0 0 0 9a4.5 4.5 0 0 0 0-9V12.5M6.4 4.6V11.4M4.9 6.2V9.8",
    RIGHT: "M4 8.5 7 11.5 12 5",
    ABSENT: "M5 8H11",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySide(Matrix):
    """Hold the matrix of several reports, whose names are made different where they are not.

    Attributes:
        versions: the version of each backend's framework, or an empty text.
        totals: how many scenarios of each backend are in each state.
    """

    versions: Mapping[str, str]
    totals: Mapping[str, Mapping[str, int]]

    @classmethod
    def of_reports(cls, reports: Sequence[Report]) -> SideBySide:
        """Return the matrix of some reports."""
        named = dict(zip(_names(reports), reports, strict=True))
        found = Matrix.of(named)
        states = {name: Counter(state_of(each, result) for result in each.results) for name, each in named.items()}
        return cls(
            rows=found.rows,
            hooks=found.hooks,
            backends=found.backends,
            cells=found.cells,
            versions={name: report.framework_version or "" for name, report in named.items()},
            totals={name: {state: counted[state] for state in STATES} for name, counted in states.items()},
        )


def _names(reports: Sequence[Report]) -> tuple[str, ...]:
    """Return a name for each report: its backend, with the device, the version or a number where names coincide."""
    parts = [(report.backend, report.device, report.framework_version) for report in reports]
    tries = [[line(" ".join(filter(None, part[:length]))) for part in parts] for length in (1, 2, 3)]
    names: list[str] = []
    for place in range(len(reports)):
        name = next((each[place] for each in tries if each.count(each[place]) == 1), tries[-1][place])
        numbered = (f"{name} #{number}" for number in range(2, len(reports) + 2))
        names.append(name if name not in names else next(each for each in numbered if each not in names))
    return tuple(names)


def matrix_to_svg(matrix: SideBySide) -> str:
    """Return a picture for light and dark, with the reasons as tooltips."""
    template = written.environment("html").from_string(TEMPLATE.read_text("utf-8"))
    return template.render(matrix=matrix, layout=sys.modules[__name__])


@dataclass(frozen=True, slots=True)
class Layout:
    """Hold the left edge of the cells, their width, the size of the picture, and the tops of its parts."""

    matrix: SideBySide
    left: float
    cell: float
    width: float
    height: float
    bars: float
    names: float
    rows: float

    @classmethod
    def of(cls, matrix: SideBySide) -> Layout:
        """Lay out a matrix, `WIDTH` units wide unless the columns need more."""
        panels, per = max(1, len(matrix.hooks)), max(1, len(matrix.backends))
        titles = [*map(short, matrix.rows), *matrix.groups(), *(titled(matrix, name) for name in matrix.backends)]
        labels = max(map(text_width, titles), default=0)
        left = MARGIN + math.ceil(max(labels, 110)) + 10
        room = WIDTH - MARGIN - left - PANEL_GAP * (panels - 1)
        # The heading of a panel never reaches the next one.
        words = [word for hook in matrix.hooks for word in heading(hook)]
        widest = max((text_width(word, SMALL) for word in words), default=0) - PANEL_GAP / 2
        cell = max(_NARROW, min(_WIDE, room // (panels * per)), math.ceil(widest / per))
        width = max(WIDTH, left + cell * panels * per + PANEL_GAP * (panels - 1) + MARGIN)
        bars = MARGIN + 62
        lines = max((len(heading(hook)) for hook in matrix.hooks), default=1)
        names = bars + BAR_HEIGHT * len(matrix.backends) + 28 + 14 * lines
        upright = max((text_width(short(name), SMALL) for name in matrix.backends), default=0)
        rows = names + (0 if len(matrix.backends) == 1 else math.ceil(upright) + 4) + 6
        height = rows + GROUP_HEIGHT * len(matrix.groups()) + ROW_HEIGHT * len(matrix.rows) + MARGIN
        return cls(matrix, left, cell, width, height, bars, names, rows)

    def x(self, panel: int, column: int) -> float:
        """Return the left edge of a column."""
        per = max(1, len(self.matrix.backends))
        return self.left + panel * (self.cell * per + PANEL_GAP) + column * self.cell


def shares(totals: Mapping[str, int], width: float) -> dict[str, float]:
    """Return the widths of the parts of a bar, by number of scenarios."""
    counts = {state: totals[state] for state in LEGEND if totals[state]}
    spare = width - _LEAST_BAR * len(counts)
    return {state: _LEAST_BAR + spare * count / sum(counts.values()) for state, count in counts.items()}


def text_width(text: str, size: float = TEXT) -> float:
    """Return the width of a text, estimated: there is no font to measure it."""
    return _LETTER * size * len(text)


def short(text: str, limit: int = 36) -> str:
    """Return a label on one line."""
    return cut(line(text), limit)


def titled(matrix: SideBySide, backend: str) -> str:
    """Return a backend with its version on one line."""
    return short(f"{backend} {matrix.versions[backend]}".strip())


def heading(hook: str) -> list[str]:
    """Return a hook on one line or two, broken after an underscore."""
    head, mark, tail = short(hook).partition("_")
    return [head + mark, tail] if tail else [head]
