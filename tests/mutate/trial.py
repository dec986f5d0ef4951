"""The life of one mutant: cosmic-ray runs tests on it, in a copy of the tree, until one fails."""

import functools
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

from cosmic_ray.mutating import mutate_and_test
from cosmic_ray.work_item import TestOutcome

from mutate.draw import ROOT

# From a module or layer to the tests that mirror it; the longest that fits holds.
MIRRORS = {
    "adprotocol": ("tests/dispatch", "tests/hooks", "tests/gradients"),
    "adprotocol/__main__.py": ("tests/cli",),
    "adprotocol/_cli": ("tests/cli",),
    "adprotocol/_demo": ("tests/test_demo.py",),
    "adprotocol/_dispatch": ("tests/dispatch", "tests/cli", "tests/test_first_use.py"),
    "adprotocol/_dynamo.py": ("tests/test_dynamo.py", "tests/torch_plugin/test_torch_compile.py"),
    "adprotocol/_gradients": ("tests/gradients",),
    "adprotocol/_hooks": ("tests/hooks", "tests/trees"),
    "adprotocol/_rules": ("tests/rules",),
    "adprotocol/_trees": ("tests/trees", "tests/hooks", "tests/gradients"),
    "adprotocol/conformance": ("tests/conformance",),
    "adprotocol/divergence.py": ("tests/test_divergence.py",),
    "adprotocol_autograd": ("tests/autograd_plugin", "tests/rules"),
    "adprotocol_jax": ("tests/jax_plugin", "tests/rules"),
    "adprotocol_torch": ("tests/torch_plugin", "tests/rules"),
}
# The conformance suite: on toyad it takes seconds; on each plugin it takes long, and sees what nothing else does.
TOYAD, SUITE = "tests/conformance/test_suite.py", "tests/conformance/test_support.py"
# Seconds of the processor, as a machine may have other work, and KiB of memory: a mutant may need either without end.
PROCESSOR, MEMORY = 600, 8 << 20
# Seconds for one that sleeps.
LIMIT = 3600
IGNORED = shutil.ignore_patterns(
    ".git", ".venv*", "__pycache__", "_build", "generated", "build", ".*_cache", ".hypothesis"
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+\.py(?:::.*?)?)(?: - .*)?$", re.MULTILINE)
NONE = re.compile(r"^(?:\d+ deselected|no tests ran)", re.MULTILINE)


def start(target, source=ROOT):
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


def circles(path, *, whole=False):
    """Yield the tests that a mutant meets: the suite on toyad, those of its name, of its layer, the suite, all."""
    package = path.split("/", 1)[0].removeprefix("adprotocol_")
    yield [TOYAD] if package == "adprotocol" else []
    layer = MIRRORS[max((one for one in MIRRORS if f"{path}/".startswith(f"{one}/")), key=len)]
    name = Path(path).stem.strip("_")
    yield sorted(str(test) for folder in layer for test in Path(folder).rglob(f"test_*{name}*.py"))
    yield [*layer, "tests/test_layers.py", "-mnot slow"]
    yield [SUITE, f"-k{package}"] if package != "adprotocol" else []
    yield ["tests", "--ignore=tests/mutate"] if whole else []


def tried(mutant, *, whole=False):
    """Return which test a mutant died by, if any did."""
    passing = []
    for tests in filter(None, circles(mutant.path, whole=whole)):
        while (test := failing([mutant.spec], [*tests, *(f"--deselect={one}" for one in passing)])) is not None:
            # A test that measures time may fail once of itself.
            if ".py" in test and (fails_anyway(test) or failing([mutant.spec], [test]) is None):
                passing.append(test)
            else:
                return test
    return None


def failing(specs, tests):
    """Return the first of some tests that fails with mutations, or what else is wrong; None if all pass."""
    Path("tests.txt").write_text("\n".join(tests), "utf-8")
    command = f"{shlex.quote(str(Path('python').absolute()))} -m pytest -q -x --tb=no -p no:cacheprovider @tests.txt"
    result = mutate_and_test(specs, command, LIMIT)
    if result.test_outcome == TestOutcome.INCOMPETENT:
        raise RuntimeError(result.output)
    if result.test_outcome == TestOutcome.SURVIVED or NONE.search(result.output):
        return None
    failed = FAILED.findall(result.output)
    return failed[0] if failed else "no test: it hangs, or breaks before the first"


@functools.cache
def fails_anyway(test):
    return failing([], [test]) is not None
