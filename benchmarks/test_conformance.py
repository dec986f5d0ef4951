"""How long the conformance suite takes for one framework, the whole command as a maintainer types it."""

import json
import subprocess
import sys
import time

import pytest
from row import Row, duration


def _conformance(backend):
    begin = time.perf_counter()
    command = [sys.executable, "-m", "adprotocol", "conformance", backend, "--json", "-"]
    done = subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begin, json.loads(done.stdout)


@pytest.mark.parametrize("backend", ["jax", "torch", "autograd", "numpy"])
def test_conformance(benchmark, record, backend):
    taken, report = benchmark.pedantic(_conformance, args=(backend,), rounds=1, iterations=1)
    ran = f"{report['summary']['ran']} of {report['summary']['selected']} scenarios ran"
    record(Row(f"python -m adprotocol conformance {backend}", duration(taken), ran))
