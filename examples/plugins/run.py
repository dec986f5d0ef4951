"""Run the tests and the conformance suite of each plugin here, in an environment of its own, and record the results.

``python examples/plugins/run.py`` runs all, with names only those. A plugin is a folder with a ``pyproject.toml``. Its
environment is made in ``build/plugins`` from this checkout and the plugin with its extra ``test``, and kept. The
report is written to ``report.md`` beside the plugin, and cut to what the support matrix needs into ``docs/support``.
Exits with 1 if something fails.
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / "build" / "plugins"
QUIET = {
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "DEV": os.environ.get("DEV", "PYTHON"),  # tinygrad's own backend, which needs no compiler
}


def plugins():
    """Return the folders of the plugins by name."""
    return {path.parent.name: path.parent for path in sorted(HERE.glob("*/pyproject.toml"))}


def environment(folder):
    """Return the interpreter of a plugin's environment, with this checkout and the plugin as they are now."""
    place = ENVIRONMENTS / folder.name
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    packages = ["--editable", f"{ROOT}[conformance]", "--editable", f"{folder}[test]"]
    install = [str(python), "-m", "pip", "install", "--quiet", *packages]
    subprocess.run(install, check=True, env={**os.environ, **QUIET})
    return python


def run(python, folder, *arguments):
    """Run a module in the environment and the folder of a plugin, and return the process."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    return subprocess.run(
        [str(python), "-m", *arguments],
        cwd=folder,
        env={**clean, **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )


def suite(python, folder):
    """Run the suite, write the report of a plugin, and return its data; None if it did not run."""
    files = ["--json", "-", "--markdown", "report.md"]
    done = run(python, folder, "adprotocol", "conformance", folder.name, *files)
    if not done.stdout.startswith("{"):
        sys.stderr.write(done.stdout + done.stderr)
        return None
    report = folder / "report.md"
    text = report.read_text(encoding="utf-8")
    for place in (f"{python.parent.parent}/", f"{ROOT}/", f"{tempfile.gettempdir()}/"):  # of this machine
        text = text.replace(place, "")
    report.write_text(text, encoding="utf-8")
    return json.loads(done.stdout)


def record(data):
    """Write what the support matrix shows of a run."""
    spec = importlib.util.spec_from_file_location("support", ROOT / "docs" / "support.py")
    support = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(support)
    support.OTHERS.mkdir(exist_ok=True)
    (support.OTHERS / f"{data['backend']}.json").write_text(support.text_of(support.record(data)), encoding="utf-8")


def main():
    """Run what is named, and return the exit status."""
    known = plugins()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *known], help=f"some of {', '.join(known)} (all)")
    chosen = parser.parse_args().names or list(known)
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    table = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("plugin", "tests", "conformance", "minutes"):
        table.add_column(title)
    failed = False
    for name in chosen:
        begin, folder = time.monotonic(), known[name]
        python = environment(folder)
        tests = run(python, folder, "pytest", "-q", "tests")
        data = suite(python, folder)
        if data is not None:
            record(data)
        if tests.returncode:
            sys.stderr.write(tests.stdout + tests.stderr)
        failed |= tests.returncode != 0 or data is None or not data["ok"]
        last = (tests.stdout.strip().splitlines() or ["nothing"])[-1]
        said = data["summary"]["sentence"] if data is not None else "did not run"
        table.add_row(name, last.strip("= "), said, f"{(time.monotonic() - begin) / 60:.1f}")
    console.print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
