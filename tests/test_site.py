"""The built site: what its search finds first, that nothing is cut off, what a package index shows of the README."""

import fcntl
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

import browser
import pytest

import adprotocol
from adprotocol import errors

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

# What people search for, and the page that should be found first.
FIRST = {
    "testing": "testing",
    "custom_rules": "check_rule; custom_derivative; host_function; solver; adjoint; implicit; callback; "
    "custom_gradient; autograd.Function; custom_vjp; custom_jvp",
    "adopting": "pymanopt",
    "structures": "is_leaf; fine-tune; optimizer; pytree; tree_map; grad; trainable; register_structure; freeze",
    "within_gradient": "dropout; within_gradient; jit; saliency; training mode; eval; compile",
    "cookbook": "batch norm; LoRA; teacher; distillation; EMA; moving average; straight-through; array_namespace",
    "non_differentiable": "stop_gradient; stop gradient; detach; non_differentiable",
    "prevent_gradient": "prevent_gradient",
    "cond": "cond",
    "quickstart": "install",
    "comparison": "PennyLane; in_backprop; Equinox",
    "benchmarks": "benchmarks",
    "distributed": "DDP; shard_map",
    "accelerators": "CUDA",
}
QUERIES = {query: page for page, queries in FIRST.items() for query in queries.split("; ")}
ERRORS = [name for name, value in vars(errors).items() if isinstance(value, type)]
QUERIES |= dict.fromkeys([*ERRORS, "UsageError", "BrokenBackend"], "errors")

# What the pages are made from.
SHOWN = ("docs", "examples", "adprotocol", "adprotocol_jax", "adprotocol_torch", "adprotocol_autograd")
WIDE, NARROW = 1400, 390

SCROLLS = """[...document.querySelectorAll("article .table-wrapper, article pre, article img")].filter(
  element => element.scrollWidth > element.clientWidth + 1).map(element => element.textContent.trim().slice(0, 60))"""


def is_newer_than_its_sources(pages):
    """Tell whether all that a page may show was there when `make docs` built it."""
    index = pages / "searchindex.js"
    files = [*ROOT.glob("*.*"), *(file for part in SHOWN for file in (ROOT / part).rglob("*.*"))]
    built = {"__pycache__", "_build", "generated"}
    sources = [file for file in files if file.is_file() and built.isdisjoint(file.parts)]
    return index.exists() and index.stat().st_mtime > max(file.stat().st_mtime for file in sources)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The pages as `make docs` built them, if they are up to date; else built once, also by several processes."""
    if is_newer_than_its_sources(DOCS / "_build" / "html"):
        return DOCS / "_build" / "html"
    for name in ("sphinx", "myst_parser", "furo", "matplotlib", "jinja2", "jax", "torch", "autograd"):
        pytest.importorskip(name)
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    pages, done = folder / "site", folder / "site-is-built"
    with (folder / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", "-d", folder / "doctrees", DOCS, pages]
            built = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
            assert built.returncode == 0, built.stderr
            done.touch()
    return pages


@pytest.fixture
def tab(tmp_path):
    executable = browser.find()
    if executable is None:
        pytest.skip(f"needs a browser: none of {', '.join(browser.NAMES)} is on the path")
    with browser.page(executable, tmp_path) as page:
        yield page


def test_the_search_finds_the_right_page_first(site):
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, which is not on the path")
    command = [node, ROOT / "tests" / "search.js", site, *QUERIES]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert dict(zip(QUERIES, done.stdout.splitlines(), strict=True)) == QUERIES


def test_the_search_does_not_know_what_the_page_of_scenarios_says(site):
    text = (site / "searchindex.js").read_text("utf-8")
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    number = index["docnames"].index("scenarios")

    def pages(entry):
        return entry if isinstance(entry, list) else [entry]

    assert [term for term, entry in index["terms"].items() if number in pages(entry)] == []
    assert [title for title, entry in index["alltitles"].items() if number in [file for file, _ in entry]] == []


def test_nothing_is_cut_off_on_a_desk_or_on_a_telephone(site, tab):
    wrong = []
    for page in sorted([*site.glob("*.html"), *site.glob("_downloads/*/*.html")]):
        for width in (WIDE, NARROW):
            tab.open(page.as_uri(), width)
            if tab.evaluate("document.documentElement.scrollWidth") > width or tab.evaluate(browser.CUT):
                wrong.append((page.name, width, tab.evaluate(browser.CUT)))
            # On a desk every table and every line of code is seen whole.
            if width == WIDE and (scrolled := tab.evaluate(SCROLLS)):
                wrong.append((page.name, width, scrolled))
    assert wrong == []


def test_the_remedies_of_the_errors_are_seen_on_a_telephone(site, tab):
    tab.open((site / "errors.html").as_uri(), NARROW)
    hidden = """[...document.querySelectorAll("table.stacked td:last-child")].filter(cell => {
      const box = cell.getBoundingClientRect();
      return box.left < 0 || box.right > innerWidth || !cell.checkVisibility();
    }).length"""
    assert tab.evaluate("document.querySelectorAll('table.stacked td:last-child').length") > 20
    assert tab.evaluate(hidden) == 0


def test_the_check_for_what_is_cut_off_sees_it(tab, tmp_path):
    page = tmp_path / "page.html"
    row = "<table><tr><td style='min-width:2000px'>wide</td></tr></table>"
    for style, seen in (("", True), ("overflow-x:hidden", True), ("overflow-x:auto", False)):
        page.write_text(f"<!DOCTYPE html><article><div style='{style}'>{row}</div></article>", "utf-8")
        tab.open(page.as_uri(), NARROW)
        assert bool(tab.evaluate(browser.CUT)) is seen, style


@pytest.fixture(scope="module")
def description(wheel):
    """The README as a package index shows it."""
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    return archive.read(metadata).decode().partition("\n\n")[2]


def test_every_link_that_a_package_index_shows_leads_to_a_file_of_the_repository(description):
    text = re.sub(r"(?ms)^```.*?^```$", "", description)
    links = re.findall(r"(!?)\[[^\]]*\]\(([^)\s]+)\)", text)
    assert len(links) > 30
    home = {"!": "https://raw.githubusercontent.com/adprotocol/adprotocol/main/", "": f"{_source()}/blob/main/"}
    for mark, link in links:
        assert link.startswith(home[mark]), link
        assert (ROOT / link.removeprefix(home[mark]).partition("#")[0]).is_file(), link


def test_a_package_index_shows_the_text_and_the_code_of_the_readme(description):
    readme = (ROOT / "README.md").read_text("utf-8")
    code = re.compile(r"(?ms)^```.*?^```$")
    assert code.findall(description) == code.findall(readme)
    bare = re.compile(r"\]\([^)\s]+\)")
    assert bare.sub("]()", description).strip() == bare.sub("]()", readme).strip()


def _source():
    return re.search(r'(?m)^Source = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"))[1]


def test_the_project_says_where_it_is(wheel):
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    found = re.findall(r"(?m)^Project-URL: (\w+), https://", archive.read(metadata).decode())
    assert found == ["Homepage", "Documentation", "Source", "Issues", "Changelog"]


@pytest.fixture(scope="module")
def pictures():
    pytest.importorskip("jinja2")
    sys.path.insert(0, str(DOCS))
    return importlib.import_module("pictures")


def test_the_picture_of_the_readme_shows_the_record(pictures):
    assert pictures.SUPPORT.read_text("utf-8") == pictures.support_short(), "run `make support`"


def test_the_picture_of_support_has_a_mark_for_each_framework_in_each_row(pictures):
    titles = [title.text for title in ET.fromstring(pictures.support_short()).iter("{http://www.w3.org/2000/svg}title")]  # noqa: S314
    for title in pictures.ROWS.values():
        for name in pictures.FRAMEWORKS:
            assert len([text for text in titles if text.startswith(f"{name}, {title}: ")]) == 1


def test_the_picture_of_the_benchmarks_has_every_ratio_of_the_table(pictures):
    pytest.importorskip("matplotlib")
    rows = pictures.table()
    assert {len(row) for row in rows} == {7}
    with_ratio = [row for row in rows if row[3][:1].isdigit()]
    assert len(with_ratio) == len(pictures.found_ratios()) > 50
    text = pictures.ratios()
    assert text.count("<use ") >= len(with_ratio)
    assert [ratio.group for ratio in pictures.found_ratios() if f"<!-- {ratio.group} -->" not in text] == []


def test_the_figures_of_the_readme_are_those_of_the_table(pictures):
    rows = [row for row in pictures.table() if row[0].startswith("right answers in ")]
    tried = re.search(r"in (\d+) nestings", rows[0][0])[1]
    ours = [f"{row[1]} of {tried}" for row in rows]
    theirs = [f"{row[2].rpartition(': ')[2]} of {tried}" for row in rows]
    readme = (ROOT / "README.md").read_text("utf-8")
    assert f"| `within_gradient` | {ours[0]} | {ours[1]} |" in readme
    assert f"`qml.math.in_backprop` | {theirs[0]} | {theirs[1]} |" in readme


def _documented(site, page):
    return re.findall(r'<dt class="sig[^"]*" id="([\w.]+)"', (site / page).read_text("utf-8"))


def test_the_reference_for_users_has_nothing_for_plugins_or_the_suite(site):
    modules = {name.rpartition(".")[0] for name in _documented(site, "api.html")}
    assert not {"adprotocol.hookspecs", "adprotocol.extend"} & modules
    assert [module for module in modules if module.startswith("adprotocol.conformance")] == []


def test_the_reference_lists_public_names_only(site):
    names = [name for page in ("api", "api_plugins", "api_conformance") for name in _documented(site, f"{page}.html")]
    assert len(names) > 100
    assert len(names) == len(set(names))
    assert [name for name in names if any(part.startswith("_") for part in name.split("."))] == []
    assert [name for name in names if not _is_public(name)] == []


def _is_public(name):
    """Whether the module lists the name; without a list, whether it is an error or a hook."""
    module, parts = adprotocol, name.split(".")[1:]
    while hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{parts[0]}"):
        module, parts = importlib.import_module(f"{module.__name__}.{parts[0]}"), parts[1:]
    if hasattr(module, "__all__"):
        return parts[0] in module.__all__
    found = getattr(module, parts[0])
    return isinstance(found, type) or hasattr(found, "adprotocol_spec")
