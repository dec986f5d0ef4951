"""The tool that tests the tests: which mutants there are, which are drawn, and which of them live."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from coverage import Coverage

from mutate import draw, nearest

ROOT = Path(__file__).parent.parent.parent

TOY = '''"""A toy: if not, 1 + 1."""

from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    LIMIT = 1


@overload
def clamped(x: int | None) -> int | None: ...


def clamped(x: "int | None", *, top=10):
    """Return x, and top at most."""
    if x is None or top < 0:
        raise ValueError("no" * 2)
    while x > top:
        x -= 1
    return x


def untested(x):
    return x * 2
'''
TESTS = """
import toy

def test_below():
    assert toy.clamped(3) == 3

def test_above():
    assert toy.clamped(12) == 10

def test_at_the_limit():
    assert toy.clamped(1, top=0) == 0

def test_that_fails_anyway():
    assert False
"""
# Some, and by what each dies.
TRIED = {
    ("if x is None or top < 0:", "if x is None or top <= 0:"): "test_toy.py::test_at_the_limit",
    ("while x > top:", "while not x > top:"): "no test: it hangs, or breaks before the first",
    (
        'def clamped(x: "int | None", *, top=10):',
        'def clamped(x: "int | None", *, top= 11):',
    ): "test_toy.py::test_above",
    ("return x * 2", "return x / 2"): None,
}
RUN = """
import json, sys
from mutate import draw, nearest, trial
trial.LIMIT = 4
nearest.covering = lambda path, line: ["test_toy.py::test_below"] if "10" in line else []
nearest.mirrors = lambda path: ([], ["test_toy.py"])
draw.ROOT = trial.Path(sys.argv[1])
trial.start(sys.argv[2], sys.argv[1])
for mutant in draw.every(sys.argv[1], "toy.py"):
    if [mutant.original, mutant.mutated] in json.loads(sys.argv[3]):
        print(json.dumps([mutant.original, mutant.mutated, trial.tried(mutant)[0]]))
"""


@pytest.fixture
def toy(tmp_path):
    place = tmp_path / "toy"
    place.mkdir()
    (place / "toy.py").write_text(TOY, "utf-8")
    (place / "test_toy.py").write_text(TESTS, "utf-8")
    (place / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = ["-ra"]\nmarkers = ["slow"]\n', "utf-8")
    return place


def test_the_mutants_of_a_toy_are_of_its_code_and_none_is_of_prose(toy):
    found = list(draw.every(toy, "toy.py"))
    assert {mutant.original for mutant in found} == {
        'def clamped(x: "int | None", *, top=10):',
        "if x is None or top < 0:",
        "while x > top:",
        "x -= 1",
        "return x * 2",
    }
    assert {mutant.within for mutant in found} == {"clamped", "untested"}
    pairs = {(mutant.original, mutant.mutated) for mutant in found}
    assert pairs > {*TRIED, ("if x is None or top < 0:", "if x is not None or top < 0:")}


def drawn(root, seed):
    return [(mutant.original, mutant.mutated) for mutant in draw.drawn(root, ["toy.py"], seed)]


def test_a_seed_draws_one_of_each_place_and_the_same_again_and_another_seed_others(toy):
    assert drawn(toy, 1) == drawn(toy, 1)
    assert drawn(toy, 1)[:5] != drawn(toy, 2)[:5]
    places = [mutant.spec.start_pos for mutant in draw.drawn(toy, ["toy.py"], 1)]
    assert len(places) == len({*places}) < len(list(draw.every(toy, "toy.py")))


def test_an_edit_elsewhere_changes_no_draw(toy):
    before = drawn(toy, 1)
    (toy / "toy.py").write_text(TOY.replace("@overload", "def other():\n    pass\n\n\n@overload"), "utf-8")
    assert drawn(toy, 1) == before


def test_those_live_that_no_test_sees_and_one_that_hangs_dies(toy, tmp_path):
    command = [sys.executable, "-c", RUN, str(toy), str(tmp_path), json.dumps(list(TRIED))]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {(original, mutated): by for original, mutated, by in found} == TRIED
    assert (toy / "toy.py").read_text("utf-8") == TOY


def test_the_record_names_the_tests_that_ran_a_line_by_its_text(toy, monkeypatch):
    measured = Coverage(data_file=toy / "coverage", include=[str(toy / "toy.py")], config_file=False)
    with measured.collect():
        runpy.run_path(str(toy / "toy.py"))
        measured.switch_context("tests/test_toy.py::test_one[a|b]|run")
        runpy.run_path(str(toy / "toy.py"))["untested"](1)
    measured.save()
    monkeypatch.setattr(nearest, "ROOT", toy)
    lines = nearest.recorded(toy / "coverage")["toy.py"]
    assert lines["def untested(x):\nreturn x * 2"] == ["tests/test_toy.py::test_one"]
    assert not any("x -= 1" in place for place in lines)


def test_the_tests_of_a_module_are_those_of_its_name_and_of_its_layer():
    named, layer = nearest.mirrors("adprotocol/_hooks/label.py")
    assert "tests/hooks/test_label.py" in named
    assert layer[:2] == ["tests/hooks", "tests/trees"]
    assert all((ROOT / test).exists() for test in (*named, *layer))


ENTRIES = draw.explanations()


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_an_explanation_has_a_reason_and_its_code_is_still_there(number):
    entry = ENTRIES[number]
    assert len(entry["reason"]) > 20
    assert entry["path"] in draw.modules()
    mutants = draw.every(ROOT, entry["path"], within=entry.get("within"), original=entry.get("original"))
    assert any(draw.explanation(mutant, [entry]) for mutant in mutants)
