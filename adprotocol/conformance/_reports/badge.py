"""The badge: the result in a few words, as the JSON that badge services read (an endpoint badge of shields.io)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, PASS, WRONG

if TYPE_CHECKING:
    from adprotocol.conformance._run.result import Report


def to_badge(report: Report) -> str:
    """Return the JSON text, which ends with a newline."""
    message, colour = _message(report)
    # The URL of a badge cannot override the colour of an error.
    data = {"schemaVersion": 1, "label": "adprotocol", "message": message, "color": colour, "isError": not report.ok}
    return json.dumps(data, indent=1) + "\n"


def _message(report: Report) -> tuple[str, str]:
    """Return the message and the colour: the worst outcome there is, else how many of those that ran passed."""
    counts = report.counts()
    failed = sum(result.bad for result in report.results if result.outcome == FAIL)
    problems = len(report.problems)
    if counts[WRONG]:
        return f"{counts[WRONG]} silently wrong", "red"
    if counts[CRASHED]:
        return f"{counts[CRASHED]} crashed", "red"
    if failed:
        return f"{failed} of {report.ran + report.blocked} fail", "red"
    if problems:
        return f"{problems} problem{'s' * (problems > 1)}", "orange"
    if not report.ran:
        return "nothing ran", "lightgrey"
    passed = f"{counts[PASS]}/{report.ran}"
    silent = f", {report.declared_wrong} declared silent" if report.declared_wrong else ""
    if len(report.results) < report.total:
        # Unless it says so, a selection would look like the whole suite.
        return f"{passed} of {report.total} selected{silent}", "yellow"
    if silent:
        return f"{passed}{silent}", "yellowgreen"
    if counts[EXPECTED]:
        return f"{passed}, {counts[EXPECTED]} declared", "green"
    return passed, "green" if counts[FAIL] else "brightgreen"
