"""The tests nearest to a line: those that were seen to run it, and those of its layer."""

import collections
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from coverage import CoverageData

from mutate.draw import ROOT

# From a module or layer to the tests that mirror it; the longest that fits holds.
TABLE = {
    "adprotocol": ("tests/dispatch", "tests/hooks", "tests/gradients"),
    "adprotocol/__main__.py": ("tests/cli",),
    "adprotocol/_cli": ("tests/cli",),
    "adprotocol/_demo": ("tests/test_demo.py",),
    "adprotocol/_dispatch": ("tests/dispatch", "tests/cli", "tests/test_first_use.py"),
    "adprotocol/_dynamo.py": ("tests/test_dynamo.py", "tests/torch_plugin/test_torch_compile.py"),
    "adprotocol/_gradients": ("tests/gradients",),
    "adprotocol/_hooks": ("tests/hooks", "tests/trees"),
    "adprotocol/_trees": ("tests/trees", "tests/hooks", "tests/gradients"),
    "adprotocol/conformance": ("tests/conformance",),
    "adprotocol/divergence.py": ("tests/test_divergence.py",),
    "adprotocol/hookspecs.py": ("tests/dispatch",),
    "adprotocol_autograd": ("tests/autograd_plugin",),
    "adprotocol_jax": ("tests/jax_plugin",),
    "adprotocol_torch": ("tests/torch_plugin",),
}
# What guards all layers.
EVERYWHERE = "tests/test_layers.py"
# What takes long, and sees what nothing else does.
SUITE = "tests/conformance/test_support.py::test_plugin_conforms_and_the_record_is_what_the_suite_says"
SLOW = {
    "adprotocol/_demo": "tests/test_demo.py",
    "adprotocol_autograd": f"{SUITE}[autograd]",
    "adprotocol_jax": f"{SUITE}[jax]",
    "adprotocol_torch": f"{SUITE}[torch]",
}
RECORD = ROOT / "build" / "mutate" / "record.json"
# Of the tests that run a line, how many meet its mutants.
MOST = 40


def slow(path):
    """Return the slow tests that mirror a module."""
    return [tests for layer, tests in SLOW.items() if path.startswith(f"{layer}/")]


def mirrors(path):
    """Return the tests that mirror a module: those with its name, and all of its layer."""
    layer = max((layer for layer in TABLE if f"{path}/".startswith(f"{layer}/")), key=len, default=None)
    found = [test for test in (*TABLE.get(layer, ()), EVERYWHERE) if (ROOT / test).exists()]
    name = Path(path).stem.strip("_")
    named = [own for test in found for own in (ROOT / test).rglob(f"test_*{name}*.py")] if name != "init" else []
    return sorted(str(own.relative_to(ROOT)) for own in named), found


def place(source, number):
    """Return the text of a line and of the one above: a name for it that lives through edits elsewhere."""
    lines = ["", *source.splitlines()]
    return "\n".join(line.strip() for line in lines[number - 1 : number + 1])


def record(tests):
    """Run tests, and write down by which of them each line was run."""
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    data = RECORD.with_name("coverage")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "logical", "-m", "not slow", *tests]
    options = ["-p", "no:cacheprovider", "--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
    environment = {**os.environ, "COVERAGE_FILE": str(data), "OMP_NUM_THREADS": "1"}
    # Whatever fails: it is asked about the library as it is before it counts.
    subprocess.run([*command, *options], cwd=ROOT, env=environment, check=False, stdout=sys.stderr)
    RECORD.write_text(json.dumps(recorded(data)), "utf-8")


def recorded(data):
    """Return the tests that ran each line of a file of coverage's, by module and place."""
    found, lines = CoverageData(str(data)), collections.defaultdict(lambda: collections.defaultdict(list))
    found.read()
    for file in found.measured_files():
        if file.endswith(".py"):  # and no template of a report
            source = Path(file).read_text("utf-8")
            for number, names in found.contexts_by_lineno(file).items():
                # Without parameters, which change oftener.
                tests = {re.split(r"[\[|]", name)[0] for name in names if name}
                lines[str(Path(file).relative_to(ROOT))][place(source, number)] += sorted(tests)
    return lines


@functools.cache
def _lines():
    return json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}


def covering(path, line):
    """Return some of the tests that ran a line of a module, the nearest first; none for a line that is new."""
    named, layer = mirrors(path)

    def rank(test):
        return next((i for i, begin in enumerate((*named, *layer)) if test.startswith(begin)), sys.maxsize), test

    return sorted(filter(_is_there, _lines().get(path, {}).get(line, ())), key=rank)[:MOST]


def _is_there(test):
    file, *_, name = test.split("::")
    return (ROOT / file).exists() and f"def {name}(" in (ROOT / file).read_text("utf-8")
