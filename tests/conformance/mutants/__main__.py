"""Print the kill matrix: every mutant, and how many scenarios of each hook it fails.

Exits with 1 if a mutant survives the scenarios of its hook, if scenarios of one make alone kill it and it does not say
why, or if a scenario kills no mutant.
"""

import argparse
import json
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from adprotocol.conformance import all_scenarios
from adprotocol.conformance.scenario import HOOKS
from mutants import matrix
from mutants.mutant import MUTANTS


def main(arguments=None):
    """Print the matrix and return the exit status."""
    options = _parse(arguments)
    if options.record:
        matrix.record(matrix.quick_alone())
        return 0
    mutants = [mutant for mutant in MUTANTS if any(word in mutant.id for word in options.k or [""])]
    if not mutants:
        sys.stderr.write(f"no mutant has one of {', '.join(options.k)} in its name\n")
        return 2
    begin = time.perf_counter()
    wrong = matrix.failures()
    every = track(
        matrix.whole(mutants, options.jobs),
        description="mutants",
        total=len(mutants),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    found = dict(every)
    survivors, alone = matrix.survivors(found), matrix.alone(found)
    # A few mutants alone say nothing about the scenarios.
    idle = [] if options.k else matrix.idle(found, all_scenarios().values())
    if options.json:
        json.dump(_data(found, survivors, alone, idle, wrong), sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        _print(found, survivors, alone, idle, wrong, time.perf_counter() - begin)
    return 1 if survivors or alone or idle or wrong else 0


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("-k", action="append", metavar="WORD", help="only mutants with a word in hook/name")
    parser.add_argument("--json", action="store_true", help="print the matrix as JSON")
    parser.add_argument("--record", action="store_true", help="write which scenarios are to be tried first")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes (2)")
    return parser.parse_args(arguments)


def _data(found, survivors, alone, idle, wrong):
    return {
        "mutants": [
            {"id": mutant.id, "way": mutant.way, "trivial": mutant.trivial, "killed_by": ids}
            for mutant, ids in found.items()
        ],
        "survivors": [mutant.id for mutant in survivors],
        "alone": [mutant.id for mutant in alone],
        "idle": [scenario.id for scenario in idle],
        "wrong": {name: str(error) for name, error in wrong.items()},
    }


def _print(found, survivors, alone, idle, wrong, seconds):  # noqa: PLR0913, PLR0917  (what is listed)
    console = Console(width=None if sys.stdout.isatty() else 180, highlight=False, markup=False)
    table = Table("mutant", "how it is wrong", *(hook.partition("_")[0] for hook in HOOKS), "all", box=None)
    for column in table.columns:
        column.no_wrap = True
    for mutant, ids in sorted(found.items(), key=lambda pair: HOOKS.index(pair[0].hook)):
        counts = Counter(name.partition("/")[0] for name in ids)
        name = f"{mutant.id} (trivial)" if mutant.trivial else mutant.id
        style = "bold red" if mutant in survivors else None
        table.add_row(name, mutant.way, *(str(counts[hook] or "-") for hook in HOOKS), str(len(ids)), style=style)
    console.print(table)
    _list(console, "SURVIVORS", [f"{mutant.id}: {mutant.way}" for mutant in survivors])
    _list(console, "KILLED BY SCENARIOS OF ONE MAKE", [f"{mutant.id}: {mutant.way}" for mutant in alone])
    _list(console, "SCENARIOS THAT KILL NOTHING", [scenario.id for scenario in idle])
    _list(console, "SCENARIOS THAT FAIL WITHOUT A MUTANT", [f"{name}: {error}" for name, error in wrong.items()])
    killing = {name for mutant, ids in found.items() if not mutant.trivial for name in ids}
    console.print(
        f"\n{len(found) - len(survivors)} of {len(found)} mutants are killed by scenarios of their hook; "
        f"{len(killing)} of {len(all_scenarios())} scenarios kill; {seconds:.0f} s"
    )


def _list(console, title, lines):
    if lines:
        console.print(f"\n{title}", *(f"  {line}" for line in lines), sep="\n")


if __name__ == "__main__":
    sys.exit(main())
