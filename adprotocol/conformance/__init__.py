"""The conformance suite: does a plugin keep the rules of the protocol for this AD system, in this version?

The maintainer of an AD system describes it by a `Harness`, runs

.. code-block:: text

    python -m adprotocol conformance BACKEND

or has ``test_conformance = suite("BACKEND")`` in their own tests, and publishes the report.

From a call to a report: `_command` -> pytest with `_run.pytest_plugin`, which collects what `suite` returns ->
`_run.run` (the state of each capability by `_run.harness_checks`, the outcome of each case) -> a function of
`scenarios`, which calls the harness through `checks` -> `_run.result` -> `_reports`.
"""

from adprotocol.conformance._reports.page import to_html
from adprotocol.conformance._reports.written import to_markdown
from adprotocol.conformance._run.backend import BrokenBackend, UsageError
from adprotocol.conformance._run.result import Report, Result, from_json, to_json
from adprotocol.conformance._run.rule_check import RuleReport, check_rule
from adprotocol.conformance._run.suite import checked, harness_of, run, suite
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
    "suite",
    "to_html",
    "to_json",
    "to_markdown",
]
