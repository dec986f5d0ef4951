"""Declared divergences: what a manifest refuses, and the manifests that ship with the package."""

import dataclasses
import importlib
import re
from pathlib import Path

import pytest
from minimal_plugin import Array, Minimal

import adprotocol
from adprotocol import divergence as manifest
from adprotocol import plugins
from adprotocol._dispatch import registry
from adprotocol.errors import PluginError
from adprotocol.extend import Divergence
from adprotocol.hookspecs import hookimpl

FRAMEWORKS = ("jax", "torch", "autograd")
GOOD = {
    "name": "two-runs",
    "title": "Two runs",
    "text": "The first run records nothing.",
    "remedy": "Ask outside",
    "scenarios": ("within_gradient/checkpoint", "cond/*@reentrant"),
    "outcome": "wrong",
}


@pytest.fixture
def plugin_that_declares():
    registered = []

    def make(declare):
        class Declaring(Minimal):
            @hookimpl
            def divergences(self):
                return declare()

        registered.append(plugins.register(Declaring(), "fakefw"))
        return registered[-1]

    yield make
    for plugin in registered:
        plugins.unregister(plugin.name)


def shipped(framework):
    pytest.importorskip(framework)
    registry.load_plugins()
    return registry.REGISTRY.known()[framework].divergences()


def test_a_divergence_is_data_that_cannot_change():
    divergence = Divergence(**GOOD)
    assert {field: getattr(divergence, field) for field in GOOD} == GOOD
    with pytest.raises(dataclasses.FrozenInstanceError):
        divergence.name = "other"


def test_a_divergence_fails_loudly_unless_it_says_otherwise():
    short = Divergence(name="n", title="t", text="x")
    assert (short.remedy, short.scenarios, short.outcome) == ("", (), "error")


@pytest.mark.parametrize(
    ("field", "value", "remedy"),
    [
        ("name", "Two runs", "joined by hyphens"),
        ("name", "two_runs", "joined by hyphens"),
        ("name", "two--runs", "joined by hyphens"),
        ("name", "", "joined by hyphens"),
        ("name", None, "must be a string"),
        ("title", " ", "say what happens"),
        ("text", "", "say what happens"),
        ("text", "\n", "say what happens"),
        ("text", b"bytes", "must be a string"),
        ("remedy", "Ask outside.", "no full stop"),
        ("remedy", "Ask\noutside", "no full stop"),
        ("remedy", " Ask outside", "no full stop"),
        ("outcome", "silent", "write 'error' or 'wrong'"),
        ("outcome", None, "must be a string"),
        ("scenarios", "cond/nan", "a tuple of ids"),
        ("scenarios", ["cond/nan"], "a tuple of ids"),
        ("scenarios", ("nan",), "write 'hook/name'"),
        ("scenarios", ("*",), "write 'hook/name'"),
        ("scenarios", ("cond/",), "write 'hook/name'"),
        ("scenarios", ("cond/nan@",), "write 'hook/name'"),
        ("scenarios", ("cond/nan", 3), "write 'hook/name'"),
    ],
)
def test_a_wrong_field_is_an_error_that_names_divergence_and_remedy(field, value, remedy):
    with pytest.raises(PluginError) as raised:
        Divergence(**{**GOOD, field: value})
    assert remedy in str(raised.value)
    assert repr(value if field == "name" else GOOD["name"]) in str(raised.value)


PAGE = """\
# What stands before the first entry is not read

- name: not-read

## Two `runs`

- name: two-runs
- remedy: Ask outside: pass `x`, and more
- outcome: wrong
- scenarios: `within_gradient/checkpoint`, cond/*@reentrant

The first run records nothing:

- a list

```python
## no heading
```

### A heading of the text

## Short

- name: short

A text.
"""


def read(tmp_path, page):
    path = tmp_path / "divergences.md"
    path.write_text(page, encoding="utf-8")
    return manifest.read_divergences(path)


def test_divergences_are_read_from_markdown(tmp_path):
    found = read(tmp_path, PAGE)
    assert list(found) == ["two-runs", "short"]
    assert found["two-runs"] == Divergence(
        name="two-runs",
        title="Two `runs`",
        remedy="Ask outside: pass `x`, and more",
        outcome="wrong",
        scenarios=("within_gradient/checkpoint", "cond/*@reentrant"),
        text="The first run records nothing:\n\n- a list\n\n```python\n## no heading\n```\n\n"
        "### A heading of the text\n",
    )
    assert found["short"] == Divergence(name="short", title="Short", text="A text.\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "- remedy: Ask",
            "- remedies: Ask",
            "'- remedies: Ask outside: pass `x`, and more' is no field; write `- field",
        ),
        ("- outcome: wrong", "- remedy: Wait", "'- remedy: Wait' is no field; write `- field: value`, each of name, "),
        ("- name: two-runs", "- title: Two", "'- title: Two' is no field"),
        ("- name: two-runs", "- name:", "'- name:' is no field"),
        ("- name: two-runs\n", "", "has a name that is not a slug"),
        ("- outcome: wrong\n", "- outcome: wrong\nThe text\n", "'The text' is no field"),
        ("outcome: wrong", "outcome: silent", "the declared divergence 'two-runs' has the outcome 'silent'"),
        ("`within_gradient/checkpoint`, ", "`within_gradient/checkpoint`, , ", "names the scenario ''"),
        (
            "`within_gradient/checkpoint`, ",
            "`within_gradient/checkpoint` ",
            "names the scenario 'within_gradient/check",
        ),
        ("name: short", "name: two-runs", "an entry before it has the name 'two-runs'; rename one"),
        ("A text.\n", "", "the declared divergence 'short' has an empty text"),
        ("## Short", "##   ", "the declared divergence 'short' has an empty title"),
        (PAGE, "# Nothing\n\n### Too deep\n", "declares no divergence; open each with a heading of the second level"),
    ],
)
def test_a_wrong_page_is_an_error_that_names_the_file(tmp_path, old, new, message):
    assert old in PAGE
    with pytest.raises(PluginError, match=r"divergences\.md") as raised:
        read(tmp_path, PAGE.replace(old, new))
    assert message in str(raised.value)


def test_an_error_of_a_page_names_the_heading(tmp_path):
    with pytest.raises(PluginError, match="below the heading 'Two `runs`': '- wrong' is no field"):
        read(tmp_path, PAGE.replace("- outcome: wrong", "- wrong"))


def test_a_page_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"divergences\.md"):
        manifest.read_divergences(tmp_path / "divergences.md")


def test_a_plugin_declares_by_its_hook(plugin_that_declares):
    divergence = Divergence(**GOOD)
    assert plugin_that_declares(lambda: [divergence]).divergences() == (divergence,)


def test_a_plugin_without_the_hook_declares_nothing():
    plugin = plugins.register(Minimal(), "fakefw")
    assert plugin.divergences() == ()
    plugins.unregister(plugin.name)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: [1 / 0], "plugin 'fakefw': the hook divergences raises ZeroDivisionError"),
        (lambda: None, "the hook divergences raises TypeError"),
        (lambda: ["two-runs"], "returned 'two-runs' among the rest; return instances of adprotocol.extend.Divergence"),
        (lambda: [Divergence(**GOOD)] * 2, "returned two divergences named 'two-runs'; rename one"),
    ],
)
def test_a_wrong_manifest_is_an_error_that_names_the_plugin(plugin_that_declares, declare, message):
    plugin = plugin_that_declares(declare)
    with pytest.raises(PluginError, match="plugin 'fakefw'") as raised:
        plugin.divergences()
    assert message in str(raised.value)
    assert adprotocol.within_gradient(Array()) is False  # the manifest is not asked while values are


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_shipped_manifest_has_a_remedy_for_each_entry(framework):
    found = shipped(framework)
    assert len(found) >= 3
    assert [divergence.name for divergence in found if not divergence.remedy] == []


def test_the_manifest_of_all_frameworks():
    names = [divergence.name for divergence in manifest.CORE]
    assert len(set(names)) == len(names) == 3
    assert all(divergence.remedy for divergence in manifest.CORE)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_name_of_a_framework_is_none_of_all_frameworks(framework):
    common = {divergence.name for divergence in manifest.CORE}
    assert [divergence.name for divergence in shipped(framework) if divergence.name in common] == []


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_every_entry_of_a_manifest_module_is_declared(framework):
    pytest.importorskip(framework)
    package = Path(importlib.import_module(f"adprotocol_{framework}").__file__).parent
    written = manifest.read_divergences(package / "divergences.md").values()
    assert [entry.name for entry in written] == [entry.name for entry in shipped(framework)]
    headings = re.findall(r"(?m)^- name: (.*)", (package / "divergences.md").read_text("utf-8"))
    assert headings == [entry.name for entry in written]


def test_no_file_is_read_before_a_divergence_is_wanted():
    import subprocess
    import sys

    pytest.importorskip("autograd")
    code = """
import sys
opened = []
sys.addaudithook(lambda event, given: opened.append(str(given[0])) if event == "open" else None)
import adprotocol, autograd
assert autograd.grad(lambda x: adprotocol.cond(adprotocol.within_gradient(x), lambda: 3.0 * x, lambda: x))(1.0) == 3.0
assert any("autograd" in path for path in opened)
assert [path for path in opened if path.endswith(".md")] == []
from adprotocol.divergence import CORE
assert any(path.endswith("divergences.md") for path in opened)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def remedy_of(framework, name):
    return next(divergence.remedy for divergence in shipped(framework) if divergence.name == name)


def test_the_error_for_a_mutable_reference_quotes_its_remedy():
    jax = pytest.importorskip("jax")
    reference = jax.new_ref(jax.numpy.ones(2))
    with pytest.raises(adprotocol.errors.UndecidableError) as raised:
        adprotocol.within_gradient(reference)
    assert str(raised.value).endswith(". " + remedy_of("jax", "mutable-references"))
    assert remedy_of("jax", "mutable-references") in adprotocol.explain(reference)


def test_the_error_for_a_reentrant_checkpoint_quotes_its_remedy():
    torch = pytest.importorskip("torch")
    from torch.utils.checkpoint import checkpoint

    said = []

    def layer(x):
        said.append(adprotocol.explain(x))
        return 3.0 * x if adprotocol.within_gradient(x) else 5.0 * x

    with pytest.raises(adprotocol.errors.UndecidableError) as raised:
        checkpoint(layer, torch.ones((), requires_grad=True), use_reentrant=True)
    assert str(raised.value).endswith(". " + remedy_of("torch", "reentrant-checkpoint"))
    assert said == [f"Tensor: no answer ({raised.value})"]


def test_the_error_for_a_dual_level_around_a_compiled_function_quotes_its_remedy():
    torch = pytest.importorskip("torch")
    from torch.autograd import forward_ad

    compiled = torch.compile(adprotocol.within_gradient, fullgraph=True, backend="eager")
    with forward_ad.dual_level(), pytest.raises(Exception, match="dual_level") as raised:
        compiled(forward_ad.make_dual(torch.ones(()), torch.ones(())))
    assert remedy_of("torch", "dual-level-around-compiled") in str(raised.value)


def test_the_error_for_a_python_number_quotes_its_remedy():
    torch = pytest.importorskip("torch")
    gradient = adprotocol.grad(lambda x: (x * x).item())
    with pytest.raises(adprotocol.errors.OutputError) as raised:
        gradient(torch.ones(()))
    assert str(raised.value).endswith(". " + remedy_of("torch", "python-numbers"))
    with pytest.raises(Exception, match="OutputError") as raised:
        torch.compile(gradient, fullgraph=True, backend="eager")(torch.ones(()))
    assert remedy_of("torch", "python-numbers") in str(raised.value)


def test_the_error_for_a_module_in_two_threads_quotes_its_remedy():
    torch = pytest.importorskip("torch")
    from concurrent.futures import ThreadPoolExecutor

    module = torch.nn.Linear(2, 1)

    def loss(module):
        return module(torch.ones(2)).sum()

    for other in (adprotocol.grad(loss), adprotocol.within_gradient):

        def loss_beside_another(module, other=other):
            with ThreadPoolExecutor(1) as threads:
                threads.submit(other, module).result()
            return loss(module)

        with pytest.raises(adprotocol.errors.ConcurrencyError, match=r"in use .* \(a question is a use\)") as raised:
            adprotocol.grad(loss_beside_another, where="weight")(module)
        assert str(raised.value).endswith(". " + remedy_of("torch", "module-in-threads"))


def test_the_error_for_a_masked_array_quotes_its_remedy():
    pytest.importorskip("torch")
    import numpy as np

    gradient = adprotocol.grad(lambda x: x.sum(), backend="torch")
    with pytest.raises(adprotocol.errors.SelectionError) as raised:
        gradient(np.ma.masked_array([1.0, 2.0], [True, False]))
    assert str(raised.value).endswith(". " + remedy_of("torch", "masked-arrays"))


def test_the_error_for_an_object_that_hides_arrays_quotes_its_remedy():
    plugin = plugins.register(Minimal(), "fakefw")

    class Holder:
        def __init__(self):
            self.array = Array()

    with pytest.raises(adprotocol.errors.OpaqueValueError) as raised:
        adprotocol.within_gradient(Holder())
    assert str(raised.value).endswith(". " + manifest.OBJECTS.remedy)
    plugins.unregister(plugin.name)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_titles_are_prose(name):
    for entry in (*importlib.import_module(f"adprotocol_{name}").divergences(), *manifest.CORE):
        words = re.sub(r"`[^`]*`", "", entry.title)
        assert entry.title[0].isupper() or entry.title[0] == "`"
        assert "_" not in words
        assert not words.endswith(".")
