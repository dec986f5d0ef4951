"""Draw mutants of the library, run tests on each, and print which test killed it, and those that lived: status 1.

A mutant of the core meets the suite on toyad first, then the tests nearest to it.

cosmic-ray makes the mutants and runs a command of tests on each, in a copy of the tree.
"""

import argparse
import collections
import concurrent.futures
import itertools
import multiprocessing
import sys
import tempfile

from mutate import draw, trial

JOBS = 2


def main(arguments=None):
    """Print the mutants that lived, and return the exit status."""
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("count", type=int, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="the mutants of another seed are others (1)")
    parser.add_argument("--path", default="", help="only of modules that begin so, such as adprotocol/_trees")
    parser.add_argument("--whole", action="store_true", help="run all tests on those that live")
    options = parser.parse_args(arguments)
    mutants = itertools.islice(draw.mutants(draw.ROOT, draw.modules(options.path), options.seed), options.count)
    lived, killers = 0, collections.Counter()
    with tempfile.TemporaryDirectory() as target:
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(JOBS, context, trial.start, (target,)) as workers:
            running = {workers.submit(trial.tried, mutant, whole=options.whole): mutant for mutant in mutants}
            for count, done in enumerate(concurrent.futures.as_completed(running), 1):
                test = done.result()
                lived += test is None
                killers[(test or "").partition("[")[0]] += 1
                sys.stdout.write(f"{count}/{len(running)} {f'died by {test}' if test else 'lived'}: {running[done]}\n")
                sys.stdout.flush()
    del killers[""]
    sys.stdout.writelines(f"{died:5} died by {test}\n" for test, died in killers.most_common())
    sys.stdout.write(f"{killers.total()} of {killers.total() + lived} died, {lived} lived; seed {options.seed}\n")
    return 1 if lived else 0


if __name__ == "__main__":
    sys.exit(main())
