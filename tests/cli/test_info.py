"""The report as data and as text, on plugins made by hand."""

import io
import json
import sys
from types import ModuleType

import pytest
from minimal_plugin import Array, Minimal

import adprotocol
from adprotocol._cli import info as report
from adprotocol._cli import terminal
from adprotocol._dispatch import plugin as states
from adprotocol._dispatch.plugin import Plugin
from adprotocol._dispatch.registry import Registry
from adprotocol._dispatch.release import installed


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def registry():
    registry = Registry()
    registry.plugins = {}
    return registry


@pytest.fixture
def registry_of_each_state(registry):
    registry.register(Minimal(), "fakefw")
    for state in (states.NOT_IMPORTED, states.NOT_INSTALLED, states.FAILED, states.BLOCKED):
        plugin = Plugin(state.replace(" ", ""), "nowhere_to_be_found")
        plugin.state = state
        if state == states.FAILED:
            plugin.error = ValueError("[bold] brackets\nand lines")
        registry.plugins[plugin.name] = plugin
    return registry


def collected(registry):
    return report.collect(registry, import_frameworks=False)


def written(info, stream, **options):
    report.write_text(info, stream, **options)
    return stream.getvalue()


def test_the_json_has_the_documented_keys(registry_of_each_state):
    stream = io.StringIO()
    report.write_json(collected(registry_of_each_state), stream)
    data = json.loads(stream.getvalue())
    assert list(data) == ["schema", "adprotocol", "python", "plugins", "conflicts"]
    assert data["schema"] == 2
    assert data["adprotocol"] == adprotocol.__version__
    assert {entry["name"]: (entry["state"], entry["reason"]) for entry in data["plugins"]} == {
        "blocked": ("blocked", "named in ADPROTOCOL_BLOCK"),
        "failed": ("failed", "ValueError: [bold] brackets and lines"),
        "fakefw": ("active", ""),
        "notimported": ("not imported", ""),
        "notinstalled": ("not installed", ""),
    }


def test_a_plugin_registered_by_hand_has_no_distribution(registry):
    registry.register(Minimal(), "fakefw")
    (entry,) = collected(registry).entries
    assert (entry.distribution, entry.distribution_version, entry.framework_version) == (None, None, None)
    assert entry.hooks == ["array_types", "cond", "non_differentiable", "within_gradient"]
    line = "fakefw: active, fakefw, plugin from no distribution"
    assert written(collected(registry), io.StringIO()).splitlines()[1:] == [line]
    more = f"{line}; hooks {', '.join(entry.hooks)}"
    assert written(collected(registry), io.StringIO(), verbose=True).splitlines()[1:] == [more]


def test_an_import_that_fails_is_the_reason(registry):
    registry.plugins["it"] = Plugin("it", "nowhere_to_be_found")
    facts = report.collect(registry, import_frameworks=True)
    assert facts.entries[0].state == states.FAILED
    assert facts.entries[0].reason.startswith("import nowhere_to_be_found raises ModuleNotFoundError")
    assert list(facts.broken_frameworks) == ["nowhere_to_be_found"]
    assert registry.plugins["it"].state == states.NOT_IMPORTED


def test_conflicts_are_reported(registry):
    registry.register(Minimal(), "a")
    registry.register(Minimal(), "b")
    facts = collected(registry)
    assert facts.conflicts == [(f"{Array.__module__}.Array", "a", ["b"])]
    assert f"conflict: {Array.__module__}.Array is served by a; also claimed by b\n" in written(facts, io.StringIO())


def test_the_version_of_a_framework(monkeypatch):
    assert installed("pluggy")[0].isdigit()
    module = ModuleType("fakefw")
    monkeypatch.setitem(sys.modules, "fakefw", module)
    assert installed("fakefw") is None
    module.__version__ = "4.2"
    assert installed("fakefw") == "4.2"


@pytest.mark.parametrize("columns", [200, 50])
def test_a_terminal_gets_the_same_words_with_none_broken(registry_of_each_state, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    facts = collected(registry_of_each_state)
    plain, wrapped = (written(facts, stream, verbose=True) for stream in (io.StringIO(), Terminal()))
    assert plain.split() == wrapped.split()
    assert max(map(len, wrapped.splitlines())) <= columns
    assert (len(wrapped.splitlines()) > len(plain.splitlines())) == (columns == 50)


def test_a_blocked_name_of_no_plugin_is_reported(registry_of_each_state, monkeypatch):
    monkeypatch.setenv("ADPROTOCOL_BLOCK", "nowhere_to_be_found, troch")
    text = written(collected(registry_of_each_state), io.StringIO())
    assert "ADPROTOCOL_BLOCK names 'troch', and no plugin has that name\n" in text
    assert "names 'nowhere" not in text


def test_no_plugins_at_all(registry):
    assert "no plugins" in written(collected(registry), io.StringIO())


def test_a_plain_table_is_aligned():
    assert terminal.aligned([["a", "long"], ["x", "1"], ["yyy", "222"]]) == ["a   long", "x      1", "yyy  222"]
