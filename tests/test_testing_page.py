"""The module of tests that docs/testing.md shows: it passes, and fails where the library under test is wrong."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
MODULE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
# What is right on the page, what is wrong, and the test that fails then.
WRONG = {
    "params": ("within_gradient(params) if", "within_gradient(x) if", "test_the_model_trains_when_differentiated"),
    "flag": ("within_gradient(params) if training is None else training", "True", "test_the_flag"),
    "rule": ("cotangent * x / length", "cotangent * x", "test_the_rule_of_norm"),
    "constant": ("deviation = non_differentiable(", "deviation = (", "test_the_deviation_is_constant"),
}


class Outcomes(set):
    """The modules and tests that passed and failed."""

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.failed:
            self.add((report.outcome, *re.search(r"(\w+)\.py::(\w+)", report.nodeid).groups()))


def test_the_module_passes_and_each_library_that_is_wrong_fails(tmp_path):
    (tmp_path / "test_library.py").write_text(MODULE, encoding="utf-8")
    wanted = ["test_library"]
    for name, (right, wrong, failing) in WRONG.items():
        assert right in MODULE
        (tmp_path / f"test_wrong_{name}.py").write_text(MODULE.replace(right, wrong), encoding="utf-8")
        wanted.append(f"(test_wrong_{name} and {failing} and not compiled)")
    outcomes = Outcomes()
    # Away from this project's settings, and in this process, which has every framework.
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", "/dev/null", "--rootdir", str(tmp_path)]
    pytest.main([*options, "-k", " or ".join(wanted), str(tmp_path)], plugins=[outcomes])
    tests = set(re.findall(r"^def (test_\w+)", MODULE, re.MULTILINE))
    assert {outcome[::2] for outcome in outcomes if outcome[1] == "test_library"} == {
        ("passed", name) for name in tests
    }
    failed = {(module, test) for outcome, module, test in outcomes if outcome == "failed"}
    for name, (_, _, failing) in WRONG.items():
        assert any(module == f"test_wrong_{name}" and test.startswith(failing) for module, test in failed), name
