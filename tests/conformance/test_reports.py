"""The written reports: what each says of a run, and that nothing in a message is taken for markup."""

import dataclasses
import functools
import json
import re

import pytest
import reports
from small import Autograd, ran

from adprotocol.conformance import Report, from_json, to_html, to_json, to_markdown
from adprotocol.conformance._reports.words import clean, line, some
from adprotocol.conformance._reports.written import summary, to_badge
from adprotocol.conformance._run.result import FAIL, WRONG, compared

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


def test_the_page_has_a_table_of_hooks_by_transformations_whose_cells_lead_to_scenarios():
    page = to_html(reports.mixed())
    cells = re.findall(r'<td class="o(\d)"><a href="#([\w-]+)" title="([^"]*)">(\d+)</a></td>', page)
    assert ("0", "within_gradient-4", "silently wrong: 1 of 1", "1") in cells
    assert ("3", "non_differentiable-6", "expected failure: 1 of 1", "1") in cells
    for _, anchor, _, _ in cells:
        assert page.count(f'<tbody id="{anchor}">') == 1
    listed = [re.search(r"<th colspan=\"5\">(.*)</th>", group)[1] for group in page.split("<tbody id=")[1:]]
    assert "within_gradient, jvp" in listed
    assert "non_differentiable, grad of ..." in listed
    assert page.index('id="matrix"') < page.index('<h2 class="bad">Silently wrong: 1</h2>')


def test_the_files_that_ran_are_on_top():
    page = to_html(dataclasses.replace(reports.mixed(), files={"toyad": "/somewhere/<toyad>.py"}))
    assert page.index("<dt>toyad</dt><dd>/somewhere/&lt;toyad&gt;.py</dd>") < page.index('id="matrix"')


def test_what_has_changed_since_an_earlier_run_is_said_the_worst_first():
    made = functools.partial(reports.made, transform="grad")
    earlier = reports.report(
        made("cond/a"), made("cond/b", FAIL), made("cond/c"), made("cond/e"), framework_version="1.1"
    )
    now = reports.report(
        made("cond/a", FAIL), made("cond/b"), made("cond/c", WRONG), made("cond/d", WRONG), made("cond/f")
    )
    found = compared(now, earlier)
    assert found.changes == (
        ("cond/c", "pass", "silently wrong"),
        ("cond/d", "new", "silently wrong"),
        ("cond/a", "pass", "fail"),
        ("cond/b", "fail", "pass"),
        ("cond/e", "pass", "gone"),
    )
    assert compared(dataclasses.replace(now, total=9), earlier).changes[-1][0] == "cond/b"
    assert from_json(to_json(found)) == found
    for text in (to_markdown(found), shown(found)):
        assert "## Changed since toyad 1.1, plugin toyad-adprotocol 0.3, adprotocol 0.1.0: 5" in text
        assert text.index("cond/c: pass -> silently wrong") < text.index("cond/b: fail -> pass")
    assert '<tr><td>cond/c</td><td>pass</td><td class="bad">silently wrong</td></tr>' in to_html(found)


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
