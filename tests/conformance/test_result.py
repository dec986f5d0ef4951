"""Results and reports: their counts, their sentence, and JSON to and fro."""

import json

import pytest
import reports
from reports import made, report

from adprotocol import messages
from adprotocol.conformance._run import result
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, OUTCOMES, PASS, WRONG


@pytest.mark.parametrize("build", [reports.mixed, reports.hostile, reports.blocked, reports.all_absent, report])
def test_a_report_comes_back_from_its_json(build):
    before = build()
    text = result.to_json(before).encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")
    assert result.from_json(text) == before


def test_the_json_has_a_schema_and_a_summary():
    data = json.loads(result.to_json(reports.mixed()))
    assert next(iter(data)) == "schema"
    assert data["schema"] == result.SCHEMA
    assert data["ok"] is False
    summary = data["summary"]
    assert (summary["selected"], summary["ran"]) == (10, 8)
    assert {outcome: summary[outcome] for outcome in OUTCOMES} == {
        WRONG: 1,
        CRASHED: 0,
        FAIL: 2,
        EXPECTED: 2,
        PASS: 3,
        "n/a": 2,
    }
    assert summary["levels"]["MAY"][FAIL] == 1
    assert summary["sentence"] == reports.mixed().sentence()


@pytest.mark.parametrize("text", ['{"schema": 0}', "{}", "[]", "3", '{"schema": 99, "results": []}'])
def test_another_schema_is_refused_with_the_remedy(text):
    with pytest.raises(ValueError, match=r"not a conformance report of schema 2: .*; run the suite again"):
        result.from_json(text)


def test_text_that_is_no_json_is_a_value_error():
    with pytest.raises(ValueError):
        result.from_json("<html>")


@pytest.mark.parametrize(
    ("outcome", "level", "cause", "bad"),
    [
        (WRONG, "MAY", "plugin", True),
        (WRONG, "MUST", "plugin", True),
        (FAIL, "MUST", "plugin", True),
        (FAIL, "SHOULD", "plugin", True),
        (FAIL, "MAY", "plugin", False),
        (FAIL, "MAY", "divergences", True),
        (FAIL, "MAY", "harness", True),
        (FAIL, "MAY", "time limit", True),
        (EXPECTED, "MUST", "", False),
        (PASS, "MUST", "", False),
        (NOT_APPLICABLE, "MUST", "", False),
    ],
)
def test_what_makes_the_suite_fail(outcome, level, cause, bad):
    one = made(outcome=outcome, level=level, cause=cause)
    assert one.bad is bad
    assert report(one, made("cond/other")).ok is not bad


def test_a_report_is_not_ok_if_nothing_ran_or_the_harness_is_wrong():
    assert report(made()).ok
    assert not report().ok
    assert not reports.all_absent().ok
    assert not report(made(), problems=(result.Problem(where="harness", message="it raised"),)).ok


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (report(), "0 of 0 scenarios ran: nothing"),
        (reports.all_absent(), "0 of 3 scenarios ran: 3 n/a"),
        (report(made(), made("cond/plain")), "2 of 2 scenarios ran: 2 pass"),
        (report(made(), total=9), "1 of 1 scenarios ran (selected from 9): 1 pass"),
        (
            reports.mixed(),
            (
                "8 of 10 scenarios ran (selected from 20): 1 silently wrong, 2 fail, 2 expected failure (1 of them "
                "silently wrong), 3 pass, 2 n/a; 1 problem(s)"
            ),
        ),
        (
            reports.blocked(),
            ("1 of 5 scenarios ran, 3 could not for a fault of the harness: 3 fail, 1 pass, 1 n/a; 1 problem(s)"),
        ),
        (reports.interrupted(), "1 of 1 scenarios ran (selected from 3): 1 pass; 1 problem(s)"),
    ],
)
def test_the_sentence_says_how_many_of_how_many_ran(found, sentence):
    assert found.sentence() == sentence


def test_an_error_on_one_line_is_cut():
    assert messages.one_line(ValueError("a\n  b")) == "ValueError: a b"
    assert messages.one_line(ValueError("x" * 999), 20) == "ValueError: xxxxxxx…"


def test_what_could_not_run_did_not_run_and_fails_the_suite():
    found = reports.blocked()
    assert (found.ran, found.blocked) == (1, 3)
    summary = json.loads(result.to_json(found))["summary"]
    assert (summary["selected"], summary["ran"], summary["blocked"], summary[FAIL]) == (5, 1, 3, 3)
    assert [one["ran"] for one in json.loads(result.to_json(found))["results"]] == [True, False, False, False, True]
    assert not report(made("cond/s", FAIL, cause="harness", ran=False)).ok
