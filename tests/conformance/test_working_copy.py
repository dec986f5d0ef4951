"""What the command tests, where a release of a plugin is installed and a working copy stands before it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
TOYAD = ROOT / "examples" / "toyad"
ENTRY = "[adprotocol]\ntoyad = toyad_adprotocol\n"
FAULT = "\n\n@hookimpl\ndef within_gradient(value):\n    return False\n"


@pytest.fixture
def site(tmp_path):
    """A folder as that of site-packages: adprotocol, and a release of toyad with its plugin."""
    made = tmp_path / "site"
    made.mkdir()
    (made / "adprotocol").symlink_to(ROOT / "adprotocol")
    for file in TOYAD.glob("*.py"):
        shutil.copy(file, made)
    metadata = made / "toyad_adprotocol-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toyad-adprotocol\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY)
    return made


def copied(folder, *names, fault=""):
    """A working copy of modules of toyad, the last of them with a fault."""
    folder.mkdir()
    for name in names:
        shutil.copy(TOYAD / f"{name}.py", folder)
    with (folder / f"{names[-1]}.py").open("a") as module:
        module.write(fault)
    return folder


def conformance(tmp_path, *folders, options=()):
    """The exit status, the text and the report of the command, with folders on PYTHONPATH."""
    command = [sys.executable, "-m", "adprotocol", "conformance", "-k", "within_gradient/grad", "--jobs", "1"]
    done = subprocess.run(
        [*command, "--json", "report.json", *(options or ("toyad",))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    text = (tmp_path / "report.json").read_text("utf-8")
    return done.returncode, done.stdout + done.stderr, json.loads(text) if text else {}


def test_a_fault_of_the_working_copy_is_seen_behind_an_installed_release(tmp_path, site):
    copy = copied(tmp_path / "copy", "toyad_adprotocol", fault=FAULT + '\n\n__version__ = "1.1.dev0"\n')
    status, text, report = conformance(tmp_path, copy, site)
    assert status == 1
    assert report["summary"]["silently wrong"] > 0
    names = ("plugin", "plugin_version", "framework_version")
    assert [report[name] for name in names] == ["toyad-adprotocol", "1.1.dev0", "0.1.0"]
    assert report["files"]["toyad_adprotocol"] == str(copy / "toyad_adprotocol.py")
    assert report["files"]["toyad"] == str(site / "toyad.py")
    for file in report["files"].values():
        assert file in text


def test_the_run_ends_where_a_worker_has_another_file_than_its_parent(tmp_path, site):
    copy = copied(tmp_path / "copy", "toyad_adprotocol")
    shifting = f"import sys\nsys.path.insert(0, {str(copy)!r})\nfrom toyad_harness import ToyHarness\n"
    (site / "shifting.py").write_text(shifting)
    status, text, report = conformance(tmp_path, site, options=("--harness", "shifting:ToyHarness"))
    assert (status, report) == (1, {})
    assert f"has toyad_adprotocol from {copy / 'toyad_adprotocol.py'}, and the one that you started from" in text
