"""The wheel, in a clean environment without frameworks."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import adprotocol
from adprotocol._pyinstaller import hook_dirs

ROOT = Path(__file__).parent.parent

HOOKS = """
import sys
import adprotocol as ap
from collections import namedtuple
Pair = namedtuple("Pair", "a b")
assert ap.within_gradient(1.0, {"a": [None, "s"]}, Pair(1, 2j), print) is False
marker = object()
assert ap.non_differentiable(Pair(marker, 2))[0] is marker
assert ap.non_differentiable(lambda x: x + 1)(1) == 2
assert ap.NonDifferentiable(2.0) * 3 == 6.0
assert ap.cond(True, lambda x: x, lambda x: -x, 5) == 5
assert "float" in ap.explain(1.0)
for name in ("numpy", "jax", "torch", "autograd"):
    assert name not in sys.modules
"""


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    home = tmp_path_factory.mktemp("clean")
    venv.create(home)
    interpreter = home / "bin" / "python"
    install = ["install", "--quiet", "--no-compile", "-c", str(ROOT / "constraints.txt"), str(wheel)]
    command = [sys.executable, "-m", "pip", "--python", str(interpreter), *install]
    subprocess.run(command, check=True, capture_output=True)
    return interpreter


def test_wheel_holds_the_four_packages_with_types_and_data(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    for package in ("adprotocol", "adprotocol_jax", "adprotocol_torch", "adprotocol_autograd"):
        assert f"{package}/__init__.py" in names
        assert f"{package}/py.typed" in names
        assert f"{package}/divergences.md" in names
    assert "adprotocol/__init__.pyi" in names
    assert {
        "adprotocol/conformance/_reports/report.html.jinja",
        "adprotocol/conformance/scenarios/cond/transformations.py",
    } <= set(names)
    assert {"adprotocol/_demo/model.py", "adprotocol/_demo/run.py"} <= set(names)
    assert not any("co2" in name for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/", "examples/")) for name in names)
    assert any(name.endswith("licenses/LICENSE") for name in names)


FROZEN = """
import autograd, adprotocol
print(autograd.grad(lambda x: 3.0 * x if adprotocol.within_gradient(x) else x)(1.0))
"""
ZIPPED = """
import sys, autograd, adprotocol
from adprotocol.__main__ import main
assert adprotocol.__file__.startswith(sys.argv[1])
sys.exit(main(["info", "--json"]))
"""


def test_info_reads_the_declared_divergences_in_a_wheel_that_is_not_unpacked(wheel, tmp_path):
    pytest.importorskip("autograd")
    environment = {**os.environ, "PYTHONPATH": str(wheel), "ADPROTOCOL_BLOCK": "jax,torch"}
    command = [sys.executable, "-c", ZIPPED, str(wheel)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    (found,) = (plugin for plugin in json.loads(done.stdout)["plugins"] if plugin["name"] == "autograd")
    assert found["state"] == "active"
    assert {entry["name"] for entry in found["divergences"]} >= {"arguments", "first-pass"}


def test_pyinstaller_finds_the_hook_that_bundles_the_plugins(wheel):
    archive = zipfile.ZipFile(wheel)
    (listed,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "[pyinstaller40]\nhook-dirs = adprotocol._pyinstaller:hook_dirs\n" in archive.read(listed).decode()
    assert "adprotocol/_pyinstaller/hook-adprotocol.py" in archive.namelist()
    (folder,) = hook_dirs()
    assert Path(folder, "hook-adprotocol.py").is_file()


def test_a_program_that_pyinstaller_has_frozen_finds_the_plugins(tmp_path):
    run = pytest.importorskip("PyInstaller.__main__").run
    pytest.importorskip("autograd")
    program = tmp_path / "program.py"
    program.write_text(FROZEN, "utf-8")
    excluded = [option for name in ("jax", "torch", "pytest") for option in ("--exclude-module", name)]
    folders = ["--distpath", str(tmp_path), "--workpath", str(tmp_path / "work"), "--specpath", str(tmp_path)]
    run([*excluded, *folders, "--log-level", "ERROR", str(program)])
    done = subprocess.run([tmp_path / "program" / "program"], capture_output=True, text=True, check=True)
    assert done.stdout == "3.0\n"


def test_the_version_is_that_of_the_package(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    assert f"\nVersion: {adprotocol.__version__}\n" in archive.read(metadata).decode()


def test_core_depends_on_pluggy_alone(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    required = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")]
    assert sorted(line.split()[1].split(">")[0] for line in required if "extra" not in line) == ["pluggy"]


def test_hooks_work_without_any_framework(python, tmp_path):
    subprocess.run([python, "-I", "-W", "error", "-c", HOOKS], check=True, cwd=tmp_path)


def test_info_and_doctor_without_any_framework(python, tmp_path):
    info = subprocess.run([python, "-m", "adprotocol", "info", "--json"], check=True, capture_output=True, cwd=tmp_path)
    plugins = {plugin["name"]: plugin for plugin in json.loads(info.stdout)["plugins"]}
    assert set(plugins) == {"jax", "torch", "autograd"}
    assert {plugin["state"] for plugin in plugins.values()} == {"not installed"}
    assert {plugin["distribution"] for plugin in plugins.values()} == {"adprotocol"}
    script = python.parent / "adprotocol"
    for command in ([script, "info"], [script, "doctor"], [python, "-m", "adprotocol", "doctor"]):
        subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)


def test_conformance_says_what_it_takes(python, tmp_path):
    command = [python, "-m", "adprotocol", "conformance", "numpy"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'adprotocol[conformance]'" in done.stderr


def test_nothing_is_loaded_into_the_test_runs_of_others(wheel):
    archive = zipfile.ZipFile(wheel)
    (entry_points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
    assert "pytest11" not in archive.read(entry_points).decode()
