"""Draw mutants of the library, run the tests nearest to each, and print those that lived; status 1 if any did.

cosmic-ray makes the mutants and runs a command of tests on each, in a copy of the tree.
"""

import argparse
import concurrent.futures
import itertools
import multiprocessing
import sys
import tempfile
import time

from mutate import draw, nearest, trial

JOBS = 2


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("count", type=int, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="the mutants of another seed are others (1)")
    parser.add_argument("--path", default="", help="only of modules that begin so, such as adprotocol/_trees")
    parser.add_argument("--whole", action="store_true", help="run all tests on those that live")
    parser.add_argument("--record", nargs="*", metavar="TESTS", help="record anew which test runs which line")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Print the mutants that lived, and return the exit status."""
    options = _parse(arguments)
    begin = time.monotonic()
    if options.record is not None or not nearest.RECORD.exists():
        nearest.record(options.record or ["tests"])
    drawn = list(itertools.islice(draw.drawn(draw.ROOT, draw.modules(options.path), options.seed), options.count))
    entries = draw.explanations()
    mutants = [mutant for mutant in drawn if draw.explanation(mutant, entries) is None]
    lived = 0
    with tempfile.TemporaryDirectory() as target:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(JOBS, context, trial.start, (target,)) as workers:
            running = {workers.submit(trial.tried, mutant, whole=options.whole): mutant for mutant in mutants}
            for number, done in enumerate(concurrent.futures.as_completed(running), 1):
                test, seconds = done.result()
                outcome = f"died by {test}" if test else "lived"
                sys.stderr.write(f"{number}/{len(mutants)} {outcome} in {seconds:.0f} s\n")
                if test is None:
                    lived += 1
                    sys.stdout.write(f"{running[done]}\n")
                    sys.stdout.flush()
    sys.stdout.write(
        f"{len(mutants) - lived} of {len(mutants)} died, {lived} lived, {len(drawn) - len(mutants)} more are "
        f"explained; seed {options.seed}, {time.monotonic() - begin:.0f} s\n"
    )
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
