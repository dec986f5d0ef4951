"""`within_gradient` beside PennyLane's `in_backprop` and `requires_grad`, both in PennyLane's environment."""

import json
import os
import subprocess
from pathlib import Path

from row import Row

HERE = Path(__file__).parent
INTERPRETER = HERE.parent / ".venv-pennylane" / "bin" / "python"


def _rows(interpreter):
    script = HERE / "pennylane_side.py"
    run = subprocess.run([interpreter, script], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return [Row(**row) for row in json.loads(run.stdout)]


def test_pennylane(benchmark, record):
    interpreter = Path(os.environ.get("ADPROTOCOL_PENNYLANE_PYTHON") or INTERPRETER)
    if not interpreter.exists():
        benchmark.pedantic(lambda: None, rounds=1)
        reason = "skipped: PennyLane is not installed, run `make bench-pennylane-env`"
        record(Row("within_gradient, beside PennyLane", "", reason, "", "≤ 1"))
        return
    record(*benchmark.pedantic(_rows, args=(interpreter,), rounds=1))
