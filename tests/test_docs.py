"""What the README and the pages say: their Python blocks run, their output is as shown, their links lead somewhere."""

import ast
import contextlib
import doctest
import functools
import importlib
import io
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

import adprotocol
from adprotocol import plugins
from adprotocol._dispatch import registry

ROOT = Path(__file__).parent.parent
SITE = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "examples" / "solver_layer" / "README.md", *SITE]
ADOPTED = sorted((ROOT / "examples" / "adoption").glob("*/README.md"))
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "examples" / "README.md", *ADOPTED]
PUBLIC = [name for name in adprotocol.__all__ if name != "__version__"]

# A fence of Python, with `% raises: Name` before it if it is meant to raise, and
# with what it prints, or the message it raises, in a fence of text after it.
BLOCK = re.compile(
    r"^(?:% raises: (?P<raises>\w+)\n\n?)?```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# What the build of the documentation puts in the place of a directive.
INCLUDE = re.compile(r"^```\{include\} generated/(\S+)\n```\n", re.MULTILINE)
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def relative(path):
    return str(path.relative_to(ROOT))


@functools.cache
def generated(name):
    for module in ("jax", "torch", "autograd", "jinja2"):
        pytest.importorskip(module)
    sys.path.insert(0, str(ROOT / "docs"))
    return importlib.import_module("generate").PARTS[name]()


def text_of(page):
    """A page with the generated parts that it includes."""
    return INCLUDE.sub(lambda found: generated(found[1]), page.read_text(encoding="utf-8"))


def blocks(page):
    text = text_of(page)
    found = list(BLOCK.finditer(text))
    assert len(found) == text.count("\n```python\n"), "a block that this test does not see"
    for match in found:
        # Blank lines in front, so that a traceback shows the line of the page.
        line = text.count("\n", 0, match.start("code"))
        yield line + 1, "\n" * line + match["code"], match["raises"], match["shown"]


@pytest.fixture
def namespace(page, monkeypatch):
    """A module of its own for each page; plugins that it registers are removed again."""
    # Dynamo keeps modules by their names, and would find the functions of the first page in the next.
    module = ModuleType(f"page_{page.stem}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    before = set(registry.REGISTRY.known())
    yield vars(module)
    for name in set(registry.REGISTRY.known()) - before:
        plugins.unregister(name)


def run(code, page, namespace):
    """Return what the code prints, and the error that it raises."""
    printed = io.StringIO()
    error = None
    with contextlib.redirect_stdout(printed):
        try:
            exec(compile(code, page, "exec"), namespace)  # noqa: S102  (the pages are ours)
        except Exception as raised:  # noqa: BLE001  (which one, the page says)
            error = raised
    return printed.getvalue(), error


@pytest.mark.parametrize("page", [page for page in PAGES if "```python" in page.read_text("utf-8")], ids=relative)
def test_page_runs_and_prints_what_it_shows(page, namespace):
    for name in ("jax", "torch", "autograd"):
        pytest.importorskip(name)
    for line, code, raises, shown in blocks(page):
        where = f"{relative(page)}:{line}"
        printed, error = run(code, str(page), namespace)
        if raises is None and error is not None:
            raise error
        if raises is not None:
            assert error is not None, f"{where} raises nothing"
            assert raises in [cls.__name__ for cls in type(error).__mro__], where
            printed += str(error)
        if shown is not None or raises is None:
            assert doctest.OutputChecker().check_output(shown or "", printed, LOOSELY), f"{where} printed\n{printed}"


def modules_with_examples():
    paths = [
        path.relative_to(ROOT) for path in (ROOT / "adprotocol").rglob("*.py") if ">>> " in path.read_text("utf-8")
    ]
    return sorted(".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths)


@pytest.mark.parametrize("name", [*PUBLIC, *modules_with_examples()])
def test_examples_in_docstrings(name):
    pytest.importorskip("autograd")
    # What a public function shows is found by its name: its module is the package.
    subject = getattr(adprotocol, name) if name in PUBLIC else importlib.import_module(name)
    runner = doctest.DocTestRunner()
    for example in doctest.DocTestFinder().find(subject, name):
        runner.run(example)
    assert runner.tries or name not in PUBLIC
    assert not runner.failures


@pytest.mark.parametrize("name", PUBLIC)
def test_public_name_is_documented_with_an_example_and_in_the_reference(name):
    assert getattr(adprotocol, name).__module__ in {"adprotocol", "adprotocol.errors"}
    assert ">>> " in getattr(adprotocol, name).__doc__
    reference = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert f"adprotocol.{name}" in reference or hasattr(adprotocol.errors, name)


def anchors(page):
    """The anchors of the headings, as GitHub and MyST make them."""
    text = FENCE.sub("", text_of(page))
    headings = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKED, ids=relative)
def test_relative_links_lead_somewhere(page):
    for target in LINK.findall(FENCE.sub("", text_of(page))):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        if path.startswith("generated/"):
            assert generated(path.removeprefix("generated/"))
            continue
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(file), target


FRAMEWORKS = {"adprotocol", "autograd", "jax", "numpy", "torch"}


@pytest.mark.parametrize("page", SITE, ids=relative)
def test_a_page_says_on_top_what_it_needs_beside_the_frameworks(page):
    imported = {
        name.partition(".")[0]
        for _, code, _, _ in blocks(page)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    others = {name.lower().replace("_", "-") for name in imported - FRAMEWORKS - sys.stdlib_module_names}
    said = re.findall(r"(?s)\*Needs (.*?)\*", page.read_text("utf-8").partition("\n## ")[0].partition("```python")[0])
    assert [name for name in others if name not in " ".join(said).lower()] == []


def tables_of_contents(page):
    """The entries of each table of contents of a page, by its caption."""
    found = re.findall(r"(?ms)^```\{toctree\}\n(.*?)^```$", page.read_text("utf-8"))
    return {
        (re.findall(r":caption: (.*)", table) or [""])[0]: re.findall(r"(?m)^(?!:)(\S.*)$", table) for table in found
    }


def test_the_navigation_shows_at_most_seven_entries_for_each_of_four_purposes():
    shown = tables_of_contents(ROOT / "docs" / "index.md")
    assert list(shown) == ["Start", "Functions", "Guides", "Reference"]
    assert max(map(len, shown.values())) <= 7


def test_every_page_for_readers_is_in_one_table_of_contents():
    listed = [entry for page in SITE for entries in tables_of_contents(page).values() for entry in entries]
    apart = {page.stem for page in SITE if page.read_text("utf-8").startswith("---\norphan: true\n---\n")}
    assert apart == {"architecture", "releasing"}
    pages = {page.stem for page in SITE} - {"index"} - apart
    assert sorted(entry for entry in listed if "<" not in entry) == sorted(pages)


def test_the_front_page_begins_with_the_example_of_the_readme():
    first = [next(blocks(ROOT / name))[1:] for name in ("README.md", "docs/index.md")]
    assert [(code.strip(), shown) for code, _, shown in first][1:] == [(first[0][0].strip(), first[0][2])]
