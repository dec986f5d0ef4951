"""The table and the progress lines: by rich where it is installed, else plain text."""

from __future__ import annotations

import contextlib
import math
import sys
import textwrap
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from rich.console import Console
    from rich.progress import Progress

WIDTH = 79  # of the notes, unless the table is wider

# Of the last cell of a row, by how it starts.
STYLES = {"yes": "green", "NO": "red", "failed": "red", "not installed": "dim"}


class Report:
    """Show progress on standard error and a table on standard output.

    Args:
        plain: no rich, even where it is installed.
    """

    def __init__(self, *, plain: bool) -> None:
        self._plain = plain or not _has_rich()

    @contextlib.contextmanager
    def progress(self, name: str) -> Iterator[None]:
        """Say what is running now, and how long it took."""
        start = time.perf_counter()
        with contextlib.nullcontext() if self._plain else _console(stderr=True).status(f"{name} ..."):
            if self._plain:
                sys.stderr.write(f"{name} ... ")
                sys.stderr.flush()
            yield
        taken = f"{time.perf_counter() - start:.1f} s\n"
        sys.stderr.write(taken if self._plain else f"{name} ... {taken}")

    @contextlib.contextmanager
    def bar(self, name: str, steps: int) -> Iterator[Callable[[float], None]]:
        """Show how far a training is, on a terminal; what it yields is told a value at each step."""
        if self._plain or not _console(stderr=True).is_terminal:
            with self.progress(name):
                yield lambda _value: None
            return
        start = time.perf_counter()
        with _rich_bar() as progress:
            task = progress.add_task(name, total=steps, value=math.nan)
            yield lambda value: progress.update(task, advance=1, value=value)
        sys.stderr.write(f"{name} ... {time.perf_counter() - start:.1f} s\n")

    def table(self, title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
        """Print a table; headers may have several lines, and the title may be empty."""
        if self._plain:
            lines = aligned(headers, rows)
            width = max(WIDTH, *map(len, lines))
            wrapped = [textwrap.fill(note, width, break_long_words=False) for note in notes]
            above = [title, ""] if title else []
            sys.stdout.write("\n".join([*above, *lines, "", *wrapped]) + "\n")
        else:
            _rich_table(title, headers, rows, notes)
        sys.stdout.flush()

    @staticmethod
    def gap() -> None:
        """Separate two tables."""
        sys.stdout.write("\n")


def aligned(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a plain-text table: the first column to the left, the others to the right."""
    split = [header.split("\n") for header in headers]
    height = max(map(len, split))
    above = [[""] * (height - len(lines)) + lines for lines in split]
    head = [[lines[i] for lines in above] for i in range(height)]
    widths = [max(len(row[i]) for row in [*head, *rows]) for i in range(len(headers))]
    lines = [
        " ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(cells)).rstrip()
        for cells in (list(zip(row, widths, strict=True)) for row in [*head, *rows])
    ]
    lines.insert(height, " ".join("-" * width for width in widths))
    return lines


def _has_rich() -> bool:
    try:
        import rich  # noqa: F401, PLC0415
    except ImportError:
        return False
    return True


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=stderr, highlight=False, markup=False)


def _rich_bar() -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = [
        TextColumn("{task.description:<8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("log marginal likelihood {task.fields[value]:.2f}"),
    ]
    return Progress(*columns, console=_console(stderr=True), transient=True)


def _rich_table(title: str, headers: Sequence[str], rows: Sequence[Sequence[str]], notes: Sequence[str]) -> None:
    from rich import box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(
        title=title or None, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, padding=0, header_style="bold"
    )
    for i, header in enumerate(headers):
        table.add_column(header, justify="left" if i == 0 else "right", vertical="bottom", no_wrap=True)
    for row in rows:
        style = next((style for start, style in STYLES.items() if row[-1].startswith(start)), "")
        table.add_row(*row[:-1], Text(row[-1], style=style))
    console = _console()
    # Cut cells would hide the numbers that are to be compared.
    console.width = max(console.width, console.measure(table).minimum)
    console.print(table)
    console.print()
    for note in notes:
        console.print(note)
