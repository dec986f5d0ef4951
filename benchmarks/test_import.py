"""What ``import adprotocol`` adds to the start of an interpreter, in CPU time of the whole process."""

import os
import resource
import subprocess
import sys

from interleave import paired
from row import compared

ROUNDS = 31


def _environment():
    # Without bytecode files each start would compile anew.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _start(statement):
    """Return the CPU time of an interpreter that runs a statement."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", statement], check=True, env=_environment())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


USE = "from adprotocol import within_gradient"


# Every framework imports NumPy, and with it most of what this package needs of the standard library.
NUMPY = "import numpy"


def _interleaved():
    _start(USE)
    statements = ("import adprotocol", USE, "pass", f"{NUMPY}; {USE}", NUMPY)
    return [tuple(map(_start, statements)) for _ in range(ROUNDS)]


def test_import(benchmark, record):
    check = "import sys, adprotocol; assert not {'numpy', 'torch', 'jax', 'autograd'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
    ours, used, bare, beside, numpy = zip(*benchmark.pedantic(_interleaved, rounds=1), strict=True)
    reason = "loads the modules of the core"
    record(
        compared("import adprotocol", "python -c pass", paired(ours, bare), at_most=1.1),
        compared(USE, "python -c pass", paired(used, bare), at_most=2.5, reason=reason),
        compared(f"{USE}, behind {NUMPY}", f"{NUMPY} alone", paired(beside, numpy), at_most=1.15, reason=reason),
    )
