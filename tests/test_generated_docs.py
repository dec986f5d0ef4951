"""The generated parts of the documentation: what they hold, which pages include them, and that git does not."""

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def generate():
    for name in ("jax", "torch", "autograd"):
        pytest.importorskip(name)
    pytest.importorskip("jinja2")
    sys.path.insert(0, str(DOCS))
    return importlib.import_module("generate")


def test_pages_name_every_generated_part_and_no_other(generate):
    pages = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))
    assert set(re.findall(r"generated/([\w.-]+)", pages)) == set(generate.PARTS)


def test_git_has_no_generated_part(generate):
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout")
    paths = [f"docs/generated/{name}" for name in generate.PARTS]
    done = subprocess.run(["git", "check-ignore", *paths], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    assert done.stdout.split() == paths
    done = subprocess.run(["git", "ls-files", "docs/generated"], cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S607
    assert done.stdout == ""


def test_every_divergence_is_on_the_page(generate):
    from adprotocol import divergence
    from adprotocol._dispatch import registry

    text = generate.divergences()
    declared = list(divergence.CORE)
    for framework in generate.FRAMEWORKS:
        declared += registry.REGISTRY.known()[framework].divergences()
    headings = [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")]
    assert sorted(headings) == sorted(entry.title for entry in declared)
    assert [entry.name for entry in declared if entry.text.strip() not in text] == []


def test_every_scenario_is_on_the_page_with_its_source(generate):
    from adprotocol.conformance import all_scenarios

    text = generate.scenarios()
    for scenario in all_scenarios().values():
        assert f"\n| `{scenario.name}` | {scenario.level} | {scenario.rule} | " in text
        assert re.search(rf"(?m)^- .*`{scenario.name}`", text)


def test_the_page_of_the_matrix_holds_picture_and_table_and_takes_nothing_from_elsewhere(generate):
    text = generate.support_table()
    assert text.count("<svg") == text.count("<table") == 1
    assert "within_gradient/grad-of-jit" in text
    assert set(re.findall(r"https?://[^\"' )<]*", text)) == {"http://www.w3.org/2000/svg"}


def test_the_readme_and_the_front_page_have_the_figures_of_the_record(generate):
    recorded = generate.recorded
    for page in recorded.SHOWN:
        found = recorded.FIGURES.findall(page.read_text("utf-8"))
        assert found == [recorded.figures()], f"{page.name}: run `make support`"


def test_ranges_are_those_of_the_metadata(generate):
    text = generate.ranges()
    assert re.search(r"(?m)^\| JAX \| 0\.8 \| \d+\.\d+\.\d+ \|$", text)
    assert [line.split(" | ")[0] for line in text.splitlines()[2:5]] == ["| autograd", "| JAX", "| PyTorch"]


def test_a_row_of_the_releases_says_what_ran_and_what_failed(generate, tmp_path):
    path = tmp_path / "releases.json"
    row = {"point": "jax-9.8", "python": "3.11.7", "versions": {"jax": "9.8", "numpy": "2.0"}, "suite": "2 of 3 ran"}
    passed = {**row, "tests": {"passed": 7, "skipped": 1}, "ok": True}
    record = {"a": passed, "b": {**row, "point": "b", "tests": {}, "ok": False}}
    path.write_text(json.dumps(record), encoding="utf-8")
    lines = generate.releases(path).splitlines()
    assert lines[2] == "| jax-9.8 | 3.11.7 | jax 9.8, numpy 2.0 | 2 of 3 ran | 7 passed, 1 skipped |"
    assert lines[3] == "| b | 3.11.7 | jax 9.8, numpy 2.0 | **failed**: 2 of 3 ran | not run |"


def test_a_part_that_differs_or_is_missing_is_written_and_another_left_alone(generate, tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "PARTS", {name: lambda: "# Page\n\nnew\n" for name in ("a.md", "b.md")})
    folder = tmp_path / "generated"
    generate.main(folder)
    same = folder / "b.md"
    before = same.stat().st_mtime_ns
    (folder / "a.md").write_text("# Page\n\nold\n", encoding="utf-8")
    generate.main(folder)
    assert {path.name: path.read_text("utf-8") for path in folder.iterdir()} == {
        "a.md": "# Page\n\nnew\n",
        "b.md": "# Page\n\nnew\n",
    }
    assert same.stat().st_mtime_ns == before
