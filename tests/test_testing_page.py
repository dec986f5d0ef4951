"""The module of tests that docs/testing.md shows: it passes, and fails where the library under test is wrong."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "testing.md"
MODULE = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL))


def run(folder, text, *arguments):
    """Run the module in an interpreter of its own, away from this project's settings."""
    (folder / "test_library.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", folder]
    return subprocess.run(
        [*command, *arguments, "test_library.py"], check=False, capture_output=True, text=True, cwd=folder, timeout=300
    )


def test_the_module_passes(tmp_path):
    done = run(tmp_path, MODULE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("right", "wrong", "failing"),
    [
        ("within_gradient(params) if", "within_gradient(x) if", "test_the_model_trains_when_differentiated"),
        ("training = within_gradient(params) if training is None else training", "training = True", "test_the_flag"),
        ("cotangent * x / length", "cotangent * x", "test_the_rule_of_norm"),
        ("prevent_gradient(non_differentiable(", "prevent_gradient((", "test_the_deviation_is_constant"),
    ],
)
def test_a_library_that_is_wrong_fails(tmp_path, right, wrong, failing):
    assert right in MODULE
    done = run(tmp_path, MODULE.replace(right, wrong), "-k", f"{failing} and not compiled")
    assert done.returncode == 1, done.stdout
    assert f"FAILED test_library.py::{failing}" in done.stdout
