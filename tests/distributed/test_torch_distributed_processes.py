"""DistributedDataParallel, FSDP and DTensor on two processes, which talk by the loopback interface."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 400  # seconds; a hang is a failure


def test_two_processes_agree_with_one(tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this build of PyTorch has no torch.distributed")
    script = Path(__file__).with_name("torch_checks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for rank in range(2):
        ran, failures = json.loads((tmp_path / f"{rank}.json").read_text("utf-8"))
        assert len(ran) == 17
        assert not failures, f"rank {rank}:\n" + "\n".join(failures.values())
