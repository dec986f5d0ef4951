"""The written reports: what each says of a run, and that nothing in a message is taken for markup."""

import json

import pytest
import reports
from small import Autograd, ran

from adprotocol.conformance import Report, to_html, to_markdown
from adprotocol.conformance._reports.words import clean, line, some
from adprotocol.conformance._reports.written import summary, to_badge

UGLY = "<script>alert(1)</script> | `a` *b* \x1b[31m"


def fine(h):
    h.assert_equal(h.array(1.0), 1.0)


def wrong(h):
    h.assert_equal(h.array(1.0), 2.0)


def ugly(h):
    raise ValueError(UGLY)


def ugly_too(h):
    raise ValueError(UGLY)


@pytest.fixture(scope="module")
def report():
    return ran(Autograd, fine, ugly, ugly_too, wrong)


def shown(report, **options):
    return "\n".join(summary(report, **options))


def test_what_is_silently_wrong_comes_first_and_what_one_fault_explains_once(report):
    out = shown(report)
    assert out.index("## Silently wrong: 1 (an answer") < out.index("## Fail: 2 (")
    assert "### cond/ugly, cond/ugly-too\n\nMUST C1: A summary\n\n    ValueError: <script>" in out
    assert out.count("To reproduce, paste into Python:") == 2
    assert "\x1b" not in out
    assert "Traceback" not in out
    assert "Traceback" in shown(report, verbose=True)


def test_no_message_is_markup(report):
    page, document = to_html(report), to_markdown(report)
    assert page.count("<script>") == 1
    assert "\x1b" not in page + document
    marked = [line for line in document.splitlines() if "<script>" in line and not line.startswith("    ")]
    assert marked == []
    for name in ("cond/fine", "cond/ugly", "cond/wrong"):
        assert name in page
        assert name in document


def test_the_page_takes_nothing_from_elsewhere(report):
    page = to_html(report)
    assert "default-src 'none'" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "src=" not in page


@pytest.mark.parametrize(
    ("functions", "message", "colour"),
    [
        ([fine], "1/1", "green"),
        ([fine, ugly], "1 fail", "red"),
        ([fine, ugly, wrong], "1 silently wrong", "red"),
    ],
)
def test_the_badge_shows_the_worst_outcome(functions, message, colour):
    badge = json.loads(to_badge(ran(Autograd, *functions)))
    assert (badge["message"], badge["color"]) == (message, colour)
    assert badge["isError"] == (colour == "red")


def test_the_badge_of_nothing_and_of_a_selection():
    assert json.loads(to_badge(Report(backend="numpy")))["message"] == "nothing ran"
    part = ran(Autograd, fine, wrong, keywords=["cond/fine"])
    assert json.loads(to_badge(part))["message"] == "1/1 of 2 selected"


def test_the_reason_of_an_expected_failure_is_the_title_of_its_divergence_and_the_remedy():
    report = reports.mixed()
    reasons = {result.id: report.reason(result) for result in report.results}
    assert reasons["non_differentiable/twice"] == "Only one level; remedy: Ask outside"


def test_texts_are_fit_to_show():
    assert clean("a\x1b[0m\n\tb") == "a\\x1b[0m\n\tb"
    assert line(" a\n b ") == "a b"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
