"""The support matrix of the pages: the worst outcome in each cell, as table, page and picture."""

import xml.etree.ElementTree as ET

import matrix_picture
import pictures
import pytest
import support
import support_matrix
from matrix_picture import matrix_to_svg
from support_matrix import ABSENT, DECLARED, LOUD, RIGHT, SILENT, STAGED, Matrix

from adprotocol.conformance import Report, Result, all_scenarios
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, PASS, WRONG
from adprotocol.divergence import Divergence

PAGE = 816  # the width of a page's text in pixels
UNDER = "within_gradient/grad-of-jit"


def report(*outcomes, **known):
    results = tuple(Result.of(all_scenarios()[UNDER], outcome=outcome, **known) for outcome in outcomes)
    entry = Divergence(name="known", title="A <title>", text="A text.", remedy="", outcome="error", scenarios=())
    return Report(backend="one", results=results, divergences=(entry,))


@pytest.mark.parametrize(
    ("outcome", "known", "state"),
    [
        (PASS, {}, RIGHT),
        (PASS, {"staged": True}, STAGED),
        (FAIL, {}, LOUD),
        (CRASHED, {}, LOUD),
        (WRONG, {}, SILENT),
        (NOT_APPLICABLE, {}, ABSENT),
        (EXPECTED, {"divergence": "known"}, LOUD),
        (EXPECTED, {"divergence": "another"}, DECLARED),
    ],
)
def test_the_state_of_a_result(outcome, known, state):
    found = report(outcome, **known)
    assert support_matrix.state_of(found, found.results[0]) == state


def test_a_cell_shows_the_worst_outcome_and_how_many_passed():
    matrix = Matrix.of({"one": report(PASS, FAIL), "two": report(PASS)})
    assert matrix.rows == ("grad of jit",)
    one, two = matrix.cells_of("grad of jit", ["within_gradient"])
    assert (one.state, two.state) == (LOUD, RIGHT)
    assert (two.passed, two.ran) == (1, 1)
    assert "| grad of jit | ✗ " in support_matrix.to_markdown(matrix)
    page = support_matrix.to_html(matrix)
    assert page.count("<td class=") == 2
    ET.fromstring(matrix_to_svg(matrix))  # noqa: S314  (our own)


@pytest.mark.parametrize("reports", [support.reports(pictures.FRAMEWORKS), support.others()])
def test_the_letters_of_the_picture_are_legible_on_a_page(reports):
    layout = matrix_picture.Layout.of(Matrix.of({each.backend: each for each in reports}))
    assert min(matrix_picture.TEXT, matrix_picture.TITLE) * PAGE / layout.width >= 9


def test_the_summary_has_a_row_for_each_hook_with_the_signs_of_all_backends():
    matrix = Matrix.of({each.backend: each for each in support.reports(pictures.FRAMEWORKS)})
    head, _, *rows = support_matrix.summary(matrix).splitlines()
    assert [row.split(" | ")[0].strip("| ").replace("\\", "") for row in rows] == list(matrix.hooks)
    jit = head.split(" | ").index("jit")
    assert rows[0].split(" | ")[jit] == "◐&#8239;&#8209;&#8239;&#8209;"
    assert {row.count(" | ") for row in rows} == {head.count(" | ")}


def test_the_recorded_matrix_has_a_column_for_each_backend():
    matrix = Matrix.of({each.backend: each for each in support.reports()})
    assert matrix.backends == support.BACKENDS
    assert all(sum(counts.values()) for counts in matrix.totals.values())
    assert support_matrix.to_markdown(matrix).count("**within_gradient**") == 1
