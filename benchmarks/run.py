"""Run the benchmarks and print one table: ``python benchmarks/run.py [--write]``.

pytest-benchmark runs them and writes JSON; each benchmark leaves its rows there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import machine
import table
from row import Row

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
# What is timed to the nanosecond comes first, in a process that has compiled nothing yet.
SUBJECTS = ("query", "pluggy", "pennylane", "extra", "import", "compiled", "structure", "frozen", "conformance")
# One thread each: of two, on a shared machine, one may have to wait for the other.
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".lstrip(),
}
BEGIN, END = "<!-- table -->", "<!-- /table -->"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also put the table into docs/{PAGE.name}")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        status = _measure(results)
        # A benchmark whose answer was wrong leaves no row; the others are shown.
        sections = _sections(results) if results.exists() else []
    described = machine.describe()
    table.show(sections, described)
    if status == 0 and arguments.write:
        _write(table.markdown(sections, described))
    return status


def _measure(results: Path) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    files = [HERE / f"test_{subject}.py" for subject in SUBJECTS]
    options = ["--benchmark-quiet", "--benchmark-json", results]
    environment = {**os.environ, **THREADS}
    return subprocess.run([*command, *options, *files], check=False, cwd=HERE.parent, env=environment).returncode


def _sections(results: Path) -> list[list[Row]]:
    """Return the rows of each benchmark file, in the order in which they ran."""
    files: dict[str, list[Row]] = {}
    for entry in json.loads(results.read_text(encoding="utf-8"))["benchmarks"]:
        rows = files.setdefault(entry["fullname"].partition("::")[0], [])
        rows.extend(Row(**row) for row in entry["extra_info"].get("rows", []))
    return list(files.values())


def _write(written: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    before, found, rest = page.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        msg = f"docs/{PAGE.name} has no markers {BEGIN} and {END} to write the table between"
        raise SystemExit(msg)
    PAGE.write_text(f"{before}{BEGIN}\n\n{written}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
