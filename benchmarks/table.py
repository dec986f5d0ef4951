"""The table: for the terminal, and as Markdown for the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from row import Row

COLUMNS = ("what", "ours", "reference", "ratio", "noise", "target", "")
BRANCH = "h(x) = cond(within_gradient(x), train, evaluate, x)"
RATIO = "the ratio is ours / reference; noise is half of its interquartile range"
NUMBERS = ("ours", "ratio", "noise")
STYLES = {None: "", True: "green", False: "bold red"}


def show(sections: list[list[Row]], machine: str) -> None:
    """Print the table, a section for each benchmark file."""
    console = Console()
    # Piped into a file there is no width to fit.
    console = console if console.is_terminal else Console(width=180)
    table = Table(title="adprotocol, measured side by side")
    for name in COLUMNS:
        table.add_column(
            name, justify="right" if name in NUMBERS else "left", no_wrap=name not in ("what", "reference")
        )
    for rows in sections:
        for row in rows:
            cells = [row.what, row.ours, row.reference, row.ratio, spread(row), row.target]
            table.add_row(*map(Text, cells), Text(row.verdict, STYLES[row.met]))
        table.add_section()
    console.print(table)
    console.print(f"{BRANCH}; {RATIO}", highlight=False)
    console.print(machine, highlight=False)


def markdown(sections: list[list[Row]], machine: str) -> str:
    """Return a page: the machine and the table."""
    notes = list(dict.fromkeys(row.reason for rows in sections for row in rows if row.reason))
    lines = [
        # In no list of pages, and no result of a search: the page of benchmarks links to it.
        "---\norphan: true\nnosearch: true\n---",
        "",
        "# Every row of the benchmarks",
        "",
        "`make bench ARGS=--write` writes this page. [Benchmarks](../benchmarks.md) says how the rows are measured.",
        "",
        f"Machine: {machine}.",
        "",
        f"In the table `{BRANCH}`; {RATIO}.",
        "",
        _line([*COLUMNS, "note"]),
        _line(["---"] * (len(COLUMNS) + 1)),
    ]
    for row in (row for rows in sections for row in rows):
        verdict = f"**{row.verdict}**" if row.met is False else row.verdict
        name = row.what.replace("  ", "… ")
        note = str(notes.index(row.reason) + 1) if row.reason else ""
        cells = [name, row.ours, row.reference, row.ratio, spread(row), row.target, verdict, note]
        lines.append(_line(cells))
    lines += ["", "What a call does beyond its reference, by the numbers of the notes:", ""]
    lines += [f"{number}. It {note}." for number, note in enumerate(notes, 1)]
    return "\n".join(lines) + "\n"


def spread(row: Row) -> str:
    """Return the noise of a ratio in per cent."""
    return f"± {row.noise:.0%}" if row.noise else ""


def _line(cells: list[str] | tuple[str, ...]) -> str:
    # A star would start emphasis in Markdown, a bar ends a cell.
    return "| " + " | ".join(cell.replace("|", r"\|").replace("_", r"\_") for cell in cells) + " |"
