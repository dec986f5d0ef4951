"""The report as a page: whole without scripts, nothing from elsewhere, and text that stays text."""

import re
from html.parser import HTMLParser

import browser
import pytest
import reports
from reports import made, report
from test_matrix import large

from adprotocol.conformance._reports import written
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, WRONG

VOID = {"meta", "link", "br", "input", "wbr"}


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
        "Support matrix",
        "Problems with the harness or the divergences: 1",
        "Silently wrong: 1",
        "Fail: 2",
        "Expected failures: 2",
        "Capabilities: 3 of 4",
        "Slowest, of 2.5 s",
        "Every scenario: 10",
    ]


def test_the_contents_come_first_and_each_leads_to_its_part():
    found = parsed(reports.mixed())
    (contents,) = found.all("nav")
    inside = [e for e in found.elements[found.elements.index(contents) :] if e["tag"] == "a"][:8]
    parts = {f"#{element['@id']}": element for element in found.all("section")}
    assert [link["@href"] for link in inside] == list(parts)
    for link in inside:
        assert parts[link["@href"]]["text"].startswith(f"\n{link['text']}\n")


def test_what_one_fault_explains_is_one_entry():
    found = parsed(reports.broken())
    first, second = found.all("article")
    assert first["text"].startswith("\n✗ fail cond/ran and 6 more\n")
    assert "foundnot run: grad of the harness is broken: RuntimeError: no tape at 0x7f01\n" in first["text"]
    assert "The same in 6 morecond/s0, cond/s1, cond/s2, cond/s3, cond/stop, trainable/s\n" in first["text"]
    assert len(found.all("pre", class_="repro")) == 2
    assert "cond/other-1 and 1 more" in second["text"]
    rows = [element["text"] for element in found.all("tr") if "cond/s" in element["text"]]
    assert len(rows) == 5
    assert all(row.endswith("1 of 7 alike") for row in rows)
    links = [element["@href"] for element in found.all("a") if "1 of 7" in element["text"]]
    assert links == [f"#{first['@id']}"] * 7


def test_a_remedy_shows_its_code_wherever_an_expected_failure_is_shown():
    found = parsed(reports.stranger())
    (article,) = found.all("article")
    assert "Remedy: Ask outside, by within_gradient(x).\n" in article["text"]
    (row,) = [e["text"] for e in found.all("tr") if "cond/loud" in e["text"] and "@data-outcome" in e]
    assert "Checkpoint by *two* runs; remedy: Ask outside, by within_gradient(x)" in row
    assert [element["text"] for element in found.all("code")].count("within_gradient(x)") == 2


def test_a_long_word_may_be_broken_at_its_joints_and_an_id_at_slashes_and_hyphens():
    text = written.to_html(reports.stranger())
    assert "<code>within_gradient/<wbr>asking-<wbr>changes-<wbr>nothing-<wbr>grad-<wbr>of-<wbr>checkpoint" in text
    assert "<code>cond/loud</code>" in text
    text = written.to_html(report(made(outcome=FAIL, message=f"{'module.' * 9} {'a_name_' * 6} {'x' * 99} {'y' * 40}")))
    for told in ("module.<wbr>module.", "a_<wbr>name_", f"{'x' * 30}<wbr>{'x' * 30}<wbr>", f" {'y' * 40}</dd>"):
        assert told in text


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
    links = [element["@href"] for element in found.all("a") if "/" in element["text"]]
    articles = {element.get("@id"): element["text"] for element in found.all("article")}
    assert len(links) == 5  # two are of expected failures
    for link in links[:3]:
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
    assert re.findall(r"https?://[^\"' )]*", text) == []
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
    assert "x" * 5000 in text.replace("<wbr>", "")


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
    assert "all1 of 5003011" in rows
    assert not [row for row in rows if "cond/s0" in row and row.endswith(" ms")]


def test_what_no_scenario_shows_is_declared_to_unfold():
    found = parsed(reports.also())
    assert "Also declared: 2" in [element["text"] for element in found.all("h2")]
    told = {e["text"].split("\n")[0]: e["text"] for e in found.all("details") if "An error." in e["text"]}
    assert list(told) == ["A _callback <pure>; remedy: Use the *other*", "Elsewhere"]
    assert all("The first run records nothing." in text for text in told.values())


def test_a_reason_of_its_own_names_its_scenarios():
    many = [made(f"cond/n{i}", NOT_APPLICABLE, message="it refuses") for i in range(5)]
    rows = [element["text"] for element in parsed(report(made(), *many)).all("tr")]
    assert "otherit refuses5 scenario(s)cond/n0, cond/n1, cond/n2, cond/n3, cond/n45" in rows


def test_an_interrupted_run_is_no_problem_of_the_harness():
    assert parsed(reports.interrupted()).all("h2")[1]["text"] == "Problems: 1"


PAGES = {
    "every outcome": reports.mixed,
    "a broken harness": reports.broken,
    "a plugin of others": reports.stranger,
    "hostile text": reports.hostile,
    "every cell": large,
}
# The widths of A4 and of Letter between the margins.
PAPERS = {"A4": 680, "Letter": 702}
# On paper nothing scrolls.
SCROLLED = """[...document.querySelectorAll(".scroll")].filter((box) => box.scrollWidth > box.clientWidth + 1)
  .map((box) => box.textContent.trim().slice(0, 60))"""
UNFOLD = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.fixture(scope="module")
def tab(tmp_path_factory):
    executable = browser.find()
    if executable is None:
        pytest.skip(f"needs a browser: none of {', '.join(browser.NAMES)} is on the path")
    with browser.page(executable, tmp_path_factory.mktemp("browser")) as page:
        yield page


@pytest.fixture(params=PAGES)
def url(request, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(written.to_html(PAGES[request.param]()), "utf-8")
    return path.as_uri()


def wrong(tab, width):
    """What is cut off or broken in a word, folded and unfolded."""
    found = []
    for _ in range(2):
        # A run of letters that is longer than a line is no word.
        found += [word for word in tab.evaluate(browser.SPLIT) if "xxxx" not in word] + tab.evaluate(browser.CUT)
        if (wide := tab.evaluate("document.documentElement.scrollWidth")) > width:
            found.append(wide)
        tab.evaluate(UNFOLD)
    return found


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_nothing_is_cut_off_and_no_word_is_broken(url, tab, width):
    tab.open(url, width)
    assert wrong(tab, width) == []


@pytest.mark.parametrize("paper", PAPERS)
def test_nothing_is_cut_off_and_no_word_is_broken_in_print(url, tab, paper):
    tab.open(url, PAPERS[paper])
    tab.call("Emulation.setEmulatedMedia", media="print")
    tab.call("Emulation.setScrollbarsHidden", hidden=True)
    try:
        found, scrolled = wrong(tab, PAPERS[paper]), tab.evaluate(SCROLLED)
    finally:
        tab.call("Emulation.setEmulatedMedia", media="")
        tab.call("Emulation.setScrollbarsHidden", hidden=False)
    assert found == []
    assert scrolled == []


def test_the_checks_see_what_is_wrong(tab, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<!DOCTYPE html><p style='width:4em;overflow-wrap:anywhere'>unbreakablewords but few</p>", "utf-8")
    tab.open(page.as_uri(), 390)
    assert tab.evaluate(browser.SPLIT) == ["unbreakablewords"]


def test_the_filter_finds_what_an_entry_stands_for(tab, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(written.to_html(reports.broken()), "utf-8")
    tab.open(page.as_uri())
    tab.evaluate("document.querySelector('[name=text]').value = 'cond/s2'")
    tab.evaluate("filter()")
    shown = "[...document.querySelectorAll('#scenarios tbody tr')].filter((row) => !row.hidden).length"
    assert tab.evaluate(shown) == 1
