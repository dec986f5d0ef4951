"""The conformance suite: does a plugin keep the rules of the protocol for this AD system, in this version?

The maintainer of an AD system describes it by a `Harness`, runs

.. code-block:: text

    python -m adprotocol conformance BACKEND

or subclasses `ConformanceTests` in their own tests, and publishes the report.

From a call to a report: `_command` (in other processes, by `supervisor`) or `suite` -> `session` -> `backend` (the
harness and the divergences of a plugin) -> `survey` (does the harness do what it documents?) -> `runner` (each case in
a thread with a time limit) -> a function of `scenarios`, which calls the harness through `checks` -> `canary` (is the
framework still sound?) -> `result` -> `_reports`.
"""

from adprotocol.conformance._reports.written import to_html, to_markdown
from adprotocol.conformance._run.backend import BrokenBackend, UsageError
from adprotocol.conformance._run.result import Report, Result, from_json, to_json
from adprotocol.conformance._run.rule_check import RuleReport, check_rule
from adprotocol.conformance._run.suite import ConformanceTests, checked, harness_of, run
from adprotocol.conformance.checks import Absent, Checked, WrongAnswer
from adprotocol.conformance.harness import Harness
from adprotocol.conformance.scenario import MAY, MUST, SHOULD, Scenario
from adprotocol.conformance.scenarios import all_scenarios

__all__ = [
    "MAY",
    "MUST",
    "SHOULD",
    "Absent",
    "BrokenBackend",
    "Checked",
    "ConformanceTests",
    "Harness",
    "Report",
    "Result",
    "RuleReport",
    "Scenario",
    "UsageError",
    "WrongAnswer",
    "all_scenarios",
    "check_rule",
    "checked",
    "from_json",
    "harness_of",
    "run",
    "to_html",
    "to_json",
    "to_markdown",
]
