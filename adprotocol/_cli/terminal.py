"""The terminal: text wrapped between words, tables, and what an interrupt leaves."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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


def wrapped(text: str, width: int | None, indent: int = 0, least: int = 40) -> list[str]:
    """Return a text as lines between whose words it is broken, the further ones indented; without a width as it is.

    Beside the indent there is place for `least` columns, also where the terminal is narrower.
    """
    if width is None:
        return [text]
    width = max(width, indent + least)
    return textwrap.wrap(text, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)


def write(lines: Iterable[str], stream: TextIO, indent: int) -> None:
    """Write lines, on a terminal wrapped between words with the further rows indented."""
    width = width_of(stream)
    stream.writelines(f"{row}\n" for line in lines for row in wrapped(line, width, indent))


def aligned(rows: Sequence[Sequence[str]], gap: str = " ", justify: Callable[[str, int], str] = str.rjust) -> list[str]:
    """Return the lines of a plain-text table: the first column to the left, the others as `justify` says."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [gap.join([row[0].ljust(widths[0]), *map(justify, row[1:], widths[1:])]).rstrip() for row in rows]
