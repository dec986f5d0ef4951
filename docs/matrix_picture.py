"""The support matrix of several reports side by side, as a picture: a bar for each backend, and a square for each cell.

One panel for each hook, and in it one column for each backend, so that the
frameworks stand side by side where they are compared. The picture is laid out here
and not by its viewer, so it looks the same in a page and as an image. A page shows
it 816 pixels wide (51 em), and no letter in it may be smaller than 9 of them: with
twelve hooks there is room for four backends.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import support_matrix
from jinja2 import Environment, StrictUndefined
from support_matrix import ABSENT, DECLARED, LEGEND, LOUD, RIGHT, SILENT, STAGED, Matrix, cut

from adprotocol.conformance._reports.words import clean, line

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATE = Path(__file__).with_name("matrix.svg.jinja")

WIDTH = 980  # unless the columns need more
MARGIN = 20
GAP = 2  # between cells
PANEL_GAP = 8
ROW_HEIGHT = 17  # the gap included
GROUP_HEIGHT = 24
BAR_HEIGHT = 24
_LEAST_BAR = 5  # one wrong answer of hundreds has to be seen
_NARROW, _WIDE = 14, 104  # of a cell, the gap included
COUNTED = 58  # the least width of a cell that shows numbers

# The widest of common sans-serif fonts, per unit of size: what is laid out for it fits any of them.
_LETTER = 0.62
TEXT, TITLE = 12, 15
_SLOPE = 35  # of the headings, in degrees: longer than their panels, they rise above the next

# The sign of each state, drawn in a square of 16 units, since fonts differ.
PATHS = {
    SILENT: "M5.5 3V9M5.5 12V13M10.5 3V9M10.5 12V13",
    DECLARED: "M3.5 6.2H12.5M3.5 9.8H12.5M10.5 3 5.5 13",
    LOUD: "M4.5 4.5 11.5 11.5M11.5 4.5 4.5 11.5",
    STAGED: "M8 3.5a4.5 4.5 0 0 0 0 9a4.5 4.5 0 0 0 0-9V12.5M6.4 4.6V11.4M4.9 6.2V9.8",
    RIGHT: "M4 8.5 7 11.5 12 5",
    ABSENT: "M5 8H11",
}


def matrix_to_svg(matrix: Matrix) -> str:
    """Return a picture for light and dark, with the reasons as tooltips."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["lines"] = clean
    template = environment.from_string(TEMPLATE.read_text("utf-8"))
    return template.render(matrix=matrix, layout=sys.modules[__name__], looks=support_matrix)


@dataclass(frozen=True, slots=True)
class Layout:
    """Hold the left edge of the cells, their width, the size of the picture, and the tops of its parts."""

    matrix: Matrix
    left: float
    cell: float
    width: float
    height: float
    bars: float
    names: float
    rows: float

    @classmethod
    def of(cls, matrix: Matrix) -> Layout:
        """Lay out a matrix, `WIDTH` units wide unless the columns need more."""
        panels, per = max(1, len(matrix.hooks)), max(1, len(matrix.backends))
        titles = [*map(short, matrix.rows), *matrix.groups(), *(titled(matrix, name) for name in matrix.backends)]
        labels = max(map(text_width, titles), default=0)
        left = MARGIN + math.ceil(max(labels, 110)) + 10
        room = WIDTH - MARGIN - left - PANEL_GAP * (panels - 1)
        cell = max(_NARROW, min(_WIDE, room // (panels * per)))
        width = max(WIDTH, left + cell * panels * per + PANEL_GAP * (panels - 1) + MARGIN)
        bars = MARGIN + 62
        longest = max((text_width(short(hook)) for hook in matrix.hooks), default=0)
        names = bars + BAR_HEIGHT * len(matrix.backends) + 24 + math.ceil(longest * math.sin(math.radians(_SLOPE)))
        upright = max((text_width(short(name)) for name in matrix.backends), default=0)
        rows = names + (0 if len(matrix.backends) == 1 else math.ceil(upright) + 4) + 6
        height = rows + GROUP_HEIGHT * len(matrix.groups()) + ROW_HEIGHT * len(matrix.rows) + MARGIN
        return cls(matrix, left, cell, width, height, bars, names, rows)

    def heading(self, panel: int) -> str:
        """Return where the heading of a panel begins, and its slope."""
        return f"translate({self.x(panel, 0) + 4} {self.names - 6}) rotate(-{_SLOPE})"

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


def titled(matrix: Matrix, backend: str) -> str:
    """Return a backend with its version on one line."""
    return short(f"{backend} {matrix.versions[backend]}".strip())
