"""The record of a run on a GPU: written only by a run, and shown as it is, or as absent."""

import importlib
import json
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("gpu_record")


@pytest.fixture
def generate(monkeypatch):
    pytest.importorskip("jinja2")
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("generate")


REPORT = """<?xml version="1.0"?><testsuites><testsuite>
<testcase classname="a.b" name="one"/><testcase classname="a.b" name="two"/>
<testcase classname="a.b" name="three"><failure message="no"/></testcase>
<testcase classname="a.b" name="four"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def test_outcomes_are_counted_and_what_did_not_pass_is_named(script):
    found = script.counted(REPORT)
    assert found == {"passed": 2, "failed": 1, "skipped": 1, "not passed": ["a.b.three", "a.b.four"]}


def test_without_a_device_nothing_is_written(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert script.main(["--output", str(tmp_path / "cuda.json")]) == 2
    assert list(tmp_path.iterdir()) == []
    assert "No CUDA device" in capsys.readouterr().err


@pytest.mark.parametrize("failed", [0, 1])
def test_a_run_is_recorded_and_shown(script, generate, tmp_path, monkeypatch, failed):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    machine = {"device": "Card", "capability": "9.0", "torch": "2", "cuda": "12", "python": "3", "adprotocol": "0"}
    monkeypatch.setattr(script, "machine", lambda torch: machine)
    counts = {"passed": 9, "failed": failed, "skipped": 0, "not passed": ["a.b.three"] * failed}
    monkeypatch.setattr(script, "tests", lambda folder: counts)
    monkeypatch.setattr(script, "accelerators", lambda: {"torch": "cuda:0", "jax": "gpu:0"})
    monkeypatch.setattr(
        script, "conformance", lambda name, at: {"ok": True, "framework": name, "device": at, "summary": "all pass"}
    )
    path = tmp_path / "cuda.json"
    assert script.main(["--output", str(path)]) == failed  # the exit status
    assert json.loads(path.read_text("utf-8"))["tests"] == counts
    page = generate.cuda(path)
    assert "Card (compute capability 9.0)" in page
    assert f"tests: 9 passed, {failed} failed, 0 skipped" in page
    assert ("`a.b.three`" in page) is bool(failed)
    assert "conformance of torch on cuda:0: all pass" in page
    assert "conformance of jax on gpu:0: all pass" in page


def test_only_devices_that_are_no_cpu_are_tried(script):
    assert not any(name.startswith("cpu") for name in script.accelerators().values())
    assert ("torch" in script.accelerators()) is torch.cuda.is_available()


def test_the_page_says_that_there_is_no_record(generate, tmp_path):
    assert generate.cuda(tmp_path / "cuda.json") == "Not run on a GPU yet: there is no record.\n"
