"""The life of one mutant: cosmic-ray runs tests on it, in a copy of the tree, until one fails."""

import functools
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path

from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import TestOutcome

from mutate import draw, nearest

# Seconds of the processor, as a machine may have other work, and KiB of memory: a mutant may need either without end.
PROCESSOR, MEMORY = 600, 8 << 20
# Seconds for one that sleeps.
LIMIT = 3600
IGNORED = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", "_build", "generated", "build", ".*_cache", ".hypothesis"
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)
NONE = re.compile(r"^(?:\d+ deselected|no tests ran)", re.MULTILINE)


def start(target, source=draw.ROOT):
    """Give a process of the pool a copy of the tree for it alone, which is what its tests import."""
    os.nice(5)
    root = tempfile.mkdtemp(dir=target)
    shutil.copytree(source, root, dirs_exist_ok=True, ignore=IGNORED)
    os.chdir(root)
    # Some tests start an interpreter with a module path of their own, which has to lead to the copy.
    interpreter = Path(root, "python")
    limits = f"ulimit -t {PROCESSOR}; ulimit -d {MEMORY}"
    lines = ["#!/bin/sh", limits, f'PYTHONPATH="$PYTHONPATH:{root}" exec {sys.executable} "$@"', ""]
    interpreter.write_text("\n".join(lines), "utf-8")
    interpreter.chmod(0o755)
    os.environ |= {"PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


def failing(specs, tests):
    """Return the first of some tests that fails with mutations, or what else is wrong; None if all pass."""
    Path("tests.txt").write_text("\n".join(tests), "utf-8")
    command = f"{shlex.quote(str(Path('python').absolute()))} -m pytest -q -x --tb=no -p no:cacheprovider @tests.txt"
    result = mutate_and_test(specs, command, LIMIT)
    if result.test_outcome == TestOutcome.INCOMPETENT:
        raise RuntimeError(result.output)
    if result.test_outcome == TestOutcome.SURVIVED or NONE.search(result.output):
        return None
    found = FAILED.findall(result.output)
    return found[0] if found else "no test: it hangs, or breaks before the first"


@functools.cache
def fails_anyway(test):
    return failing([], [test]) is not None


def tried(mutant, *, whole=False):
    """Return which test a mutant died by, if any did, and in how many seconds."""
    begin, passing = time.monotonic(), []
    for tests in _circles(mutant, whole=whole):
        while (test := failing([mutant.spec], [*tests, *(f"--deselect={one}" for one in passing)])) is not None:
            # A test that measures time may fail once of itself.
            if ".py" in test and (fails_anyway(test) or failing([mutant.spec], [test]) is None):
                passing.append(test)
            else:
                return test, time.monotonic() - begin
    return None, time.monotonic() - begin


def _circles(mutant, *, whole):
    """Yield what to run: the tests that ran the line or have the module's name, those of its layer, slow ones, all."""
    source = (draw.ROOT / mutant.path).read_text("utf-8")
    named, layer = nearest.mirrors(mutant.path)
    circles = [
        [*nearest.covering(mutant.path, nearest.place(source, mutant.spec.start_pos[0])), *named],
        [*layer, "-mnot slow"],
        nearest.slow(mutant.path),
        ["tests", "--ignore=tests/mutate"] if whole else [],
    ]
    return filter(None, circles)
