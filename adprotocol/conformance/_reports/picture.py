"""The picture of the support matrix, as SVG: on top a bar for each backend, below it a small square for each cell.

One panel for each hook, and in it one column for each backend, so that the
frameworks stand side by side where they are compared. It is laid out here, not by
whoever shows it, so it looks the same in a page and as an image. The ground is
drawn too: an image follows the colours of the reader's system, and the page
around it may not.
"""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adprotocol.conformance._reports import digest
from adprotocol.conformance._reports.state import ABSENT, LOOKS, RIGHT, SHOWN, SILENT, STAGED, kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from adprotocol.conformance._reports.matrix import Cell, Matrix

WIDTH = 900
_MARGIN = 20
_GAP = 2  # between cells
_PANELS = 12  # between panels
_HEIGHT = 17  # of a row, the gap included
_GROUP = 24  # of the heading of a group
_BAR = 24  # of the bar of a backend
_LEAST = 5  # the width of a part of it
_NARROW, _WIDE = 16, 104  # of a cell, the gap included
_COUNTED = 58  # the least width of a cell that shows numbers
_SQUARE = 16  # in which the signs are drawn

# The widest of common sans-serif fonts, per unit of size: what is laid out for it fits any of them.
_LETTER = 0.62
_TEXT, _SMALL, _TITLE = 11.5, 10.5, 15


@dataclass(frozen=True, slots=True)
class _Layout:
    """Hold where things are: the left edge of the cells, their width, and the height of the head."""

    left: float
    cell: float
    width: float
    bars: float
    hooks: float
    names: float
    rows: float
    height: float


def to_svg(matrix: Matrix) -> str:
    """Return the picture, some 900 units wide, for light and dark, with the reasons as tooltips."""
    return "\n".join(_picture(matrix, _laid_out(matrix))) + "\n"


def _laid_out(matrix: Matrix) -> _Layout:
    columns = max(1, len(matrix.hooks) * len(matrix.backends))
    panels = max(1, len(matrix.hooks))
    labels = max((_width(_short(row), _TEXT) for row in matrix.rows), default=0)
    left = _MARGIN + math.ceil(max(labels, 110)) + 10
    space = WIDTH - _MARGIN - left - _PANELS * (panels - 1)
    # The heading of a panel never reaches the next one.
    heading = max((_width(word, _SMALL) for hook in matrix.hooks for word in _words(hook)), default=0) - _PANELS / 2
    cell = max(_NARROW, min(_WIDE, math.floor(space / columns)), math.ceil(heading / _per(matrix)))
    width = max(WIDTH, left + cell * columns + _PANELS * (panels - 1) + _MARGIN)
    bars = _MARGIN + 62
    hooks = bars + _BAR * len(matrix.backends) + 28
    upright = max((_width(_short(name), _SMALL) for name in matrix.backends), default=0)
    names = hooks + 14 * max((len(_words(hook)) for hook in matrix.hooks), default=1)
    rows = names + (0 if len(matrix.backends) == 1 else math.ceil(upright) + 4) + 6
    height = rows + _GROUP * len(matrix.groups()) + _HEIGHT * len(matrix.rows) + _MARGIN
    return _Layout(left, cell, width, bars, hooks, names, rows, height)


def _per(matrix: Matrix) -> int:
    return max(1, len(matrix.backends))


def _width(text: str, size: float) -> float:
    """Return about how wide a text is; no font says so here."""
    return _LETTER * size * len(text)


def _short(text: str, most: int = 36) -> str:
    text = digest.line(text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _words(hook: str) -> list[str]:
    """Return a hook on one line or two, broken after an underscore."""
    head, mark, tail = _short(hook).partition("_")
    return [head + mark, tail] if tail else [head]


def _picture(matrix: Matrix, at: _Layout) -> Iterator[str]:
    named = ", ".join(matrix.backends)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="adp-picture" viewBox="0 0 {at.width:g} {at.height:g}" '
        f'width="{at.width:g}" height="{at.height:g}" role="img" aria-label="{_escaped(f"Support matrix of {named}")}">'
    )
    yield f"<title>{_escaped(f'Support matrix of {named}')}</title>"
    yield f"<style>{_STYLE}</style>"
    yield f'<rect class="ground" width="{at.width:g}" height="{at.height:g}" rx="10"/>'
    yield _text(_MARGIN, _MARGIN + 14, "Support matrix", "title")
    yield from _legend()
    yield from _bars(matrix, at)
    yield from _heads(matrix, at)
    yield from _grid(matrix, at)
    yield "</svg>"


def _legend() -> Iterator[str]:
    x = float(_MARGIN)
    for each in SHOWN:
        yield _square(x, _MARGIN + 27, _SQUARE, each)
        yield _text(x + _SQUARE + 6, _MARGIN + 39, each)
        x += _SQUARE + 6 + math.ceil(_width(each, _TEXT)) + 12
    yield f'<circle class="none" cx="{x + 4:g}" cy="{_MARGIN + 34.5:g}" r="1.5"/>'
    yield _text(x + 12, _MARGIN + 39, "not asked")


def _bars(matrix: Matrix, at: _Layout) -> Iterator[str]:
    """Yield for each backend a bar of all its scenarios, by state, with the numbers beside it."""
    begin, end = at.left, at.width - _MARGIN - 250
    for place, name in enumerate(matrix.backends):
        y = at.bars + _BAR * place
        label = _short(f"{name} {matrix.versions[name]}".strip(), 24)
        yield _text(at.left - 10, y + 12.5, label, "right")
        totals = matrix.totals[name]
        whole, x = sum(totals.values()), begin
        for each, width in _shares(totals, end - begin).items():
            drawn = f'<rect class="{kind(each)}" x="{x:.2f}" y="{y:g}" width="{width - 1:.2f}" height="16" rx="2"/>'
            yield _told(f"{name}: {totals[each]} of {whole} scenarios: {each}", drawn)
            x += width
        right = totals[RIGHT] + totals[STAGED]
        yield _text(end + 8, y + 12.5, f"{right} of {whole - totals[ABSENT]} right, {totals[SILENT]} silently wrong")


def _shares(totals: Mapping[str, int], width: float) -> dict[str, float]:
    """Return the widths of the parts of a bar: by number, but one wrong answer of hundreds has to be seen."""
    there = {each: totals[each] for each in SHOWN if totals[each]}
    spare = width - _LEAST * len(there)
    return {each: _LEAST + spare * number / sum(there.values()) for each, number in there.items()}


def _heads(matrix: Matrix, at: _Layout) -> Iterator[str]:
    for panel, hook in enumerate(matrix.hooks):
        left = _column(matrix, at, panel, 0)
        words = _words(hook)
        for place, word in enumerate(words):
            # The last line stands on the same height for every hook.
            y = at.names - 4 - 13 * (len(words) - 1 - place)
            yield _text(left, y, word, "hook")
        if len(matrix.backends) > 1:
            for column, name in enumerate(matrix.backends):
                x = _column(matrix, at, panel, column) + (at.cell - _GAP) / 2 + 3.5
                placed = f"translate({x:g} {at.rows - 6:g}) rotate(-90)"
                yield f'<text class="small" transform="{placed}">{_escaped(_short(name))}</text>'


def _column(matrix: Matrix, at: _Layout, panel: int, column: int) -> float:
    return at.left + panel * (at.cell * _per(matrix) + _PANELS) + column * at.cell


def _grid(matrix: Matrix, at: _Layout) -> Iterator[str]:
    y = at.rows
    for group, rows in matrix.groups().items():
        yield _text(_MARGIN, y + _GROUP - 8, group, "group")
        yield f'<path class="rule" d="M{at.left:g} {y + _GROUP - 11.5:g}H{at.width - _MARGIN:g}"/>'
        y += _GROUP
        for row in rows:
            yield _text(at.left - 10, y + 11.5, _short(row), "right")
            for panel, hook in enumerate(matrix.hooks):
                for column, name in enumerate(matrix.backends):
                    found = matrix.cells.get((row, hook, name))
                    x = _column(matrix, at, panel, column)
                    if found is None:
                        yield f'<circle class="none" cx="{x + (at.cell - _GAP) / 2:g}" cy="{y + 7.5:g}" r="1"/>'
                    else:
                        said = f"{name}, {hook} under {row}\n{found.sentence}"
                        yield _told(said, _square(x, y, at.cell - _GAP, found.state, found))
            y += _HEIGHT


def _square(x: float, y: float, width: float, each: str, cell: Cell | None = None) -> str:
    """Return a rounded rectangle with its sign, and with the numbers of a cell if there is room."""
    height, name = _HEIGHT - _GAP, kind(each)
    counted = cell is not None and cell.state != ABSENT and width >= _COUNTED
    at = x + (5 if counted else (width - _SQUARE) / 2)
    rounded = f'<rect class="{name}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height}" rx="3.5"/>'
    sign = f'<path class="sign {name}" transform="translate({at:g} {y - 0.5:g})" d="{LOOKS[each].path}"/>'
    if not counted or cell is None:
        return rounded + sign
    return rounded + sign + _text(x + width - 6, y + 11.5, f"{cell.passed}/{cell.ran}", f"small right {name}")


def _told(said: str, drawn: str) -> str:
    """Return what is drawn with a tooltip."""
    return f"<g><title>{html.escape(digest.clean(said), quote=False)}</title>{drawn}</g>"


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    styled = f' class="{kind}"' if kind else ""
    return f'<text{styled} x="{x:g}" y="{y:g}">{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    return html.escape(digest.line(text))


def _colours(*, dark: bool) -> Iterator[str]:
    light, night = ("#ffffff", "#d5dae0", "#1c232b", "#5b6570"), ("#15191e", "#363d46", "#dfe5eb", "#9aa5b1")
    ground, border, ink, faint = night if dark else light
    rules = {
        ".ground": f"fill:{ground};stroke:{border}",
        "text": f"fill:{ink}",
        "text.small": f"fill:{faint}",
        ".rule": f"stroke:{border}",
        ".none": f"fill:{border}",
    }
    for each, look in LOOKS.items():
        fill, sign = (look.dark_fill, look.dark_ink) if dark else (look.fill, look.ink)
        name = kind(each)
        rules |= {
            f".{name}": f"fill:{fill}",
            f".{name}.sign": f"fill:none;stroke:{sign}",
            f"text.{name}": f"fill:{sign}",
        }
    yield from (f".adp-picture {selector}{{{rule}}}" for selector, rule in rules.items())


_STYLE = "".join(
    [
        f".adp-picture text{{font:{_TEXT}px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}}",
        f".adp-picture .title{{font-size:{_TITLE}px;font-weight:600}}",
        f".adp-picture .small,.adp-picture .hook{{font-size:{_SMALL}px}}",
        ".adp-picture .hook,.adp-picture .group{font-weight:600}.adp-picture .right{text-anchor:end}",
        ".adp-picture .sign{stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}",
        *_colours(dark=False),
        "@media (prefers-color-scheme:dark){",
        *_colours(dark=True),
        "}",
    ]
)
