"""JAX on eight CPU devices: shard_map, pmap, and jit with automatic and explicit sharding."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 400  # seconds; a hang is a failure


def test_eight_devices_agree_with_one(tmp_path):
    pytest.importorskip("jax")
    results = tmp_path / "results.json"
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} --xla_force_host_platform_device_count=8",
    }
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("jax_checks.py")), str(results)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    ran, failures = json.loads(results.read_text("utf-8"))
    assert len(ran) == 13
    assert not failures, "\n".join(failures.values())
