"""Run points of the matrix, the two ends of each framework if none is named, and record what came of each."""

import argparse
import fnmatch
import json
import sys

from rich.console import Console
from rich.table import Table

from matrix import point as matrix
from matrix import workarounds

RECORD = matrix.ROOT / "docs" / "releases.json"


def selection(arguments):
    """Return the points that the command line asks for."""
    points = matrix.points()
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__)
    parser.add_argument("points", nargs="*", metavar="POINT", help=f"one of, or a glob over, {', '.join(points)}")
    parser.add_argument("--all", action="store_true", help="run every point")
    options = parser.parse_args(arguments)
    unknown = [pattern for pattern in options.points if not fnmatch.filter(points, pattern)]
    if unknown:
        parser.error(f"no point {', '.join(unknown)}; there are {', '.join(points)}")
    patterns = options.points or (["*"] if options.all else list(matrix.points(ends=True)))
    return [point for name, point in points.items() if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def main(arguments=None):
    """Run the points, print a table, and return 1 if one fails."""
    chosen = selection(arguments)
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    table = Table("point", "tests", "conformance", box=None, padding=(0, 1), header_style="bold")
    for point in chosen:
        row = record[point.name] = matrix.run(point)
        counts = ", ".join(f"{count} {word}" for word, count in row["tests"].items())
        table.add_row(point.name, counts, row["suite"], style="" if row["ok"] else "red")
        ordered = {name: record[name] for name in matrix.points() if name in record}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    for one in workarounds.due(matrix.bounds({point.framework for point in chosen})):
        console.print(f"may go: {one.place} {one.comment}")
    for one in workarounds.workarounds():
        if one.issue:
            console.print(f"look whether it is mended: {one.place} {one.comment}")
    return int(not all(record[point.name]["ok"] for point in chosen))


if __name__ == "__main__":
    sys.exit(main())
