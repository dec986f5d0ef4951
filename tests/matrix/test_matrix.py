"""The matrix of releases: what its points name is there, and floors are those of the metadata."""

import ast
import json
import subprocess
import tomllib

import pytest

from matrix import point as matrix
from matrix.__main__ import main, select

PROJECT = tomllib.loads((matrix.ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def test_floors_are_exactly_the_lower_bounds():
    found = matrix.lower_bounds(["autograd", "demo"])
    stated = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["autograd"]]
    assert [one.replace("==", ">=") for one in found[: len(stated)]] == stated
    assert all("==" in one for one in found)
    assert matrix.lower_bounds([]) == []


def test_a_dependency_without_a_floor_is_refused(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["optree"]\noptional-dependencies = {x = []}\n')
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"'optree' in pyproject\.toml has no lower bound"):
        matrix.lower_bounds(["x"])


@pytest.mark.parametrize("point", matrix.points().values(), ids=lambda point: point.name)
def test_what_a_point_names_is_there(point):
    assert point.suite in PROJECT["entry-points"]["adprotocol"]
    assert point.tests
    assert all((matrix.ROOT / path).exists() for path in point.tests)
    assert point.requirements()


# What the environments of the points lack; a test may import it within `importorskip`.
FRAMEWORKS = {"jax", "torch", "autograd"}


def imported(path):
    """Return the modules that a test module imports when it is collected, those of helpers in `tests` included."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module.partition(".")[0])
    helpers = [helper for name in found if (helper := matrix.ROOT / "tests" / f"{name}.py").exists()]
    return found.union(*map(imported, helpers))


@pytest.mark.parametrize("point", matrix.points().values(), ids=lambda point: point.name)
def test_the_tests_of_a_point_need_its_framework_alone(point):
    paths = [
        file for path in point.tests for file in sorted((matrix.ROOT / path).rglob("*.py")) or [matrix.ROOT / path]
    ]
    others = {str(path.relative_to(matrix.ROOT)): imported(path) & FRAMEWORKS - {point.suite} for path in paths}
    assert {path: names for path, names in others.items() if names} == {}


def test_points_are_chosen_by_name_and_by_glob():
    names = ["floors-jax", "jax-0.5.3", "jax-0.6.2", "torch-2.6.0"]
    assert select(["jax-*", "torch-2.6.0"], names) == (["jax-0.5.3", "jax-0.6.2", "torch-2.6.0"], [])
    assert select(["*"], names) == (names, [])
    assert select(["jax-0.5.3", "tf-*"], names) == (["jax-0.5.3"], ["tf-*"])


def test_an_unknown_point_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["jax-9.9"])
    assert caught.value.code == 2
    assert "no point jax-9.9; there are" in capsys.readouterr().err


def test_an_environment_that_has_all_is_used_as_it_is(tmp_path, monkeypatch):
    calls = []
    listed = [{"name": name, "version": "3.0"} for name in (*matrix.TOOLS, *matrix.bounds(["conformance"]))]
    listed.append({"name": "torch", "version": "2.6.0+cpu"})

    def run(command, **_options):
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps(listed))

    python = tmp_path / "one" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setattr(matrix, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(matrix.subprocess, "run", run)
    for version, used in (("2.6.0", True), ("2.6", True), ("2.6.1", False)):
        point = matrix.Point("one", "torch", ["tests"], packages=[f"torch=={version}"], index="https://there")
        assert matrix.environment(point) == python
        assert ("--no-deps" in calls[-1]) is used
        assert ("https://there" in calls[-1]) is not used
