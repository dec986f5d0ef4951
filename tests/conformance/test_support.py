"""The plugins conform, and the record that the documentation shows is what the suite says now."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"


@pytest.fixture(scope="module")
def support():
    spec = importlib.util.spec_from_file_location("support", DOCS / "support.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch", "autograd", "numpy"])
def test_plugin_conforms_and_the_record_is_what_the_suite_says(backend, support):
    pytest.importorskip(backend)
    # One process: each imports the framework and checks the harness, and other tests keep the other cores busy.
    data = support.measure(backend, "--jobs", "1")
    assert data["problems"] == []
    bad = [
        f"{result['outcome']}: {result['id']}: {result['message']}"
        for result in data["results"]
        if result["outcome"] in ("fail", "silently wrong")
    ]
    assert bad == []
    assert data["ok"]
    assert support.difference(backend, support.text_of(support.record(data))) == "", "run `make support`"


@pytest.mark.parametrize("backend", ["jax", "torch", "autograd"])
def test_expected_failures_are_declared_with_a_reason(backend, support):
    (report,) = support.reports([backend])
    known = {divergence.name for divergence in report.divergences}
    assert {result.divergence for result in report.results if result.outcome == "expected failure"} <= known


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
