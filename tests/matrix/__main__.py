"""Run points of the matrix, print a table, and record what came of each; status 1 if one fails."""

import argparse
import fnmatch
import json
import sys

from rich.console import Console
from rich.table import Table

from matrix import point as matrix

RECORD = matrix.ROOT / "docs" / "releases.json"


def select(patterns, names):
    """Return the names that one of the patterns matches, in their own order, and the patterns that match none."""
    chosen = [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    return chosen, [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]


def main(arguments=None):
    """Run what is named, or all, and return the exit status."""
    known = matrix.points()
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__)
    parser.add_argument("points", nargs="*", help=f"some of, or globs over, {', '.join(known)} (all)")
    named = parser.parse_args(arguments).points or ["*"]
    chosen, unknown = select(named, known)
    if unknown:
        parser.error(f"no point {', '.join(unknown)}; there are {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("point", "tests", "conformance"):
        table.add_column(title)
    recorded = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    failed = False
    for name in chosen:
        found = matrix.run(known[name])
        recorded[name] = found
        failed |= not found["ok"]
        counts = ", ".join(f"{count} {word}" for word, count in found["tests"].items())
        table.add_row(name, counts, found["suite"], style="" if found["ok"] else "red")
        ordered = {key: recorded[key] for key in known if key in recorded}
        RECORD.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
