"""The life of one mutant: it meets the tests that run its line, then those of its room, then, if asked, all."""

import time
from pathlib import Path

from mutate import mutation, nearest, process

DIED, LIVED = "died", "lived"
# Seconds of recorded time: what of the tests that run a line is run first, and then.
FIRST, THEN = 20, 60
# Seconds that a run may take beyond a few times of what was recorded.
PATIENCE = 30
# What the tests of a room are taken to cost if nothing was recorded.
UNKNOWN = 60
SLOW = 120


def tried(root, mutant, record, *, whole=False):
    """Return whether a mutant died, by which test, and in how many seconds."""
    begin = time.monotonic()
    file = Path(root) / mutant.path
    source = file.read_bytes()
    file.write_bytes(mutant.applied(source))
    try:
        outcome, by = _life(root, mutant, record, mutation.places(source)[mutant.line - 1][1], whole)
    finally:
        file.write_bytes(source)
    return outcome, by, time.monotonic() - begin


def _life(root, mutant, record, text, whole):
    for ids, arguments, without, seconds in _circles(root, mutant, record, text, whole):
        limit, passing = PATIENCE + 4 * seconds, set()
        while True:
            status, failed = process.run(root, ["-x", *arguments], process.Chosen(ids, {*without, *passing}), limit)
            if status is None:
                return DIED, "past its time"
            if status in process.PASSED:
                break
            if failed is None:
                return DIED, "before the tests"
            # A test that measures time may fail once of itself.
            again, _ = process.run(root, [failed.partition("::")[0]], process.Chosen([failed]), limit)
            if again not in process.PASSED:
                return DIED, failed
            passing.add(failed)
    return LIVED, None


def _circles(root, mutant, record, text, whole):
    """Yield what to run: the ids of tests in their order or None for all, the files, what was run, and the seconds."""
    covering = record.covering(mutant, text)
    done = {*record.failed}
    for budget in (FIRST, THEN):
        ids = record.within([test for test in covering if test not in done], budget)
        done |= {*ids}
        if ids:
            yield ids, sorted({test.partition("::")[0] for test in ids}), (), record.cost(ids)
    near = [path for path in nearest.mirrors(mutant.path) if (Path(root) / path).exists()]
    files = [path for path in near if path.endswith(".py")]
    # The module's own tests first, though they are of its room, too.
    for paths in (files, [path for path in near if path not in files]):
        if paths:
            tests = {test for test in record.seconds if test.startswith(tuple(paths))} - done
            yield None, [*paths, "-m", "not slow"], done.copy(), record.cost(tests) or UNKNOWN
            done |= tests
    if slow := nearest.slow(mutant.path):
        yield None, [*slow, "-m", "slow"], set(), SLOW
    if whole:
        yield None, ["tests", "--ignore=tests/mutate"], done, 3600
