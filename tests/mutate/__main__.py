"""Draw mutants of the library, run the tests nearest to each, and print those that lived; status 1 if any did."""

import argparse
import concurrent.futures
import functools
import json
import multiprocessing
import os
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from mutate import mutation, nearest, process, trial

RECORD = process.ROOT / "build" / "mutate"
EQUIVALENT = Path(__file__).parent / "equivalent.toml"
JOBS = 2


def paths():
    """Return the modules that are mutated: all but the texts of the scenarios."""
    found = (
        path.relative_to(process.ROOT) for name in process.PACKAGES for path in (process.ROOT / name).rglob("*.py")
    )
    return sorted(str(path) for path in found if "scenarios" not in path.parts)


def explanations():
    """Return the entries of the file, each the description of mutants and a reason."""
    return tomllib.loads(EQUIVALENT.read_text("utf-8")).get("equivalent", [])


def explanation(mutant, entries):
    """Return the reason why a mutant cannot be told from the original, or None."""
    for entry in entries:
        if all(
            getattr(mutant, name) == entry[name] for name in ("path", "within", "original", "mutated") if name in entry
        ):
            return entry["reason"]
    return None


@functools.cache
def _places(path):
    return mutation.places((process.ROOT / path).read_bytes())


def _place(path, line):
    return _places(path)[line - 1]


class Worker:
    """What a process of the pool holds: a copy of the tree for it alone."""

    root = None
    record = None

    @classmethod
    def start(cls, target, record):
        cls.root, cls.record = process.copied(target), record


def _recorded(module):
    return nearest.record(Worker.root, module)


def _tried(mutant, whole):
    return trial.tried(Worker.root, mutant, Worker.record, whole=whole)


def _parse(arguments):
    parser = argparse.ArgumentParser(prog="mutate", description=__doc__)
    parser.add_argument("count", type=int, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="the mutants of another seed are others (1)")
    parser.add_argument("--path", default="", help="only of modules that begin so, such as adprotocol/_trees")
    parser.add_argument("--whole", action="store_true", help="run all tests on those that live")
    parser.add_argument("--record", action="store_true", help="record anew which test runs which line")
    return parser.parse_args(arguments)


def main(arguments=None):
    """Print the mutants that lived, and return the exit status."""
    options = _parse(arguments)
    begin = time.monotonic()
    process.warm()
    entries = explanations()
    with tempfile.TemporaryDirectory() as target:
        if options.record or not any(RECORD.glob("*.json")):
            with _pool(target, None) as pool:
                _record(pool)
        record = nearest.Record(json.loads(path.read_text("utf-8")) for path in sorted(RECORD.glob("*.json")))
        pool = [mutant for mutant in mutation.mutants(process.ROOT, paths()) if mutant.path.startswith(options.path)]
        drawn = sorted(pool, key=lambda mutant: mutant.rank(options.seed))[: options.count]
        tried = [mutant for mutant in drawn if explanation(mutant, entries) is None]
        lived = 0
        with _pool(target, record) as workers:
            running = {workers.submit(_tried, mutant, options.whole): mutant for mutant in tried}
            for number, done in enumerate(concurrent.futures.as_completed(running), 1):
                outcome, by, seconds = done.result()
                sys.stderr.write(f"{number}/{len(tried)} {outcome} in {seconds:.0f} s {by or ''}\n")
                if outcome == trial.LIVED:
                    lived += 1
                    sys.stdout.write(f"{running[done]}\n")
                    sys.stdout.flush()
    sys.stdout.write(
        f"{len(tried) - lived} of {len(tried)} died, {lived} lived, {len(drawn) - len(tried)} more are explained; "
        f"seed {options.seed}, {len(pool)} mutants to draw from, {time.monotonic() - begin:.0f} s\n"
    )
    return 1 if lived else 0


def _pool(target, record):
    context = multiprocessing.get_context("fork")
    return concurrent.futures.ProcessPoolExecutor(JOBS, context, Worker.start, (target, record))


def _record(pool):
    RECORD.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    running = {pool.submit(_recorded, module): module for module in nearest.modules()}
    for done in concurrent.futures.as_completed(running):
        module, result = running[done], nearest.by_text(done.result(), _place)
        (RECORD / f"{module.replace('/', '.')}.json").write_text(json.dumps(result), "utf-8")
        counts = [len(result.get(name, ())) for name in ("seconds", "failed")]
        spent = time.monotonic() - begin
        sys.stderr.write(f"recorded {module}: {counts[0]} tests, {counts[1]} fail, {spent:.0f} s\n")


if __name__ == "__main__":
    os.nice(5)
    sys.exit(main())
