"""``python examples/co2``: the kernel trained under every framework that is installed, and the optima side by side."""

from __future__ import annotations

import os

# The matrices are small: a second thread gains nothing, and on a busy machine the two wait for each other fifty
# times as long as the work takes. Read when NumPy and PyTorch are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import importlib.util
import math
import sys
from typing import TYPE_CHECKING

import backends
import kernels
import series
from training import Fit, named

if TYPE_CHECKING:
    from collections.abc import Mapping

TOLERANCE = 1e-6  # relative, of the value and of every parameter; what is seen is 1e-10


def main() -> int:
    """Train, print the optima, and return 0 if they are the same, else 1."""
    fits = {}
    for name, (module, train) in backends.TRAIN.items():
        if importlib.util.find_spec(module) is None:
            sys.stderr.write(f"{name} is not installed: pip install 'adprotocol[{module}]'\n")
        else:
            sys.stderr.write(f"training with {name} ...\n")
            fits[name] = train(series.read())
    sys.stdout.write(table(fits))
    same = agree(fits)
    sys.stdout.write("The same optimum everywhere.\n" if same else "NOT the same optimum everywhere.\n")
    return 0 if same else 1


def table(fits: Mapping[str, Fit]) -> str:
    """Return a line for each parameter and one for the value, with a column for each training."""
    lines = [f"{'parameter':<30}{'start':>10}" + "".join(f"{name:>12}" for name in fits)]
    for path, start in named(kernels.START).items():
        numbers = "".join(f"{named(fit.kernel)[path]:12.6g}" for fit in fits.values())
        lines.append(f"{path:<30}{float(start):>10g}{numbers}")
    starts = {f"{fit.values[0]:10.2f}" for fit in fits.values()}
    lines.append(
        f"{'log marginal likelihood':<30}{'/'.join(starts):>10}"
        + "".join(f"{fit.values[1]:12.4f}" for fit in fits.values())
    )
    return "\n".join(lines) + "\n"


def agree(fits: Mapping[str, Fit]) -> bool:
    """Return whether there are fits, and all have the value and the parameters of the first."""
    found = [[fit.values[1], *named(fit.kernel).values()] for fit in fits.values()]
    return bool(found) and all(
        math.isclose(number, reference, rel_tol=TOLERANCE)
        for numbers in found
        for number, reference in zip(numbers, found[0], strict=True)
    )


if __name__ == "__main__":
    raise SystemExit(main())
