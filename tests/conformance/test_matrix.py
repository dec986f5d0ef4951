"""The support matrix as data, Markdown and HTML, and its picture."""

import itertools
import re
from xml.etree import ElementTree as ET

import pytest
import reports
from matrix_picture import SideBySide, matrix_to_svg, shares
from reports import HOSTILE, divergence, made, report

from adprotocol.conformance._reports import looks, matrix, written
from adprotocol.conformance._reports.looks import ABSENT, DECLARED, LOUD, RIGHT, SILENT, STAGED
from adprotocol.conformance._run.result import EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG

SVG = "{http://www.w3.org/2000/svg}"
TRANSFORMS = ("grad", "jvp", "jit", "compile", "vmap", "checkpoint", "scan")
HOOKS = ("within_gradient", "non_differentiable", "prevent_gradient", "trainable", "value_and_grad", "cond", "plugins")


def large(backend="jax", outcome=PASS):
    """Every transformation, pair and some longer nestings under every hook."""
    rows = [
        *TRANSFORMS,
        *(f"{a} of {b}" for a in TRANSFORMS for b in TRANSFORMS),
        "grad of vmap of checkpoint of jit",
        "",
    ]
    results = [made(f"{hook}/n{place}", outcome, transform=row) for hook in HOOKS for place, row in enumerate(rows)]
    return report(*results, backend=backend)


def cell(*results, divergences=()):
    (found,) = SideBySide.of_reports([report(*results, divergences=divergences)]).cells.values()
    return found


LOUDLY, WRONGLY = divergence("loudly", "error"), divergence("wrongly", "wrong", title="Two runs")


@pytest.mark.parametrize(
    ("others", "expected", "passed", "ran"),
    [
        ([], RIGHT, 1, 1),
        ([{"outcome": NOT_APPLICABLE}], RIGHT, 1, 1),
        ([{"staged": True}], STAGED, 2, 2),
        ([{"staged": True}, {"outcome": FAIL}], LOUD, 2, 3),
        ([{"outcome": EXPECTED, "divergence": "loudly"}], LOUD, 1, 2),
        ([{"outcome": FAIL}, {"outcome": EXPECTED, "divergence": "wrongly"}], DECLARED, 1, 3),
        ([{"outcome": EXPECTED, "divergence": "undeclared"}], DECLARED, 1, 2),
        ([{"outcome": EXPECTED, "divergence": "wrongly"}, {"outcome": WRONG}, {"outcome": FAIL}], SILENT, 1, 4),
    ],
)
def test_a_cell_shows_the_worst_of_its_scenarios(others, expected, passed, ran):
    results = [made("cond/first"), *(made(f"cond/n{place}", **known) for place, known in enumerate(others))]
    found = cell(*results, divergences=(LOUDLY, WRONGLY))
    assert (found.state, found.passed, found.ran) == (expected, passed, ran)
    assert found.ids == tuple(result.id for result in results)


def test_a_cell_without_anything_that_applies():
    found = cell(made("cond/a", NOT_APPLICABLE), made("cond/b", NOT_APPLICABLE))
    assert (found.state, found.passed, found.ran, found.ids) == (ABSENT, 0, 0, ("cond/a", "cond/b"))
    assert found.sentence == "not applicable: 2 scenario(s)\ncond/a\ncond/b"


def test_a_cell_says_why():
    found = cell(
        made("cond/a"),
        made("cond/b", EXPECTED, divergence="wrongly"),
        made("cond/c", FAIL, message="it raised"),
        made("cond/d", FAIL, message="it raised"),
        divergences=(WRONGLY,),
    )
    told = {"cond/b": "Two runs; remedy: Ask outside", "cond/c": "it raised", "cond/d": "it raised"}
    assert found.reasons == told
    assert found.sentence.splitlines() == [
        "wrong, declared: 1 of 4 scenario(s) passed",
        "cond/b: Two runs; remedy: Ask outside",
        "cond/c, cond/d: it raised",
        "cond/a",
    ]


def test_rows_come_single_first_and_else_as_they_appeared():
    labels = ["grad of jit", "vmap", "jit of grad of vmap", "grad", "", "jit of grad", "vmap"]
    made_of = SideBySide.of_reports(
        [report(*(made(f"cond/n{place}", transform=label) for place, label in enumerate(labels)))]
    )
    assert made_of.rows == ("no transform", "vmap", "grad", "grad of jit", "jit of grad", "jit of grad of vmap")
    assert made_of.groups() == {
        "one transform or none": ["no transform", "vmap", "grad"],
        "two, nested": ["grad of jit", "jit of grad"],
        "three and more": ["jit of grad of vmap"],
    }


def test_what_is_about_no_transform_counts_too():
    found = SideBySide.of_reports([report(made("cond/a", transform=""), made("cond/b"))])
    assert found.rows == ("no transform", "grad")
    assert found.totals["toyad"][RIGHT] == 2


def test_several_reports_stand_side_by_side():
    ours = report(made("cond/a"), made("within_gradient/b", transform="jit"), backend="jax")
    theirs = report(made("cond/a", WRONG), made("cond/c", transform="vmap"), backend="torch", framework_version=None)
    found = SideBySide.of_reports([ours, theirs])
    assert (found.rows, found.hooks, found.backends) == (
        ("grad", "jit", "vmap"),
        ("within_gradient", "cond"),
        ("jax", "torch"),
    )
    assert found.versions == {"jax": "1.2", "torch": ""}
    assert {key: each.state for key, each in found.cells.items()} == {
        ("grad", "cond", "jax"): RIGHT,
        ("grad", "cond", "torch"): SILENT,
        ("jit", "within_gradient", "jax"): RIGHT,
        ("vmap", "cond", "torch"): RIGHT,
    }


@pytest.mark.parametrize(
    ("known", "names"),
    [
        ([("jax", None, "1"), ("torch", "cpu", "2")], ("jax", "torch")),
        ([("jax", "cpu", "1"), ("jax", "cuda", "1")], ("jax cpu", "jax cuda")),
        ([("jax", "cpu", "1"), ("jax", "cpu", "2")], ("jax cpu 1", "jax cpu 2")),
        ([("jax", None, "1"), ("jax", None, "1"), ("jax", None, "1")], ("jax 1", "jax 1 #2", "jax 1 #3")),
    ],
)
def test_two_reports_of_one_backend_have_different_names(known, names):
    found = [report(made(), backend=name, device=device, framework_version=version) for name, device, version in known]
    assert SideBySide.of_reports(found).backends == names
    assert len(SideBySide.of_reports(found).cells) == len(known)


def test_markdown_of_one_backend_has_a_column_for_each_hook():
    text = written.matrix_to_markdown(SideBySide.of_reports([reports.mixed()]))
    assert "| under | within\\_gradient | non\\_differentiable | cond |\n| --- | --- | --- | --- |\n" in text
    assert "| grad of jit | ◐ 1/1 |  |  |\n" in text
    assert "| jvp | **!!** 0/1 |  |  |\n" in text
    assert "| jit |  |  | - |\n" in text


def test_markdown_of_several_has_a_table_for_each_hook_without_empty_rows():
    text = written.matrix_to_markdown(SideBySide.of_reports([reports.mixed(), report(made("cond/a"), backend="jax")]))
    assert text.split("**cond**\n\n")[1] == (
        "| under | toyad | jax |\n"
        "| --- | --- | --- |\n"
        "| no transform | ✓ 1/1 |  |\n"
        "| grad |  | ✓ 1/1 |\n"
        "| jit | - |  |\n"
    )


def test_the_key_of_the_markdown_explains_the_signs_that_are_there():
    text = written.matrix_to_markdown(SideBySide.of_reports([report(made())]))
    assert text.startswith("✓ right. The numbers are")


def test_html_says_the_states_in_words_and_has_heads_with_scope():
    text = written.matrix_to_html(SideBySide.of_reports([reports.mixed(), report(made("cond/a"), backend="jax")]))
    table = ET.fromstring(text.partition("</style>")[2])  # noqa: S314  (made here)
    assert {head.get("scope") for head in table.iter("th")} == {"col", "colgroup", "row", "rowgroup"}
    widths = [sum(int(part.get("colspan", 1)) for part in row) for row in table.iter("tr")]
    assert widths[0] == 1 + 3 * 2
    assert set(widths[2:]) == {7}
    labels = {span.get("aria-label") for span in table.iter("span")}
    assert labels == set(looks.STATES)


def texts(root):
    """The box of each text that is not turned: left, right, top, bottom, for the widest of the usual fonts."""
    for text in root.iter(f"{SVG}text"):
        kinds = (text.get("class") or "").split()
        size = 15 if "title" in kinds else 10.5 if {"small", "hook"} & set(kinds) else 11.5
        width = sum(0.62 if letter.islower() or not letter.isalpha() else 0.7 for letter in text.text) * size
        if text.get("transform"):
            x, y = map(float, re.match(r"translate\((\S+) (\S+)\) rotate\(-90\)", text.get("transform")).groups())
            yield text.text, (x - size * 0.8, x, y - width, y)
        else:
            x, y = float(text.get("x")), float(text.get("y"))
            left = x - width if "right" in kinds else x
            yield text.text, (left, left + width, y - size * 0.8, y)


def boxes(root):
    for rectangle in root.iter(f"{SVG}rect"):
        x, y, width, height = (float(rectangle.get(key, 0)) for key in ("x", "y", "width", "height"))
        if rectangle.get("class") != "ground":
            yield (x, x + width, y, y + height)


def meet(first, second):
    return first[0] < second[1] and second[0] < first[1] and first[2] < second[3] and second[2] < first[3]


MATRICES = {
    "one": lambda: SideBySide.of_reports([large()]),
    "three": lambda: SideBySide.of_reports([large("jax"), large("torch", EXPECTED), large("autograd", NOT_APPLICABLE)]),
    "four": lambda: SideBySide.of_reports(
        [large("jax"), large("torch"), large("autograd"), large("numpy", NOT_APPLICABLE)]
    ),
    "eight": lambda: SideBySide.of_reports([large(f"framework{place}") for place in range(8)]),
    "mixed": lambda: SideBySide.of_reports([reports.mixed()]),
    "hostile": lambda: SideBySide.of_reports([reports.hostile(), reports.hostile()]),
    "stranger": lambda: SideBySide.of_reports([reports.stranger()]),
    "absent": lambda: SideBySide.of_reports([reports.all_absent()]),
    "no result": lambda: SideBySide.of_reports([report()]),
    "no report": lambda: SideBySide.of_reports([]),
}


@pytest.mark.parametrize("name", MATRICES)
def test_in_the_picture_no_texts_and_no_cells_overlap_and_all_is_inside(name):
    root = ET.fromstring(matrix_to_svg(MATRICES[name]()))  # noqa: S314  (made here)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {width:g} {height:g}"
    found = list(texts(root))
    for (one, first), (other, second) in itertools.combinations(found, 2):
        assert not meet(first, second), (one, other)
    rectangles = sorted(boxes(root))
    for first, second in itertools.pairwise(sorted(rectangles, key=lambda box: (box[2], box[0]))):
        assert not meet(first, second)
    for left, right, top, bottom in [*(box for _, box in found), *rectangles]:
        assert left >= 0
        assert right <= width
        assert top >= 0
        assert bottom <= height


@pytest.mark.parametrize("name", MATRICES)
def test_in_the_picture_no_rule_goes_through_the_heading_of_a_group(name):
    root = ET.fromstring(matrix_to_svg(MATRICES[name]()))  # noqa: S314  (made here)
    known = {text: box for text, box in texts(root) if text in matrix.GROUPS}
    rules = [path.get("d") for path in root.iter(f"{SVG}path") if path.get("class") == "rule"]
    assert len(rules) == len(known)
    for rule, (_, right, _, _) in zip(rules, known.values(), strict=True):
        assert float(re.match(r"M([\d.]+) ", rule)[1]) > right


@pytest.mark.parametrize("name", ["one", "three", "four", "mixed", "stranger"])
def test_the_picture_fits_a_page(name):
    root = ET.fromstring(matrix_to_svg(MATRICES[name]()))  # noqa: S314  (made here)
    assert float(root.get("width")) == 980


def test_the_picture_has_a_sign_and_a_tooltip_for_each_cell_and_numbers_where_there_is_room():
    root = ET.fromstring(matrix_to_svg(SideBySide.of_reports([reports.mixed()])))  # noqa: S314  (made here)
    told = {title.text.split("\n")[0]: title.text for title in root.iter(f"{SVG}title")}
    assert told["toyad, cond under jit"].endswith("not applicable: 1 scenario(s)\ncond/jit")
    assert told["toyad, within_gradient under jvp"].endswith("\nwithin_gradient/lost: it went wrong")
    groups = [group for group in root.iter(f"{SVG}g") if " under " in group.find(f"{SVG}title").text]
    assert len(groups) == len(SideBySide.of_reports([reports.mixed()]).cells)
    for group in groups:
        assert group.find(f"{SVG}path").get("class").split()[1] == group.find(f"{SVG}rect").get("class")
    assert [group.find(f"{SVG}text") is None for group in groups].count(True) == 1  # what does not apply


def test_one_wrong_answer_of_thousands_is_seen_in_the_bar():
    totals = dict.fromkeys(looks.STATES, 0) | {RIGHT: 5000, SILENT: 1}
    found = shares(totals, 400)
    assert list(found) == [RIGHT, SILENT]
    assert found[SILENT] >= 5
    assert sum(found.values()) == pytest.approx(400)


def test_the_picture_knows_dark_and_light_and_takes_nothing_from_elsewhere():
    text = matrix_to_svg(SideBySide.of_reports([reports.mixed()]))
    assert "@media (prefers-color-scheme:dark)" in text
    assert re.findall(r"https?://[^\"]*", text) == ["http://www.w3.org/2000/svg"]
    assert "url(" not in text


@pytest.mark.parametrize("write", [matrix_to_svg, written.matrix_to_html])
def test_hostile_text_stays_text(write):
    text = write(SideBySide.of_reports([reports.hostile()]))
    root = ET.fromstring(f"<div>{text}</div>")  # noqa: S314  (made here)
    assert not [element for element in root.iter() if element.tag.endswith("script")]
    assert "<script>alert('x')</script>" in "".join(root.itertext()) + "".join(
        value for element in root.iter() for value in element.attrib.values()
    )


def test_hostile_text_breaks_no_row_of_the_markdown():
    text = written.matrix_to_markdown(SideBySide.of_reports([reports.hostile()]))
    rows = [row for row in text.splitlines() if row.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert HOSTILE not in text
    assert "<script" not in text


def test_what_could_not_run_is_an_error_and_is_not_counted_as_run():
    cell = SideBySide.of_reports([reports.blocked()]).cells["scan", "cond", "toyad"]
    assert (cell.state, cell.passed, cell.ran) == (LOUD, 0, 0)
    assert set(cell.reasons) == {"cond/s0", "cond/s1", "cond/s2"}


def test_the_key_tells_both_reasons_for_what_does_not_apply():
    text = written.matrix_to_markdown(SideBySide.of_reports([reports.all_absent()]))
    assert "- the harness lacks a capability, or the system itself refuses the nesting." in text
