"""What ``import adprotocol`` adds to the start of a bare interpreter."""

import os
import resource
import statistics
import subprocess
import sys
from collections import defaultdict

from row import Row, duration

ROUNDS = 31
TARGET = 0.012
LISTED = 6


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


def _self_times(statement):
    """Return the seconds spent in each module itself, from ``-X importtime``."""
    command = [sys.executable, "-X", "importtime", "-c", statement]
    run = subprocess.run(command, check=True, env=_environment(), capture_output=True, text=True)
    times = {}
    for line in run.stderr.splitlines():
        fields = line.removeprefix("import time:").split("|")
        if len(fields) == 3 and fields[0].strip().isdigit():
            times[fields[2].strip()] = int(fields[0]) / 1e6
    return times


def _breakdown():
    """Return the median time of each top-level package that a bare interpreter has not imported."""
    bare = _self_times("pass")
    runs = []
    for _ in range(7):
        packages = defaultdict(float)
        for module, taken in _self_times(USE).items():
            if module not in bare:
                packages[module.partition(".")[0]] += taken
        runs.append(packages)
    medians = {package: statistics.median(run[package] for run in runs) for package in runs[0]}
    return sorted(medians.items(), key=lambda item: -item[1])


def test_import(benchmark, record):
    check = "import sys, adprotocol; assert not {'numpy', 'torch', 'jax', 'autograd'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
    times = benchmark.pedantic(_interleaved, rounds=1)
    ours, used, bare, beside, numpy = (statistics.median(each) for each in zip(*times, strict=True))
    added = statistics.median(a - b for a, _, b, *_ in times)
    with_use = statistics.median(a - b for _, a, b, *_ in times)
    beside_numpy = statistics.median(a - b for *_, a, b in times)
    packages = _breakdown()
    parts = [
        Row(f"  of which {package} itself (-X importtime)", duration(taken)) for package, taken in packages[:LISTED]
    ]
    rest = Row("  of which all others", duration(sum(taken for _, taken in packages[LISTED:])))
    record(
        Row("import adprotocol, CPU time of the whole process", duration(ours), f"python -c pass: {duration(bare)}",
            f"+ {duration(added)}", f"≤ + {duration(TARGET)}", added <= TARGET),
        Row(f"{USE}, likewise", duration(used), f"python -c pass: {duration(bare)}",
            f"+ {duration(with_use)}", f"≤ + {duration(TARGET)}", with_use <= TARGET),
        *parts,
        rest,
        Row(f"{USE}, behind {NUMPY}", duration(beside), f"{NUMPY} alone: {duration(numpy)}",
            f"+ {duration(beside_numpy)}", f"≤ + {duration(TARGET)}", beside_numpy <= TARGET),
    )  # fmt: skip
