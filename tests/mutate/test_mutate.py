"""The tool that tests the tests: which mutants there are, which are drawn, and which of them live."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    ("return x * 2", "return x / 2"): None,
}
RUN = """
import json, sys
from mutate import draw, trial
trial.LIMIT = 3
trial.circles = lambda path, whole: [["test_toy.py::test_below"], ["test_toy.py"]]
trial.start(sys.argv[2], sys.argv[1])
wanted = json.loads(sys.argv[3])
for seed in range(40):
    for mutant in draw.mutants(sys.argv[1], ["toy.py"], seed) if wanted else ():
        if [mutant.original, mutant.mutated] in wanted:
            wanted.remove([mutant.original, mutant.mutated])
            print(json.dumps([mutant.original, mutant.mutated, trial.tried(mutant)]))
"""


@pytest.fixture
def toy(tmp_path):
    place = tmp_path / "toy"
    place.mkdir()
    (place / "toy.py").write_text(TOY, "utf-8")
    (place / "test_toy.py").write_text(TESTS, "utf-8")
    (place / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = ["-ra"]\nmarkers = ["slow"]\n', "utf-8")
    return place


def test_the_mutants_of_a_toy_are_of_its_code_one_of_each_place_and_the_same_for_a_seed(toy):
    from mutate import draw  # its cosmic-ray takes a second to import

    once, again, other = ([*draw.mutants(toy, ["toy.py"], seed)] for seed in (1, 1, 2))
    assert once == again != other
    assert len(once) == len({mutant.spec.start_pos for mutant in once})
    mutants = [mutant for seed in range(15) for mutant in draw.mutants(toy, ["toy.py"], seed)]
    assert {mutant.original for mutant in mutants} == {
        'def clamped(x: "int | None", *, top=10):',
        "if x is None or top < 0:",
        "while x > top:",
        "x -= 1",
        "return x * 2",
    }
    pairs = {(mutant.original, mutant.mutated) for mutant in mutants}
    assert pairs > {*TRIED, ("if x is None or top < 0:", "if x is not None or top < 0:")}


def test_those_live_that_no_test_sees_and_one_that_hangs_dies(toy, tmp_path):
    command = [sys.executable, "-c", RUN, str(toy), str(tmp_path), json.dumps(list(TRIED))]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(command, cwd=ROOT / "tests", env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    tried = [json.loads(line) for line in ran.stdout.splitlines()]
    assert {(original, mutated): test for original, mutated, test in tried} == TRIED
    assert (toy / "toy.py").read_text("utf-8") == TOY


def test_the_tests_of_a_module_are_there_and_those_of_its_name_and_of_its_layer(monkeypatch):
    from mutate import trial

    monkeypatch.chdir(ROOT)
    first, named, layer, suite, whole = trial.circles("adprotocol/_hooks/label.py")
    assert first == [trial.TOYAD]
    assert "tests/hooks/test_label.py" in named
    assert layer[:2] == ["tests/hooks", "tests/trees"]
    assert suite == whole == []
    assert "-ktorch" in list(trial.circles("adprotocol_torch/cond.py", whole=True))[3]
    tests = {test for layer in trial.MIRRORS.values() for test in layer} | {trial.TOYAD, trial.SUITE}
    assert [test for test in (*tests, *trial.MIRRORS) if not Path(test).exists()] == []
