"""The plugins conform, and the record that the documentation shows is what the suite says now."""

import functools
import importlib.util
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import pytest

from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run.result import EXPECTED, THERE
from adprotocol.conformance._run.run import Run

DOCS = Path(__file__).parent.parent.parent / "docs"
# The scenarios of a plugin are so many tests, for the processes of a run to share.
PARTS = 12


@pytest.fixture(scope="module")
def support():
    spec = importlib.util.spec_from_file_location("support", DOCS / "support.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def recorded(backend):
    return json.loads((DOCS / "support" / f"{backend}.json").read_text("utf-8"))


@functools.cache
def run_of(backend):
    return Run(backends.backend_of(backend))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("backend", ["torch", "jax", "autograd", "numpy"])
def test_each_scenario_has_the_outcome_of_the_record(backend, part, support):
    run = run_of(backend)
    # Whether the system is as it was is asked once, at the end.
    with mock.patch.object(Run, "_fault", return_value=""):
        results = [asdict(run.result(case)) for case in run.cases[part::PARTS]]
    got = [{key: result[key] for key in support.KEPT if result[key]} for result in results]
    differs = [
        (now, before, result["message"])
        for now, before, result in zip(got, recorded(backend)["results"][part::PARTS], results, strict=True)
        if now != before
    ]
    assert differs == [], "mend it, or run `make support`"
    assert run._fault([name for name in ("array", "grad", "jvp") if run.state(name) == THERE]) == ""


@pytest.mark.parametrize("backend", ["torch", "jax", "autograd", "numpy"])
def test_the_record_is_of_this_version_and_well(backend, support):
    run = run_of(backend)
    record = recorded(backend)
    assert record["ok"]
    assert record["framework_version"] == run.backend.framework_version.partition("+")[0], "run `make support`"
    expected = {result["divergence"] for result in record["results"] if result["outcome"] == EXPECTED}
    declared = [asdict(entry) for entry in run.report().divergences if entry.name in expected]
    found = [{key: entry[key] for key in ("name", "title", "outcome")} for entry in declared]
    assert sorted(found, key=str) == sorted(record["divergences"], key=str), "run `make support`"


def test_page_shows_the_counts_of_the_record(support):
    pytest.importorskip("jinja2")
    sys.path.insert(0, str(DOCS))
    page = importlib.import_module("generate").support()
    for report in support.reports():
        assert re.search(rf"^- {report.backend} .*{re.escape(report.sentence())}", page, re.MULTILINE)


def test_a_record_of_an_earlier_suite_leaves_out_what_is_no_more(support, tmp_path, monkeypatch):
    text = (support.FOLDER / "numpy.json").read_text(encoding="utf-8")
    first = support.reports(["numpy"])[0].results[0].id
    (tmp_path / "old.json").write_text(text.replace(f'"{first}"', '"cond/that-is-no-more"'), encoding="utf-8")
    monkeypatch.setattr(support, "OTHERS", tmp_path)
    (old,) = support.others()
    assert first not in [result.id for result in old.results]
    assert len(old.results) > 0
