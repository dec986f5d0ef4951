"""The tool that tests the tests: which mutants there are, which are drawn, and which of them live."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mutate import mutation
from mutate.__main__ import explanation, explanations, paths

ROOT = Path(__file__).parent.parent.parent

TOY = b'''"""A toy: if not, 1 + 1."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    LIMIT = 1


def clamped(x: "int | None", top=10):
    """Return x, and top at most."""
    if x is None or top < 0:
        raise ValueError("1" + f"{2}")
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
"""
MUTANTS = [
    ("x is None or top < 0", "not (x is None or top < 0)"),
    ("x is None or top < 0", "x is None and top < 0"),
    ("x is None or top < 0", "top < 0"),
    ("x is None or top < 0", "x is None"),
    ("x is None", "x is not None"),
    ("top < 0", "top <= 0"),
    ("0", "1"),
    ("x > top", "not (x > top)"),
    ("x > top", "x >= top"),
    ("1", "2"),
    ("x", "None"),
    ("10", "11"),
    ("x * 2", "x / 2"),
    ("x * 2", "None"),
    ("2", "3"),
]
# Those that are run, and by what each dies.
TRIED = {
    ("x is None or top < 0", "x is None"): None,
    ("top < 0", "top <= 0"): "test_toy.py::test_at_the_limit",
    ("x > top", "not (x > top)"): "past its time",
    ("x", "None"): "test_toy.py::test_below",
    ("x * 2", "None"): None,
}
RUN = """
import json, sys
from mutate import mutation, nearest, trial
trial.PATIENCE, trial.UNKNOWN = 3, 0
root = sys.argv[1]
lines = {"toy.py\\nclamped\\nreturn x": ["test_toy.py::test_below"]}
record = nearest.Record([{"seconds": {}, "lines": lines}])
nearest.TABLE["toy.py"] = ("test_toy.py",)
for mutant in mutation.mutants(root, ["toy.py"]):
    if [mutant.original, mutant.mutated] in json.loads(sys.argv[2]):
        print(json.dumps([mutant.original, mutant.mutated, *trial.tried(root, mutant, record)[:2]]))
"""


def test_the_mutants_of_a_toy_are_these_and_none_is_of_prose():
    found = mutation.of_source(TOY, "toy.py")
    pairs = [(mutant.original, mutant.mutated) for mutant in found]
    assert sorted(pairs) == sorted(MUTANTS)
    assert {mutant.within for mutant in found} == {"clamped", "untested"}


def test_a_mutant_differs_from_the_source_in_its_place_alone():
    for mutant in mutation.of_source(TOY, "toy.py"):
        text = mutant.applied(TOY)
        assert text != TOY
        assert text.startswith(TOY[: mutant.start])
        assert text.endswith(TOY[mutant.end :])
        compile(text, "toy.py", "exec")


def drawn(source, seed):
    found = sorted(mutation.of_source(source, "toy.py"), key=lambda mutant: mutant.rank(seed))
    return [(mutant.original, mutant.mutated) for mutant in found]


def test_a_seed_draws_the_same_again_and_another_seed_others():
    assert drawn(TOY, 1) == drawn(TOY, 1)
    assert drawn(TOY, 1)[:5] != drawn(TOY, 2)[:5]


def test_an_edit_elsewhere_changes_no_draw():
    edited = TOY.replace(b"def clamped", b"def other():\n    pass\n\n\ndef clamped")
    assert drawn(edited, 1) == drawn(TOY, 1)


def test_lines_are_named_by_their_function_and_text():
    places = mutation.places(b"x = 1\n@deco\ndef f():\n    class C:\n        y = 2\n    return C\n")
    assert places == [
        ("<module>", "x = 1"),
        ("f", "@deco"),
        ("f", "def f():"),
        ("f.C", "class C:"),
        ("f.C", "y = 2"),
        ("f", "return C"),
    ]


def test_those_live_that_no_test_sees_and_one_that_hangs_dies(tmp_path):
    (tmp_path / "toy.py").write_bytes(TOY)
    (tmp_path / "test_toy.py").write_text(TESTS, "utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n", "utf-8")
    command = [sys.executable, "-c", RUN, str(tmp_path), json.dumps(list(TRIED))]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, check=True)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {(original, mutated): by for original, mutated, _, by in found} == TRIED
    assert {outcome for *_, outcome, by in found if by} == {"died"}
    assert {outcome for *_, outcome, by in found if not by} == {"lived"}
    assert (tmp_path / "toy.py").read_bytes() == TOY


ENTRIES = explanations()


@pytest.mark.parametrize("number", range(len(ENTRIES)))
def test_an_explanation_has_a_reason_and_its_code_is_still_there(number):
    entry = ENTRIES[number]
    assert len(entry["reason"]) > 20
    assert entry["path"] in paths()
    assert any(explanation(mutant, [entry]) for mutant in mutation.mutants(ROOT, [entry["path"]]))
