"""The badge: its message and colour for a report."""

import json

import pytest
import reports
from reports import made, report

from adprotocol.conformance._reports import badge
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, WRONG, Problem

CASES = [
    (report(made(), made("cond/a"), made("cond/n", NOT_APPLICABLE)), "2/2", "brightgreen", False),
    (report(made(), made("cond/a", EXPECTED)), "1/2, 1 declared", "green", False),
    (report(made(), made("cond/a", FAIL, level="MAY")), "1/2", "green", False),
    (reports.silent(1), "1/3, 1 declared silent", "yellowgreen", False),
    (reports.silent(5), "1/7, 5 declared silent", "yellowgreen", False),
    (reports.silent(5, total=312), "1/7 of 312 selected, 5 declared silent", "yellow", False),
    (reports.blocked(), "3 of 4 fail", "red", True),
    (reports.interrupted(), "1 problem", "orange", True),
    (report(made(), total=312), "1/1 of 312 selected", "yellow", False),
    (report(made(), made("cond/a", WRONG, level="MAY"), made("cond/b", FAIL)), "1 silently wrong", "red", True),
    (report(made(), made("cond/a", CRASHED, level="MAY"), made("cond/b", FAIL)), "1 crashed", "red", True),
    (report(made(), made("cond/a", FAIL), total=312), "1 of 2 fail", "red", True),
    (report(made(), problems=(Problem(where="harness", message="it raised"),)), "1 problem", "orange", True),
    (report(), "nothing ran", "lightgrey", True),
    (reports.all_absent(), "nothing ran", "lightgrey", True),
]


@pytest.mark.parametrize(("found", "message", "colour", "error"), CASES)
def test_the_worst_is_what_the_badge_says(found, message, colour, error):
    assert json.loads(badge.to_badge(found)) == {
        "schemaVersion": 1,
        "label": "adprotocol",
        "message": message,
        "color": colour,
        "isError": error,
    }
