"""Try built archives where there is no checkout: each, with each extra, in a new environment of this Python.

python release/clean.py dist/*.whl dist/*.tar.gz
python3.13 release/clean.py dist/*.whl --extras '' autograd
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

# The import of what an extra installs, and a gradient with it.
FRAMEWORKS = {
    "autograd": "import numpy as np; x = np.ones(2)",
    "jax": "import jax.numpy as jnp; x = jnp.ones(2)",
    "torch": "import torch; x = torch.ones(2)",
}
CORE = """
import sys, adprotocol as ap
assert ap.within_gradient({"a": 1.0}) is False
assert ap.cond(True, lambda x: x, lambda x: -x, ap.NonDifferentiable(5.0)).value == 5.0
assert ap.trainable({"w": 1.0, "n": 2}) == {"w": 1.0, "n": None}
assert not {"numpy", "jax", "torch", "autograd"} & set(sys.modules)
"""
GRADIENT = """
import adprotocol as ap
g = ap.grad(lambda p: ap.cond(ap.within_gradient(p), lambda w: (3.0 * w).sum(), lambda w: (5.0 * w).sum(), p["w"]))
assert [float(slope) for slope in g({"w": x, "n": 2})["w"]] == [3.0, 3.0]
"""


def commands(extra: str) -> list[list[str]]:
    """Return what is run in an environment with an extra."""
    found = [["-W", "error", "-c", CORE], ["-m", "adprotocol", "info"], ["-m", "adprotocol", "doctor"]]
    for name, first in FRAMEWORKS.items():
        if extra in (name, "all"):
            found.append(["-c", first + GRADIENT])
    if extra in ("demo", "all"):
        found.append(["-m", "adprotocol", "demo"])
    if extra in ("conformance", "all"):
        found.append(["-m", "adprotocol", "conformance", "numpy"])
    return found


def trial(archive: Path, extra: str, home: Path) -> bool:
    """Install an archive with an extra and nothing else; tell whether every command succeeds."""
    started = time.monotonic()
    venv.create(home, with_pip=True)
    python = str(home / ("Scripts" if os.name == "nt" else "bin") / "python")
    wanted = f"{archive.resolve()}[{extra}]" if extra else str(archive.resolve())
    steps = [["-m", "pip", "install", "--quiet", wanted], ["-m", "pip", "check"], *commands(extra)]
    for step in steps:
        # Not the folder of a checkout, whose packages would be imported first.
        done = subprocess.run([python, *step], cwd=home, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            sys.stdout.write(f"FAILED {archive.name} [{extra}]: {' '.join(step)[:60]}\n{done.stdout}{done.stderr}\n")
            return False
    sys.stdout.write(f"ok     {archive.name} [{extra}]: {len(steps)} commands, {time.monotonic() - started:.0f} s\n")
    return True


def main() -> int:
    """Try every archive with every extra; return 1 if one fails."""
    parser = argparse.ArgumentParser(description="Try built archives in clean environments.")
    parser.add_argument("archives", nargs="+", type=Path)
    extras = ["", *FRAMEWORKS, "demo", "conformance", "all"]
    parser.add_argument("--extras", nargs="+", default=extras, choices=extras, help="'' is none")
    options = parser.parse_args()
    good = True
    sys.stdout.write(f"Python {sys.version.split()[0]}\n")
    for archive in options.archives:
        for extra in options.extras:
            with tempfile.TemporaryDirectory() as home:
                good = trial(archive, extra, Path(home)) and good
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
