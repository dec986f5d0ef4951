"""The terminal: text wrapped between words, tables, and what an interrupt leaves."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

INTERRUPTED = 130  # what a shell says of a program that was interrupted


def interruptible(program: str, main: Callable[[], int]) -> int:
    """Return the exit status of `main`; an interrupt leaves one line in place of a traceback."""
    try:
        try:
            return main()
        finally:
            sys.stdout.flush()
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{program}: interrupted\n")
        return INTERRUPTED


def width_of(stream: TextIO) -> int | None:
    """Return the width of a terminal; None for any other stream, whose lines stay whole, to be searched for."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def wrapped(text: str, width: int | None, indent: int = 0) -> list[str]:
    """Return a text as lines between whose words it is broken, the further ones indented; without a width as it is."""
    if width is None:
        return [text]
    width = max(width, indent + 40)
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def aligned(rows: Sequence[Sequence[str]], gap: str = " ", justify: Callable[[str, int], str] = str.rjust) -> list[str]:
    """Return the lines of a plain-text table: the first column to the left, the others as `justify` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [gap.join([row[0].ljust(widths[0]), *map(justify, row[1:], widths[1:])]).rstrip() for row in rows]


def longest_words(rows: Iterable[Sequence[str]]) -> list[int]:
    """Return the length of the longest word of each column."""
    return [max(len(word) for cell in column for word in cell.split()) for column in zip(*rows, strict=True)]


def console_on(stream: TextIO) -> Any:
    """Return a console of rich's; None if rich, an optional dependency, is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415
    except ImportError:
        return None
    return Console(file=stream, highlight=False, markup=False)


def rich_table(
    rows: Sequence[Sequence[str]], styles: Mapping[str, str], columns: Iterable[dict[str, Any]], **options: Any
) -> Any:
    """Return a table of rich's; the first row is the heading, and `styles` has the colours of certain cells."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(**options)
    # No column is narrower than its longest word, which rich would break.
    for heading, column, width in zip(rows[0], columns, longest_words(rows), strict=True):
        table.add_column(heading, min_width=width, **column)
    for row in rows[1:]:
        # As Text: a cell may contain brackets, which rich would read as markup.
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    return table
