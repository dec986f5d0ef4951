"""The matrix of releases: what its points name is there, and floors are those of the metadata."""

import ast
import json
import subprocess
import tomllib

import pytest

from matrix import point as matrix
from matrix import workarounds
from matrix.__main__ import selection

PROJECT = tomllib.loads((matrix.ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FRAMEWORKS = set(PROJECT["entry-points"]["adprotocol"])
HELPERS = matrix.ROOT / "tests"


def test_floors_are_exactly_the_lower_bounds():
    stated = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["jax"]]
    floors = matrix.points()["floors-jax"].requirements
    assert [one.replace("==", ">=") for one in floors[: len(stated)]] == stated
    assert all("==" in one for one in floors)


def test_a_dependency_without_a_floor_is_refused(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project]\ndependencies = ["optree"]\noptional-dependencies = {x = []}\n')
    monkeypatch.setattr(matrix, "ROOT", tmp_path)
    with pytest.raises(ValueError, match=r"'optree' in pyproject\.toml has no lower bound"):
        matrix.bounds(["x"])


def imported(path):
    """Return the modules that a test module imports when it is collected, those of helpers in `tests` included."""
    names = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    helpers = [helper for name in names if (helper := HELPERS / f"{name}.py").exists()]
    return names.union(*map(imported, helpers))


@pytest.mark.parametrize("framework", sorted(FRAMEWORKS))
def test_the_tests_of_a_point_need_its_framework_alone(framework):
    paths = list((matrix.ROOT / matrix.Point("", framework, []).tests).rglob("*.py"))
    assert paths
    others = {path.name: imported(path) & FRAMEWORKS - {framework} for path in paths}
    assert {path: names for path, names in others.items() if names} == {}


@pytest.mark.parametrize(
    ("arguments", "count", "name"),
    [
        ([], 2 * len(FRAMEWORKS), "floors-torch"),
        (["--all"], len(matrix.points()), "torch-2.10.0"),
        (["floors-*"], len(FRAMEWORKS), "floors-autograd"),
        (["jax-0.9.2"], 1, "jax-0.9.2"),
    ],
)
def test_the_ends_are_run_unless_others_are_named(arguments, count, name):
    names = [point.name for point in selection(arguments)]
    assert len(names) == count
    assert name in names
    with pytest.raises(SystemExit, match="2"):
        selection([*arguments, "jax-9.9"])


def test_an_environment_that_has_all_is_used_as_it_is(tmp_path, monkeypatch):
    calls = []
    listed = [{"name": name, "version": "3.0"} for name in (*matrix.TOOLS, *matrix.bounds(["conformance"]))]
    listed.append({"name": "torch", "version": "2.9.0+cpu"})

    def run(command, **_options):
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=json.dumps(listed))

    python = tmp_path / "one" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    monkeypatch.setattr(matrix, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(matrix.subprocess, "run", run)
    for version, used in (("2.9.0", True), ("2.9", True), ("2.9.1", False)):
        point = matrix.Point("one", "torch", [f"torch=={version}"], index="https://there")
        assert matrix.environment(point) == python
        assert ("--no-deps" in calls[-1]) is used
        assert ("https://there" in calls[-1]) is not used


def test_a_comment_that_names_a_release_has_one_of_two_forms():
    found = dict(workarounds.comments())
    mentions = {place for place, text in found.items() if workarounds.RELEASE.search(text)}
    assert len(mentions) > 5
    assert {place: found[place] for place in mentions if not workarounds.FORM.search(found[place])} == {}


def test_the_workarounds_that_no_supported_release_needs_are_listed():
    floors = matrix.bounds(FRAMEWORKS)
    assert workarounds.due(floors) == [], "they may go"
    places = {one.framework for one in workarounds.due({"torch": "99.0", "jax": "0.9"})}
    assert places == {"torch", "jax"}
