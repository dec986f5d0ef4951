"""The module of tests that docs/testing.md shows: it passes, and fails where the library under test is wrong."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
MODULE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))
# What is right on the page, what is wrong, and the test that fails then.
WRONG = {
    "params": ("within_gradient(params) if", "within_gradient(x) if", "test_the_model_trains_when_differentiated"),
    "flag": ("within_gradient(params) if training is None else training", "True", "test_the_flag"),
    "rule": ("cotangent * x / length", "cotangent * x", "test_the_rule_of_norm"),
    "constant": ("prevent_gradient(non_differentiable(", "prevent_gradient((", "test_the_deviation_is_constant"),
}


def test_the_module_passes_and_each_library_that_is_wrong_fails(tmp_path):
    """All in one interpreter, away from this project's settings: it imports every framework."""
    (tmp_path / "test_library.py").write_text(MODULE, encoding="utf-8")
    wanted = ["test_library"]
    for name, (right, wrong, failing) in WRONG.items():
        assert right in MODULE
        (tmp_path / f"test_wrong_{name}.py").write_text(MODULE.replace(right, wrong), encoding="utf-8")
        wanted.append(f"(test_wrong_{name} and {failing} and not compiled)")
    options = ["-q", "-rA", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", tmp_path]
    command = [sys.executable, "-m", "pytest", *options, "-k", " or ".join(wanted)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path, timeout=300)
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR|SKIPPED) (test_\w+)\.py::(\w+)", done.stdout, re.MULTILINE)
    tests = set(re.findall(r"^def (test_\w+)", MODULE, re.MULTILINE))
    assert {(outcome, test) for outcome, module, test in outcomes if module == "test_library"} == {
        ("PASSED", test) for test in tests
    }, done.stdout
    failed = {(module, test) for outcome, module, test in outcomes if outcome == "FAILED"}
    for name, (_, _, failing) in WRONG.items():
        assert any(module == f"test_wrong_{name}" and test.startswith(failing) for module, test in failed), done.stdout
