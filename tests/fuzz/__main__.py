"""Run generated programs, or stress, and print what came of it and a repro of what failed; status 1 if any did."""

import argparse
import os
import sys
from collections import Counter

# As in the tests: a bare machine, and two devices.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=2")

from rich.console import Console
from rich.progress import track
from rich.table import Table

from fuzz import isolation, outcome, shrink

REPROS = 5


def main(arguments=None):
    """Print the summary and return the exit status."""
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("count", type=int, help="how many programs for each framework")
    parser.add_argument("--seed", type=int, default=0, help="the programs of another seed are others (0)")
    parser.add_argument("--framework", action="append", choices=outcome.FRAMEWORKS, help="one of them (all)")
    parser.add_argument("--show", choices=outcome.OUTCOMES, help="print a few programs of this outcome as well")
    parser.add_argument("--stress", type=float, default=0, metavar="SECONDS", help="then threads, tasks and processes")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 180, highlight=False)
    failures = _programs(options, console) if options.count else 0
    return 1 if failures + (_stress(options, console) if options.stress else 0) else 0


def _programs(options, console):
    """Print what came of the programs, and return how many failed."""
    progress = Console(stderr=True)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("framework", "programs", *outcome.OUTCOMES, "asked", "True"):
        table.add_column(title, justify="left" if title == "framework" else "right")
    shown, failures, errors = [], 0, Counter()
    for name in options.framework or outcome.FRAMEWORKS:
        counts, questions, framework = Counter(), Counter(), outcome.FRAMEWORKS[name]
        programs = (outcome.numbered(name, options.seed, i) for i in range(options.count))
        results = isolation.every(programs, framework)
        for i, result in enumerate(
            track(results, name, options.count, console=progress, disable=not progress.is_terminal)
        ):
            counts[result.outcome] += 1
            if result.outcome in (outcome.RIGHT, *outcome.FAILURES):
                questions.update(result.asked)
            elif result.outcome == outcome.LOUD:
                errors[name, result.got[:90]] += 1
            else:
                errors[name, result.want[:90]] += 1
            if result.outcome in (*outcome.FAILURES, options.show):
                shown.append((name, i, result))
        failures += sum(counts[one] for one in outcome.FAILURES)
        numbers = [options.count, *(counts[one] for one in outcome.OUTCOMES), questions.total(), questions[True]]
        table.add_row(name, *map(str, numbers))
    for (name, message), count in errors.most_common(12):
        console.print(f"{count:6} {name}: {message}", markup=False)
    console.print(table)
    for name, i, result in sorted(shown, key=lambda entry: len(entry[2].ours))[:REPROS]:
        console.print(f"\n# {result.outcome}: {name}, seed {options.seed}, program {i}", style="bold")
        console.print(shrink.shrink(result).repro, markup=False, soft_wrap=True)
    return failures


def _stress(options, console):
    """Print what was done at once, and return in how many ways it went wrong."""
    # Frameworks that one asks for alone are not imported for programs of another.
    from fuzz.stress import run

    count = 0
    for name, done, failures in run.run(options.stress, options.seed):
        console.print(f"{name}: {done}", *failures, sep="\n", markup=False, soft_wrap=True)
        count += len(failures)
    return count


if __name__ == "__main__":
    sys.exit(main())
