"""Declared divergences: what a manifest refuses, those that ship with the package, and errors that quote them."""

import dataclasses
import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest
import torch
from minimal_plugin import Array, Minimal
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

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
    "errors": (),
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


def test_an_error_that_scenarios_are_expected_to_raise_is_named():
    declared = [entry for framework in FRAMEWORKS for entry in shipped(framework) if entry.scenarios]
    assert [entry.name for entry in declared if entry.outcome == "error" and not entry.errors] == []


def shipped(framework):
    pytest.importorskip(framework)
    registry.load_plugins()
    return registry.REGISTRY.known()[framework].divergences()


def test_a_divergence_is_data_that_cannot_change_and_fails_loudly_unless_it_says_otherwise():
    divergence = Divergence(**GOOD)
    assert dataclasses.asdict(divergence) == GOOD
    with pytest.raises(dataclasses.FrozenInstanceError):
        divergence.name = "other"
    short = Divergence(name="n", title="t", text="x")
    assert (short.remedy, short.scenarios, short.outcome) == ("", (), "error")


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
        text="The first run records nothing:\n\n- a list\n\n### A heading of the text\n",
    )
    assert found["short"] == Divergence(name="short", title="Short", text="A text.\n")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("- remedy: Ask", "- remedies: Ask", "unexpected keyword argument 'remedies'; write `- field: value`"),
        ("- outcome: wrong", "- wrong", "below the heading 'Two `runs`': dictionary update sequence element #2"),
        ("- name: two-runs\n", "", "missing 1 required keyword-only argument: 'name'; write"),
    ],
)
def test_a_wrong_page_is_an_error_that_names_the_file(tmp_path, old, new, message):
    assert old in PAGE
    with pytest.raises(PluginError, match=r"divergences\.md") as raised:
        read(tmp_path, PAGE.replace(old, new))
    assert message in str(raised.value)


def test_a_plugin_declares_by_its_hook_or_nothing(plugin_that_declares):
    divergence = Divergence(**GOOD)
    assert plugin_that_declares(lambda: [divergence]).divergences() == (divergence,)
    plugin = plugins.register(Minimal(), "without")
    assert plugin.divergences() == ()
    plugins.unregister(plugin.name)


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (lambda: [1 / 0], "plugin 'fakefw': the hook divergences raises ZeroDivisionError"),
        (lambda: None, "the hook divergences raises TypeError"),
        (lambda: ["two-runs"], "the hook divergences raises AttributeError: 'str' object has no attribute 'name'"),
    ],
)
def test_a_wrong_manifest_is_an_error_that_names_the_plugin(plugin_that_declares, declare, message):
    plugin = plugin_that_declares(declare)
    with pytest.raises(PluginError, match="plugin 'fakefw'") as raised:
        plugin.divergences()
    assert message in str(raised.value)
    assert adprotocol.within_gradient(Array()) is False  # the manifest is not asked while values are


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_shipped_manifest_is_that_of_its_file_and_has_prose_remedies_and_names_of_its_own(framework):
    entries = shipped(framework)
    path = Path(importlib.import_module(f"adprotocol_{framework}").__file__).with_name("divergences.md")
    headings = re.findall(r"(?m)^- name: (.*)", path.read_text("utf-8"))
    assert headings == [entry.name for entry in entries] == list(manifest.read_divergences(path))
    names = [entry.name for entry in (*entries, *manifest.CORE)]
    assert len(names) == len(set(names)) > 3
    for entry in (*entries, *manifest.CORE):
        words = re.sub(r"`[^`]*`", "", entry.title)
        assert entry.remedy
        assert entry.title[0].isupper() or entry.title[0] == "`"
        assert "_" not in words
        assert not words.endswith(".")


def test_no_file_is_read_before_a_divergence_is_wanted(fresh):
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
    assert fresh(code) == (0, "")


class Holder:
    def __init__(self, array):
        self.array = array


def in_a_reentrant_checkpoint():
    checkpoint(adprotocol.within_gradient, torch.ones((), requires_grad=True), use_reentrant=True)


def in_a_dual_level_around_a_compiled_function():
    compiled = torch.compile(adprotocol.within_gradient, fullgraph=True, backend="eager")
    with forward_ad.dual_level():
        compiled(forward_ad.make_dual(torch.ones(()), torch.ones(())))


def a_python_number(compiled=lambda f: f):
    compiled(adprotocol.grad(lambda x: (x * x).item()))(torch.ones(()))


def a_module_in_two_threads():
    module = torch.nn.Linear(2, 1)

    def loss(module):
        with ThreadPoolExecutor(1) as threads:
            threads.submit(adprotocol.within_gradient, module).result()
        return module(torch.ones(2)).sum()

    adprotocol.grad(loss, where="weight")(module)


# What raises, and the entry whose remedy it quotes.
QUOTING = [
    (lambda: adprotocol.within_gradient(jax.new_ref(jax.numpy.ones(2))), "mutable-references"),
    (in_a_reentrant_checkpoint, "reentrant-checkpoint"),
    (in_a_dual_level_around_a_compiled_function, "dual-level-around-compiled"),
    (a_python_number, "python-numbers"),
    (lambda: a_python_number(lambda f: torch.compile(f, fullgraph=True, backend="eager")), "python-numbers"),
    (a_module_in_two_threads, "module-in-threads"),
    (
        lambda: adprotocol.grad(lambda x: x.sum(), backend="torch")(np.ma.masked_array([1.0, 2.0], [True, False])),
        "masked-arrays",
    ),
    (lambda: adprotocol.within_gradient(Holder(torch.ones(2))), "objects"),
]


@pytest.mark.parametrize(("call", "name"), QUOTING)
def test_an_error_quotes_the_remedy(call, name):
    declared = {entry.name: entry for entry in (*shipped("jax"), *shipped("torch"), *manifest.CORE)}
    # One of a graph is Dynamo's, around ours.
    errors = (adprotocol.ADProtocolError, torch._dynamo.exc.TorchDynamoException)
    with pytest.raises(errors, match=re.escape(declared[name].remedy)):
        call()
