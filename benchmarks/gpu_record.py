"""The record of a run on a CUDA device: its tests, and the conformance suite with the arrays of each framework on it.

``python benchmarks/gpu_record.py`` writes ``docs/support/cuda.json``, which the page on
accelerators shows. Where there is no device, or the tests cannot run, it writes nothing
and exits with 2; with 1 if something failed, which the record then says.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

from adprotocol import __version__
from adprotocol.conformance import harness_of

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "docs" / "support" / "cuda.json"
NOT_RUN = 2


def tests(folder):
    """Run the tests that need a CUDA device, and count their outcomes."""
    report = folder / "tests.xml"
    # Without the slow one, which is the conformance suite.
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda and not slow", "tests", f"--junitxml={report}"]
    subprocess.run(command, check=False, cwd=ROOT)
    return counted(report.read_text(encoding="utf-8"))


def counted(text):
    """Return the counts of a JUnit report, and the names of the tests that did not pass."""
    found = {"passed": 0, "failed": 0, "skipped": 0, "not passed": []}
    for case in ET.fromstring(text).iter("testcase"):  # noqa: S314  (pytest wrote it)
        outcomes = {child.tag for child in case}
        outcome = "failed" if outcomes & {"failure", "error"} else "skipped" if "skipped" in outcomes else "passed"
        found[outcome] += 1
        if outcome != "passed":
            found["not passed"].append(f"{case.get('classname')}.{case.get('name')}")
    return found


def conformance(backend, device):
    """Run the conformance suite with arrays on a device, and return what it counts."""
    command = [sys.executable, "-m", "adprotocol", "conformance", backend, "--device", device, "--json", "-"]
    ran = subprocess.run(command, check=False, cwd=ROOT, stdout=subprocess.PIPE)
    data = json.loads(ran.stdout)
    return {
        "ok": data["ok"],
        "framework": f"{backend} {data['framework_version']}",
        "device": data["device"],
        "summary": data["summary"]["sentence"],
    }


def accelerators():
    """Return the first device that is no CPU, by framework, for those that see one."""
    found = {name: [at for at in harness_of(name).devices() if not at.startswith("cpu")] for name in ("torch", "jax")}
    return {name: devices[0] for name, devices in found.items() if devices}


def machine(torch):
    """Return the names and versions that matter."""
    return {
        "device": torch.cuda.get_device_name(0),
        "capability": ".".join(map(str, torch.cuda.get_device_capability(0))),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "adprotocol": __version__,
    }


def main(arguments=None):
    """Write the record, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=RECORD, help="where to write it (%(default)s)")
    options = parser.parse_args(arguments)
    import torch

    if not torch.cuda.is_available():
        print("No CUDA device: torch.cuda.is_available() is False. No record is written.", file=sys.stderr)
        return NOT_RUN
    with tempfile.TemporaryDirectory() as folder:
        found = tests(Path(folder))
    if not found["passed"] + found["failed"]:
        print("No test ran on the device. No record is written.", file=sys.stderr)
        return NOT_RUN
    suites = [conformance(backend, device) for backend, device in accelerators().items()]
    record = {"machine": machine(torch), "tests": found, "conformance": suites}
    options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(record, indent=1))
    return 1 if found["failed"] or not all(suite["ok"] for suite in suites) else 0


if __name__ == "__main__":
    raise SystemExit(main())
