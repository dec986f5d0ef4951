"""The report as a page: whole without scripts, nothing from elsewhere, and text that stays text."""

import re
from html.parser import HTMLParser

import pytest
import reports
from reports import made, report

from adprotocol.conformance._reports import written
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, WRONG

VOID = {"meta", "link", "br", "input"}


class Page(HTMLParser):
    """The elements of a page, with the attributes of each and the text below it; refuses what is not closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open = [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        element = {"tag": tag, "text": "", **{f"@{key}": value for key, value in attrs}}
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self.open:
            element["text"] += data

    def all(self, tag, **attributes):
        wanted = {f"@{key.strip('_')}": value for key, value in attributes.items()}
        return [e for e in self.elements if e["tag"] == tag and all(e.get(k) == v for k, v in wanted.items())]


def parsed(found):
    return Page(written.to_html(found))


def test_the_parts_come_in_the_order_of_what_matters():
    assert [element["text"] for element in parsed(reports.mixed()).all("h2")] == [
        "Problems with the harness or the divergences",
        "Silently wrong: 1",
        "Fail: 2",
        "Expected failures: 2",
        "Support matrix",
        "Not applicable",
        "Slowest, of 2.5 s",
        "Every scenario",
    ]


def test_the_title_has_the_verdict_and_the_page_the_sentence():
    found = parsed(reports.mixed())
    assert found.all("title")[0]["text"] == "Conformance of toyad 1.2: FAIL"
    assert f"{reports.mixed().sentence()}." in [element["text"] for element in found.all("p")]
    assert parsed(report(made())).all("title")[0]["text"].endswith(": PASS")


def test_every_scenario_has_a_row_the_worst_first():
    rows = [element for element in parsed(reports.mixed()).all("tr") if "@data-outcome" in element]
    assert [row["@data-outcome"] for row in rows] == [
        WRONG,
        *[FAIL] * 2,
        *[EXPECTED] * 2,
        *["pass"] * 3,
        *[NOT_APPLICABLE] * 2,
    ]
    assert rows[0]["text"] == (
        "!! silently wrongwithin_gradient/lostInside of grad the answer is TrueMUSTW2jvpit went wrong12.3 s"
    )
    assert any("✓ pass, staged" in row["text"] for row in rows)
    assert any("Checkpoint by *two* runs" in row["text"] for row in rows)


def test_a_failure_in_the_table_leads_to_its_repro():
    found = parsed(reports.mixed())
    links = [element["@href"] for element in found.all("a")]
    articles = {element.get("@id"): element["text"] for element in found.all("article")}
    assert len(links) == 3
    for link in links:
        assert "import adprotocol\nprint(adprotocol)" in articles[link.removeprefix("#")]
    assert len(found.all("pre", class_="repro")) == 3


def test_an_expected_failure_has_the_reason_and_the_scenarios_of_its_divergence():
    (article,) = [
        element["text"] for element in parsed(reports.mixed()).all("article") if "Only one level" in element["text"]
    ]
    assert "A wrong answer, with no error. Remedy: Ask outside." in article
    assert "The first run records nothing." in article
    assert "print(1 < 2)" in article
    assert "raises: Error" not in article
    assert "non_differentiable/twice" in article


def test_the_page_takes_nothing_from_elsewhere():
    text = written.to_html(reports.mixed())
    assert re.findall(r"https?://[^\"' )]*", text) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in text
    assert "@import" not in text
    found = Page(text)
    for element in found.elements:
        assert "@src" not in element
        assert element.get("@href", "#").startswith(("#", "data:,"))
    (policy,) = [element for element in found.all("meta") if element.get("@http-equiv") == "Content-Security-Policy"]
    assert policy["@content"].startswith("default-src 'none'")


def test_without_scripts_everything_is_shown_but_the_filters():
    found = parsed(reports.mixed())
    hidden = [element for element in found.elements if "@hidden" in element]
    assert [element["tag"] for element in hidden] == ["form"]
    assert not found.all("button", type="button")  # the buttons to copy are made by the script


def test_the_filters_offer_what_there_is():
    options = [element["text"] for element in parsed(reports.mixed()).all("option")]
    assert "silently wrong (1)" in options
    assert "MAY (1)" in options
    assert "cond (3)" in options
    options = [element["text"] for element in parsed(report(made())).all("option")]
    assert options == ["all", "pass (1)", "all", "MUST (1)", "all", "within_gradient (1)"]


def test_tables_have_captions_and_heads_with_scope_and_controls_have_labels():
    found = parsed(reports.mixed())
    assert len(found.all("caption")) == len(found.all("table")) >= 5
    assert all(element["@scope"] in {"col", "row", "rowgroup"} for element in found.all("th"))
    controls = [element for element in found.elements if element["tag"] in {"select", "input"}]
    assert len(controls) == 4
    assert all(element["text"] for element in found.all("label"))
    assert len(found.all("label")) == 4
    assert found.all("html")[0]["@lang"] == "en"


def test_an_outcome_is_a_sign_and_a_word_and_not_a_colour_alone():
    chips = [e["text"] for e in parsed(reports.mixed()).elements if e.get("@class", "").startswith("chip")]
    assert {"✗ FAIL", "!! silently wrong", "✗ fail", "~ expected failure", "✓ pass", "- n/a"} <= set(chips)


@pytest.mark.parametrize("build", [reports.mixed, reports.hostile, reports.all_absent, report])
def test_every_page_is_well_formed(build):
    assert parsed(build()).all("h1")


def test_hostile_text_stays_text():
    text = written.to_html(reports.hostile())
    found = Page(text)
    assert len(found.all("script")) == 1
    assert "alert" not in found.all("script")[0]["text"]
    assert not [element for element in found.elements if any(key.startswith("@on") for key in element)]
    assert all(character == "\n" or character.isprintable() for character in text)
    assert text.encode()
    (block, _) = found.all("pre", class_="repro")
    assert block["text"].startswith('print("<script>alert(')
    assert "x" * 5000 in text


def test_nothing_ran_is_said():
    assert "None ran." in written.to_html(report(total=3))
    assert "0 of 3 scenarios ran: 3 n/a." in written.to_html(reports.all_absent())


def test_a_pass_in_spite_of_wrong_answers_says_so_in_another_colour():
    (plain,) = [e for e in parsed(report(made())).all("span") if "verdict" in e.get("@class", "")]
    (chip,) = [e for e in parsed(reports.silent(2)).all("span") if "verdict" in e.get("@class", "")]
    assert chip["text"] == "✓ PASS, with 2 answers declared silently wrong"
    assert plain["text"] == "✓ PASS"
    assert chip["@class"] != plain["@class"]


def test_what_could_not_run_is_not_counted_as_run():
    rows = [element["text"] for element in parsed(reports.blocked()).all("tr")]
    assert "all1 of 503011" in rows
    assert not [row for row in rows if "cond/s0" in row and row.endswith(" ms")]


def test_what_no_scenario_shows_is_declared_to_unfold():
    found = parsed(reports.also())
    assert "Also declared: 2" in [element["text"] for element in found.all("h2")]
    told = {e["text"].split("\n")[0]: e["text"] for e in found.all("details") if "An error." in e["text"]}
    assert list(told) == ["A _callback <pure>", "Elsewhere"]
    assert "Remedy: Use the *other*." in told["A _callback <pure>"]
    assert "The first run records nothing." in told["A _callback <pure>"]
    assert "Remedy" not in told["Elsewhere"]


def test_a_reason_of_its_own_names_its_scenarios():
    many = [made(f"cond/n{i}", NOT_APPLICABLE, message="it refuses") for i in range(5)]
    rows = [element["text"] for element in parsed(report(made(), *many)).all("tr")]
    assert "otherit refuses: cond/n0, cond/n1, cond/n2 and 2 more5" in rows


def test_an_interrupted_run_is_no_problem_of_the_harness():
    assert parsed(reports.interrupted()).all("h2")[0]["text"] == "Problems"
