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
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed = [process.communicate(timeout=LIMIT)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for rank, process in enumerate(processes):
        assert process.returncode == 0, printed[rank]
        ran, failures = json.loads((tmp_path / f"{rank}.json").read_text("utf-8"))
        assert len(ran) == 17
        assert not failures, f"rank {rank}:\n" + "\n".join(failures.values())
