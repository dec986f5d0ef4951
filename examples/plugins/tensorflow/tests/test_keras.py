"""The example for Keras, on each of its backends."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parent.parent / "keras_example.py"


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_example(backend):
    """A plain call evaluates, a differentiated one trains, and the frozen encoder has no gradient."""
    for needed in ("keras", backend):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    environment = {**os.environ, "KERAS_BACKEND": backend}
    run = subprocess.run(
        [sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.splitlines() == [
        backend,
        "plain [10.0]",
        "value [8.0] gradient [2.0, 0.0, 6.0, 0.0]",
        "plain [10.0]",
    ]
