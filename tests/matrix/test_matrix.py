"""The matrix of releases: what its points name is there, and floors are those of the metadata."""

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
