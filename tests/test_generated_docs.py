"""The generated pages of the documentation are those that the code yields now."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def generate():
    for name in ("jax", "torch", "autograd"):
        pytest.importorskip(name)
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_as_they_would_be_written(generate, capsys):
    status = generate.main(["--check"])
    assert (status, capsys.readouterr().out) == (0, ""), "run `make generated`"


def test_every_divergence_is_on_the_page(generate):
    from adprotocol import divergence
    from adprotocol._dispatch import registry as plugins

    text = (DOCS / "divergences.md").read_text("utf-8")
    declared = list(divergence.CORE)
    for framework in generate.FRAMEWORKS:
        declared += divergence.declared(plugins.REGISTRY.known()[framework])
    headings = [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")]
    assert sorted(headings) == sorted(divergence.title for divergence in declared)
    assert [divergence.name for divergence in declared if divergence.text.strip() not in text] == []


def test_a_page_that_differs_is_found_and_written(generate, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(generate, "PAGES", {"page.md": lambda: "# Page\n\nnew\n"})
    page = tmp_path / "page.md"
    page.write_text("# Page\n\nold\n", encoding="utf-8")
    assert generate.main(["--check"], tmp_path) == 1
    assert {"-old", "+new"} <= set(capsys.readouterr().out.splitlines())
    assert page.read_text("utf-8") == "# Page\n\nold\n"
    assert generate.main([], tmp_path) == 0
    assert page.read_text("utf-8") == "# Page\n\nnew\n"
    assert generate.main(["--check"], tmp_path) == 0


def test_a_page_that_is_missing_is_found_and_written(generate, tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "PAGES", {"page.md": lambda: "# Page\n"})
    assert generate.main(["--check"], tmp_path) == 1
    assert generate.main([], tmp_path) == 0
    assert (tmp_path / "page.md").read_text("utf-8") == "# Page\n"
