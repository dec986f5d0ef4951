"""The pytest plugin of the command: workers send results, and the process that waits for them keeps these.

pytest ends a worker that hangs, and pytest-xdist replaces one that ends; the scenario is named either way.
"""

from __future__ import annotations

import gc
import os
import time
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import pytest

from adprotocol.conformance._run import run as runs
from adprotocol.conformance._run import suite
from adprotocol.conformance._run.backend import BrokenBackend, UsageError
from adprotocol.conformance._run.result import CRASHED, FAIL, PLUGIN, RUN, TIME, Problem, Report, Result
from adprotocol.conformance.harness import KNOWN
from adprotocol.conformance.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

# The environment variable that has the options of the suite, for the workers.
VARIABLE = "ADPROTOCOL_CONFORMANCE"
# And the one that has the folder they share.
FOLDER = "ADPROTOCOL_CONFORMANCE_FOLDER"
INTERRUPTED = pytest.ExitCode.INTERRUPTED
COLLECTED = Path(__file__).with_name("collected.py")
# So many workers are replaced at most: each imports the framework and checks the harness.
REPLACED = 50


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Add to the report of a test what it has for that of the suite."""
    report = yield
    if call.when == "call":
        parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        report.conformance = parameters["item"].data if parameters else {}
        if call.excinfo is not None and isinstance(call.excinfo.value, (BrokenBackend, UsageError)):
            report.conformance = {"refusal": [call.excinfo.typename, str(call.excinfo.value)]}
    return report


def pytest_collection_finish() -> None:
    """Let the collector of garbage look less often among what a framework has made: a quarter of PyTorch's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 10)


class Collector:
    """Keep what the workers send, in the process that waits for them."""

    def __init__(self, expression: str, limit: float) -> None:
        self.expression, self.limit = expression, limit
        self.head: dict[str, Any] = {}
        self.ids: list[str] = []
        self.results: list[Result] = []
        self.faults: list[str] = []
        self.problems: dict[tuple[str, str], Problem] = {}
        self.refusal: UsageError | BrokenBackend | None = None
        self.begun: dict[str, float] = {}

    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Keep the order of the cases."""
        self.ids = [_id(nodeid) for nodeid in ids if not _id(nodeid).startswith("harness/")]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        """End the run if a worker ends before the first scenario: the next would end in the same way."""
        if error and not self.ids and self.refusal is None:
            self.refusal = BrokenBackend("before the first scenario the process ended")
            pytest.exit(str(self.refusal))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Note when a test begins."""
        self.begun[nodeid] = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what a test adds to the report."""
        data: Mapping[str, Any] = getattr(report, "conformance", {})
        if report.when not in ("setup", "call", "teardown"):  # of a worker that came to an end
            self._crashed(report)
        elif "refusal" in data:
            kind, message = data["refusal"]
            self.refusal = UsageError(message) if kind == UsageError.__name__ else BrokenBackend(message)
        elif "result" in data:
            self.results.append(Result.from_data(data["result"]))
            self.faults += filter(None, [data["fault"]])
        elif data:
            states = self.head.get("capabilities", {}) | data["capabilities"]
            self.head = {**data, "capabilities": {name: states[name] for name in KNOWN if name in states}}
            for problem in data["problems"]:
                self.problems[problem["where"], problem["message"]] = Problem(**problem)

    def _crashed(self, report: pytest.TestReport) -> None:
        name, took = _id(report.nodeid), time.monotonic() - self.begun.get(report.nodeid, 0.0)
        hung = took >= 0.9 * self.limit  # a message may come late
        message = f"it did not return within {self.limit:g} s" if hung else "the process ended; the stack is above"
        if name.startswith("harness/"):
            what = f"{name.removeprefix('harness/')}: its check did not come to an end: {message}"
            self.problems["harness", what] = Problem(where="harness", message=what)
            return
        identifier, _, variant = name.partition("@")
        scenario = all_scenarios()[identifier]
        outcome, cause = (FAIL, TIME) if hung else (CRASHED, PLUGIN)
        known = {"message": message, "repro": runs.repro(scenario, self.expression, variant), "seconds": round(took, 4)}
        self.results.append(Result.of(scenario, id=name, outcome=outcome, cause=cause, **known))

    def report(self, backend: str, *, interrupted: bool, **known: Any) -> Report:
        """Return the report of what was kept."""
        order = {name: place for place, name in enumerate(self.ids)}
        results = tuple(sorted(self.results, key=lambda result: order.get(result.id, len(order))))
        left = len(self.ids) - len(results)
        if interrupted:
            message = f"interrupted after {len(results)} of {len(self.ids)} scenarios"
            self.problems[RUN, message] = Problem(where=RUN, message=message)
        elif self.faults:
            self.problems[RUN, ""] = suite.stopped(self.faults, left)
        elif left > 0:
            message = f"{left} scenarios have no result: too many processes came to an end"
            self.problems[RUN, message] = Problem(where=RUN, message=message)
        head = Report.from_data(self.head) if self.head else Report(backend=backend)
        return replace(head, results=results, problems=tuple(self.problems.values()), **known)


def _id(nodeid: str) -> str:
    return nodeid.partition("[")[2].removesuffix("]")


def main(collector: Collector, *, jobs: int, limit: float, stream: TextIO) -> int:
    """Run pytest on the suite, apart from whatever settings and plugins the current directory has for it."""
    os.environ.pop("PYTEST_ADDOPTS", None)
    options = [
        *("--rootdir", str(COLLECTED.parent), "-c", os.devnull, "--noconftest", "--disable-plugin-autoload"),
        *("-p", "no:cacheprovider", "-p", "xdist", "-p", __name__),
        *("-n", str(jobs), "--max-worker-restart", str(REPLACED), "--maxfail", "0"),
        # Unlike pytest-timeout this ends code, too, that holds the lock of the interpreter, and shows the stack.
        *("-o", f"faulthandler_timeout={limit}", "-o", "faulthandler_exit_on_timeout=true"),
        *("-q", "--no-header", "--no-summary", "--disable-warnings"),
    ]
    with redirect_stdout(stream):
        return int(pytest.main([*options, str(COLLECTED)], plugins=[collector]))
