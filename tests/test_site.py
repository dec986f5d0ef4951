"""The built site: what its search finds first, what its reference lists, and the README in a package index."""

import html
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
import zipfile
from pathlib import Path

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
    "structures_reference": "is_leaf",
    "structures": "fine-tune; optimizer; pytree; tree_map; grad; trainable; register_structure; freeze; "
    "requires_grad; complex",
    "within_gradient": "dropout; within_gradient; jit; saliency; training mode; eval; compile",
    "cookbook": "batch norm; LoRA; teacher; distillation; EMA; moving average; straight-through; array_namespace",
    "is_concrete": "is_concrete",
    "non_differentiable": "stop_gradient; stop gradient; detach; non_differentiable; prevent_gradient",
    "cond": "cond",
    "where": "where; NaN; nan; double where",
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


def is_newer_than_its_sources(pages):
    """Return whether all that a page may show was there when `make docs` built it."""
    index = pages / "searchindex.js"
    files = [*ROOT.glob("*.*"), *(file for part in SHOWN for file in (ROOT / part).rglob("*.*"))]
    built = {"__pycache__", "_build", "generated"}
    sources = [file for file in files if file.is_file() and built.isdisjoint(file.parts)]
    return index.exists() and index.stat().st_mtime > max(file.stat().st_mtime for file in sources)


@pytest.fixture(scope="session")
def site():
    """The pages of now."""
    pages = DOCS / "_build" / "html"
    if not is_newer_than_its_sources(pages):
        pytest.skip("needs the pages as `make docs` builds them, which is a part of `make test`")
    return pages


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


# Sphinx as `make docs` runs it, on pages without generated parts.
BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
import generate
generate.main = lambda: None
from sphinx.cmd.build import main
sys.exit(main(["-W", "-q", "-b", "html", "-c", *sys.argv[1:]]))
"""


def test_a_second_build_after_a_change_leaves_the_index_of_the_first(tmp_path):
    pytest.importorskip("sphinx")
    pages, built = tmp_path / "pages", tmp_path / "built"
    pages.mkdir()
    (pages / "index.md").write_text("# Start\n\n```{toctree}\nchanged\nunchanged\n```\n", "utf-8")
    for name in ("changed", "unchanged"):
        (pages / f"{name}.md").write_text(f"# A page\n\n```{{index}} ! entry that is {name}\n```\n", "utf-8")
    indices = []
    for _ in range(2):
        subprocess.run([sys.executable, "-c", BUILD, DOCS, pages, built], check=True)
        indices.append((built / "searchindex.js").read_text("utf-8"))
        (pages / "changed.md").touch()
    assert "entry that is unchanged" in indices[0]
    assert indices[1] == indices[0]


def test_each_page_says_what_it_is_about_to_a_search_engine(site):
    pages = [page for page in DOCS.glob("*.md") if page.stem != "index"]
    found = {}
    for page in pages:
        text = (site / f"{page.stem}.html").read_text("utf-8")
        found[page.stem] = re.findall(r'<meta name="description" content="([^"]+)"', text)
    assert [name for name, texts in found.items() if len(texts) != 1 or not 40 < len(texts[0]) < 250] == []
    assert len({texts[0] for texts in found.values()}) == len(pages)


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
    source = re.search(r'(?m)^Source = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"))[1]
    home = {"!": "https://raw.githubusercontent.com/adprotocol/adprotocol/main/", "": f"{source}/blob/main/"}
    for mark, link in links:
        assert link.startswith(home[mark]), link
        assert (ROOT / link.removeprefix(home[mark]).partition("#")[0]).is_file(), link


def test_a_package_index_shows_the_text_and_the_code_of_the_readme(description):
    readme = (ROOT / "README.md").read_text("utf-8")
    code = re.compile(r"(?ms)^```.*?^```$")
    assert code.findall(description) == code.findall(readme)
    bare = re.compile(r"\]\([^)\s]+\)")
    assert bare.sub("]()", description).strip() == bare.sub("]()", readme).strip()


@pytest.fixture(scope="module")
def pictures():
    pytest.importorskip("jinja2")
    sys.path.insert(0, str(DOCS))
    return importlib.import_module("pictures")


def test_the_picture_of_the_readme_shows_the_record_with_a_mark_for_each_framework_in_each_row(pictures):
    assert pictures.SUPPORT.read_text("utf-8") == pictures.support_short(), "run `make support`"
    titles = [title.text for title in ET.fromstring(pictures.support_short()).iter("{http://www.w3.org/2000/svg}title")]  # noqa: S314
    for title in pictures.ROWS.values():
        for name in pictures.FRAMEWORKS:
            assert len([text for text in titles if text.startswith(f"{name}, {title}: ")]) == 1


def test_the_picture_of_the_benchmarks_has_every_ratio_of_the_table(pictures):
    pytest.importorskip("matplotlib")
    rows = pictures.table()
    assert {len(row) for row in rows} == {8}
    with_ratio = [row for row in rows if row[3][:1].isdigit()]
    assert len(with_ratio) == len(pictures.found_ratios()) > 50
    text = pictures.ratios()
    assert text.count("<use ") >= len(with_ratio)
    assert [ratio.group for ratio in pictures.found_ratios() if f"<!-- {ratio.group} -->" not in text] == []


def test_targets_of_the_benchmarks_are_ratios_and_the_page_explains_each_that_is_missed(pictures):
    rows = pictures.table()
    targets = {row[5] for row in rows if row[5]}
    assert [target for target in targets if not re.fullmatch(r"≤ [\d.]+( both)?|equal|falls|all", target)] == []
    page = (DOCS / "benchmarks.md").read_text("utf-8")
    missed = [row[0] for row in rows if row[6] == "**MISSED**"]
    assert [what for what in missed if f"**{what}**" not in page] == []
    assert len(missed) <= 10


def test_pictures_of_matplotlib_have_colours_for_a_dark_ground(pictures):
    pytest.importorskip("matplotlib")
    fit = (DOCS / "_static" / "fit.svg").read_text("utf-8")
    for text in (pictures.ratios(), pictures.growth(), fit):
        assert text.count("prefers-color-scheme: dark") == 1
        ET.fromstring(text)  # noqa: S314


def test_a_page_shows_no_mark_of_a_directive(site):
    pages = {page.name: page.read_text("utf-8") for page in site.glob("*.html")}
    assert [name for name, text in pages.items() if "<p>:::" in text] == []


def test_the_right_answers_on_the_page_are_those_of_the_table(pictures):
    rows = [row for row in pictures.table() if row[0].startswith("right answers in ")]
    tried = re.search(r"in (\d+) nestings", rows[0][0])[1]
    ours = [f"{row[1]} of {tried}" for row in rows]
    theirs = [f"{row[2].rpartition(': ')[2]} of {tried}" for row in rows]
    page = (DOCS / "benchmarks.md").read_text("utf-8")
    assert f"| `within_gradient` | {ours[0]} | {ours[1]} |" in page
    assert f"| `qml.math.in_backprop` | {theirs[0]} | {theirs[1]} |" in page


def test_the_reference_lists_public_names_only_and_those_for_users_apart(site):
    pages = [(site / f"{page}.html").read_text("utf-8") for page in ("api", "api_plugins", "api_conformance")]
    for_users, *others = (re.findall(r'<dt class="sig[^"]*" id="([\w.]+)"', page) for page in pages)
    apart = ("adprotocol.hookspecs.", "adprotocol.extend.", "adprotocol.conformance.")
    assert [name for name in for_users if name.startswith(apart)] == []
    names = [*for_users, *others[0], *others[1]]
    assert len(names) > 100
    assert len(names) == len(set(names))
    assert [name for name in names if any(part.startswith("_") for part in name.split("."))] == []
    assert [name for name in names if not _is_public(name)] == []


def test_the_reference_has_the_types_that_a_checker_sees(site):
    page = (site / "api.html").read_text("utf-8")
    found = re.findall(r'<dt class="sig sig-object py"[^>]*>(.*?)</dt>', page, re.DOTALL)
    shown = [" ".join(html.unescape(re.sub(r"<[^>]+>", "", each)).split()) for each in found]
    functions = [each for each in shown if each.startswith("adprotocol.") and "(" in each]
    assert {each.partition("(")[0].removeprefix("adprotocol.") for each in functions} > {"cond", "grad", "partition"}
    assert [each for each in functions if "object" in each or "→" not in each] == []
    assert {each.partition("(")[0] for each in functions if each.rstrip("¶").endswith("→ Any")} <= {
        "adprotocol.trainable_mask"
    }
    assert "<em>" not in "".join(re.findall(r">Returns<.*?</dd>", page, re.DOTALL))


def _is_public(name):
    """Whether the module lists the name; without a list, whether it is an error, a hook or a text of errors."""
    module, parts = adprotocol, name.split(".")[1:]
    while hasattr(module, "__path__") and importlib.util.find_spec(f"{module.__name__}.{parts[0]}"):
        module, parts = importlib.import_module(f"{module.__name__}.{parts[0]}"), parts[1:]
    if hasattr(module, "__all__"):
        return parts[0] in module.__all__
    found = getattr(module, parts[0])
    return isinstance(found, type) or hasattr(found, "adprotocol_spec") or found.__module__ == "adprotocol.messages"
