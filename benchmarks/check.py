"""Hold the costs of a run against the record, and name what got worse: ``python benchmarks/check.py``.

A cost is a ratio of ours to a reference, taken side by side, so it does not depend on the machine's speed. It is worse
if it exceeds the recorded one by more than a quarter and by more than the noise of both runs. What seems worse is
measured a second time, and is only then named.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import run

if TYPE_CHECKING:
    from row import Row

TOLERANCE = 0.25
# The noise is half of a quartile range, of single rounds; a median of many varies less than twice that.
NOISES = 2
# What no machine but the one of the record can be held to: the time of a whole command, and other environments.
LEFT_OUT = ("conformance", "pennylane", "peers", "frozen", "scaling")


def worse(rows: list[Row], recorded: dict[str, dict[str, float]]) -> dict[str, tuple[float, float]]:
    """Return the costs, recorded and found, of the rows that got worse."""
    found = {}
    for row in rows:
        before = recorded.get(run.key(row))
        if before is None or row.cost is None:
            continue
        spread = NOISES * (before["noise"] + (row.noise or 0.0))
        if row.cost > before["cost"] * (1 + max(TOLERANCE if row.noise else 0.0, spread)):
            found[run.key(row)] = (before["cost"], row.cost)
    return found


def main() -> int:
    """Return 1 if something got worse twice."""
    recorded = json.loads(run.RECORD.read_text(encoding="utf-8"))
    subjects = [subject for subject in run.SUBJECTS if subject not in LEFT_OUT]
    suspects: dict[str, tuple[float, float]] | None = None
    for _ in range(2):
        status, sections = run.measure(subjects)
        if status:
            return status
        rows = [row for section in sections for row in section]
        found = worse(rows, recorded)
        suspects = found if suspects is None else {name: found[name] for name in suspects.keys() & found.keys()}
        if not suspects:
            print(f"none of {len(rows)} rows got worse")
            return 0
    for name, (before, now) in sorted(suspects.items()):
        print(f"worse: {name}: {now:.2f}, recorded {before:.2f}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
