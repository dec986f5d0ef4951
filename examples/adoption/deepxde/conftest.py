"""Run examples of DeepXDE as its Makefile does, one iteration each, in the modes for which they are written."""

import os
import subprocess
import sys

import pytest

# Those that take first and second derivatives of inputs, on each back end that they are for.
EXAMPLES = "Burgers", "Euler_beam", "Helmholtz_Dirichlet_2d", "Poisson_Neumann_1d", "elasticity_plate"
# On PyTorch forward mode gives an equation the outputs with their function, which these do not take apart there.
HAS_FORWARD = os.environ["DDE_BACKEND"] == "jax"
FORWARD = "import deepxde\ndeepxde.config.set_default_autodiff('forward')\n"


def pytest_collect_file(file_path, parent):
    """Collect a script of the examples."""
    if file_path.suffix == ".py" and file_path.stem in EXAMPLES:
        return Script.from_parent(parent, path=file_path)
    return None


class Script(pytest.File):
    """An example, whose first line says on which back ends it runs."""

    def collect(self):
        to_test = [sys.executable, "../sample_to_test.py", self.path.name]
        done = subprocess.run(to_test, cwd=self.path.parent, capture_output=True, text=True, check=True)
        if "Backend supported" in done.stdout:
            yield Example.from_parent(self, name="reverse", program=done.stdout)
            if HAS_FORWARD:
                yield Example.from_parent(self, name="forward", program=FORWARD + done.stdout)


class Example(pytest.Item):
    """An example in one mode."""

    def __init__(self, program, **rest):
        super().__init__(**rest)
        self.program = program

    def runtest(self):
        run = [sys.executable, "-W", "ignore", "-c", self.program]
        quiet = {**os.environ, "MPLBACKEND": "template", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(run, cwd=self.path.parent, env=quiet, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def repr_failure(self, excinfo):
        return str(excinfo.value)[-600:]
