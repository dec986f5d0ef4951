"""The tests nearest to a line: those that were seen to run it, and those of its room."""

import collections
from pathlib import Path

import coverage

from mutate import process

# From a module or room to the tests that mirror it; the longest that fits holds.
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
# The tests of a plugin's module, where their name is another.
OWN = {
    "adprotocol_autograd/gradient.py": ("autograd_plugin/test_autograd_gradient.py",),
    "adprotocol_jax/__init__.py": ("jax_plugin/test_jax_query.py", "jax_plugin/test_jax_gradient.py"),
    "adprotocol_jax/answer.py": ("jax_plugin/test_jax_untracked_branch.py",),
    "adprotocol_jax/cond.py": ("jax_plugin/test_jax_branching.py", "jax_plugin/test_jax_untracked_branch.py"),
    "adprotocol_jax/constant.py": ("jax_plugin/test_jax_constant.py",),
    "adprotocol_jax/hijax.py": ("jax_plugin/test_jax_extended_types.py",),
    "adprotocol_jax/internals.py": ("jax_plugin/test_jax_constant.py", "jax_plugin/test_jax_extended_types.py"),
    "adprotocol_jax/label.py": ("jax_plugin/test_jax_nodes.py",),
    "adprotocol_jax/node.py": ("jax_plugin/test_jax_nodes.py",),
    "adprotocol_jax/primitive.py": ("jax_plugin/test_jax_query.py",),
    "adprotocol_torch/backward.py": ("torch_plugin/test_torch_gradient.py", "torch_plugin/test_torch_hidden.py"),
    "adprotocol_torch/batched_cond.py": ("torch_plugin/test_torch_batched_branches.py",),
    "adprotocol_torch/branch_watch.py": ("torch_plugin/test_torch_batched_branches.py",),
    "adprotocol_torch/cond.py": ("torch_plugin/test_torch_branching.py", "torch_plugin/test_torch_staged.py"),
    "adprotocol_torch/zero_gradients.py": ("torch_plugin/test_torch_branching.py",),
    "adprotocol_torch/dynamo.py": ("torch_plugin/test_torch_compile.py",),
    "adprotocol_torch/gradient.py": ("torch_plugin/test_torch_gradient.py",),
    "adprotocol_torch/modules.py": ("torch_plugin/test_torch_modules.py", "torch_plugin/test_torch_recurrent.py"),
    "adprotocol_torch/parameters.py": ("torch_plugin/test_torch_modules.py",),
    "adprotocol_torch/aliases.py": ("torch_plugin/test_torch_references.py",),
    "adprotocol_torch/tracking.py": ("torch_plugin/test_torch_query.py",),
    **{f"{plugin}/conformance.py": ("conformance/test_harnesses.py",) for plugin in process.PACKAGES[1:]},
}
# The guards of all rooms.
EVERYWHERE = "tests/test_rooms.py"
# Seconds that a module may take.
LIMIT = 200
# Tests that run what they test in processes of its own, or stop threads by an exception, which a tracer may delay.
UNTRACED = ("tests/conformance", "tests/cli", "tests/test_d", "tests/test_tutorial.py", "tests/fuzz")
# What takes long, and sees what nothing else does.
SUITE = "tests/conformance/test_support.py::test_plugin_conforms_and_the_record_is_what_the_suite_says"
SLOW = {
    "adprotocol/_demo": "tests/test_demo.py",
    "adprotocol_autograd": f"{SUITE}[autograd]",
    "adprotocol_jax": f"{SUITE}[jax]",
    "adprotocol_torch": f"{SUITE}[torch]",
}
# Tests of what is built, of pages, and of tests: nobody looks there first.
APART = ("tests/test_wheel.py", "tests/mutate", "tests/examples", "tests/conformance/test_mutants.py")


def slow(path):
    """Return the slow tests that mirror a module."""
    return [tests for room, tests in SLOW.items() if path.startswith(f"{room}/")]


def mirrors(path):
    """Return the tests that mirror a module: its own first, then those of its room."""
    room = max((room for room in TABLE if f"{path}/".startswith(f"{room}/")), key=len, default=None)
    name = f"test_{Path(path).stem.strip('_')}.py"
    found = TABLE.get(room, ())
    named = [f"tests/{own}" for own in OWN.get(path, ())]
    own = [f"{folder}/{name}" for folder in found if (process.ROOT / folder / name).exists()]
    return [*named, *own, *found, EVERYWHERE]


class Timer(process.Chosen):
    """A plugin of pytest's: how long each test takes, and which fail as it is."""

    def __init__(self, ids=None):
        super().__init__(ids)
        self.seconds, self.broken = collections.Counter(), set()

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.broken.add(report.nodeid)

    def result(self):
        return {"seconds": self.seconds, "failed": sorted(self.broken)}


class Recorder(Timer):
    """The same, and which test runs which lines."""

    def __init__(self, root):
        super().__init__()
        self.root = Path(root)
        sources = [str(self.root / package) for package in process.PACKAGES]
        self.coverage = coverage.Coverage(data_file=None, source=sources, config_file=False, messages=False)

    def pytest_sessionstart(self):
        self.coverage.start()

    def pytest_runtest_logstart(self, nodeid):
        self.coverage.switch_context(nodeid)

    def pytest_sessionfinish(self):
        self.coverage.stop()

    def result(self):
        data, lines = self.coverage.get_data(), {}
        for file in data.measured_files():
            path = Path(file).relative_to(self.root)
            if path.suffix != ".py":  # the templates of reports, which jinja2 compiles
                continue
            lines[str(path)] = {
                line: tests
                for line, names in data.contexts_by_lineno(file).items()
                if (tests := [*filter(None, names)])
            }
        return {**super().result(), "lines": lines}


def modules():
    """Return the modules of tests, the longest first, without those that are set apart."""
    paths = [str(path.relative_to(process.ROOT)) for path in (process.ROOT / "tests").rglob("test_*.py")]
    return sorted(path for path in paths if not path.startswith(APART))


def record(root, module):
    """Return what a module of tests runs, in a process of its own, so that nothing is cached by those before."""
    only = ["-m", "not slow", module]
    _, found = process.run(root, only, Timer() if module.startswith(UNTRACED) else Recorder(root), LIMIT)
    if found is None:
        return {}
    if found["failed"]:
        # Some measure time; what fails again, and without a tracer, is of no use here.
        _, again = process.run(root, only, Timer(found["failed"]), LIMIT)
        found["failed"] = again["failed"] if again else found["failed"]
    return found


def by_text(result, places):
    """Return what was recorded with lines named by function and text, so that it lives through edits elsewhere."""
    lines = collections.defaultdict(set)
    for path, found in result.get("lines", {}).items():
        for line, tests in found.items():
            lines["\n".join((path, *places(path, int(line))))] |= set(tests)
    return {**result, "lines": {key: sorted(tests) for key, tests in lines.items()}}


class Record:
    """What was recorded of all modules."""

    def __init__(self, results):
        self.seconds, self.failed, self.lines = {}, set(), collections.defaultdict(list)
        for result in results:
            self.seconds |= result.get("seconds", {})
            self.failed |= set(result.get("failed", ()))
            for key, tests in result.get("lines", {}).items():
                self.lines[key] += tests

    def covering(self, mutant, text):
        """Return the tests that run a line, or, where none does, its function, or else its module; nearest first."""
        found = self.lines.get(f"{mutant.path}\n{mutant.within}\n{text}", [])
        for begin in (f"{mutant.path}\n{mutant.within}\n", f"{mutant.path}\n"):
            found = found or {test for key, tests in self.lines.items() if key.startswith(begin) for test in tests}
        near = mirrors(mutant.path)
        return sorted(
            (test for test in found if test not in self.failed),
            key=lambda test: (_rank(test, near), self.seconds.get(test, 1.0)),
        )

    def within(self, tests, budget):
        """Return as many of the tests, in their order, as are done within a number of seconds."""
        chosen = []
        for test in tests:
            cost = self.seconds.get(test, 1.0)
            if cost <= budget:
                budget -= cost
                chosen.append(test)
        return chosen

    def cost(self, tests):
        return sum(self.seconds.get(test, 1.0) for test in tests)


def _rank(test, near):
    return next((number for number, begin in enumerate(near) if test.startswith(begin)), len(near))
