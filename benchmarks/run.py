"""Run the benchmarks and print one table: ``python benchmarks/run.py [--write] [SUBJECT ...]``.

pytest-benchmark runs them and writes JSON; each benchmark leaves its rows there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import machine
import table
from row import Row

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
TABLE = HERE.parent / "docs" / "tables" / "benchmarks.md"
RECORD = HERE / "record.json"
# What is timed to the nanosecond comes first, in a process that has compiled nothing yet.
_CALLS = ("query", "branch", "pennylane", "gradient", "import", "compiled", "rules", "trace")
SUBJECTS = (*_CALLS, "products", "modules", "structure", "scaling", "frozen", "peers", "conformance")
# One thread each: of two, on a shared machine, one may have to wait for the other.
THREADS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_multi_thread_eigen=false".lstrip(),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"also write docs/tables/{TABLE.name} and the record")
    parser.add_argument("subjects", nargs="*", metavar="SUBJECT", help=f"of {', '.join(SUBJECTS)} (all)")
    arguments = parser.parse_args()
    if unknown := set(arguments.subjects) - set(SUBJECTS):
        parser.error(f"no subject {', '.join(sorted(unknown))}")
    if arguments.write and arguments.subjects:
        parser.error("--write writes the whole table: name no subject")
    status, sections = measure(arguments.subjects or SUBJECTS)
    described = machine.describe()
    table.show(sections, described)
    if status == 0 and arguments.write:
        TABLE.write_text(table.markdown(sections, described), encoding="utf-8")
        costs = {key(row): {"cost": row.cost, "noise": row.noise} for row in chain(*sections) if row.cost is not None}
        RECORD.write_text(json.dumps(costs, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return status


def key(row: Row) -> str:
    """Return the name of a row: what is measured, beside what."""
    return f"{row.what}; {row.reference.rpartition(': ')[0]}"


def measure(subjects: Iterable[str]) -> tuple[int, list[list[Row]]]:
    """Run the benchmarks of some subjects; return pytest's status and the rows of each."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        files = [HERE / f"test_{subject}.py" for subject in subjects]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--benchmark-quiet"]
        environment = {**os.environ, **THREADS}
        done = subprocess.run([*command, "--benchmark-json", results, *files], check=False, cwd=HERE.parent,
                              env=environment)  # fmt: skip
        # A benchmark whose answer was wrong leaves no row; the others are shown.
        return done.returncode, _sections(results) if results.exists() else []


def _sections(results: Path) -> list[list[Row]]:
    """Return the rows of each benchmark file, in the order in which they ran."""
    files: dict[str, list[Row]] = {}
    for entry in json.loads(results.read_text(encoding="utf-8"))["benchmarks"]:
        rows = files.setdefault(entry["fullname"].partition("::")[0], [])
        rows.extend(Row(**row) for row in entry["extra_info"].get("rows", []))
    return list(files.values())


if __name__ == "__main__":
    sys.exit(main())
