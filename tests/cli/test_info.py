"""The report as data and as text, on plugins made by hand."""

import dataclasses
import io
import json
import sys
from importlib import metadata
from types import ModuleType

import pytest
from minimal_plugin import Array, Minimal

import adprotocol
from adprotocol._cli import doctor
from adprotocol._cli import info as report
from adprotocol._dispatch import plugin as states
from adprotocol._dispatch.registry import Plugin, Registry


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


def written(found, stream, **options):
    report.write_text(found, stream, **options)
    return stream.getvalue()


def test_the_json_has_the_documented_keys(registry_of_each_state):
    stream = io.StringIO()
    report.write_json(collected(registry_of_each_state), stream)
    data = json.loads(stream.getvalue())
    assert list(data) == ["schema", "adprotocol", "python", "plugins", "conflicts"]
    assert data["schema"] == 1
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


def test_an_import_that_fails_is_the_reason(registry):
    registry.plugins["it"] = Plugin("it", "nowhere_to_be_found")
    found = report.collect(registry, import_frameworks=True)
    assert found.entries[0].state == states.FAILED
    assert found.entries[0].reason.startswith("import nowhere_to_be_found raises ModuleNotFoundError")
    assert list(found.broken_frameworks) == ["nowhere_to_be_found"]
    assert registry.plugins["it"].state == states.NOT_IMPORTED


def test_conflicts_are_reported(registry):
    registry.register(Minimal(), "a")
    registry.register(Minimal(), "b")
    found = collected(registry)
    assert found.conflicts == [report.Conflict(f"{Array.__module__}.Array", "a", ["b"])]
    assert f"conflict: {Array.__module__}.Array is served by a; also claimed by b\n" in written(found, io.StringIO())


def test_the_version_of_a_framework(monkeypatch):
    assert report.framework_version("pluggy", {"pluggy": ["pluggy"]}) == report.framework_version("pluggy", {})
    assert report.framework_version("yaml_of_another_name", {"yaml_of_another_name": ["pluggy"]}) is not None
    module = ModuleType("fakefw")
    monkeypatch.setitem(sys.modules, "fakefw", module)
    assert report.framework_version("fakefw", {}) is None
    module.__version__ = "4.2"
    assert report.framework_version("fakefw", {}) == "4.2"


def test_plain_text_is_aligned_and_whole(registry_of_each_state):
    lines = written(collected(registry_of_each_state), io.StringIO()).splitlines()
    column = lines[1].index("state")
    assert [line[column:].split("  ")[0] for line in lines[2:]] == [
        "blocked",
        "failed",
        "active",
        "not imported",
        "not installed",
    ]
    assert lines[3].endswith("ValueError: [bold] brackets and lines")


def test_a_wide_terminal_gets_the_same_table(registry_of_each_state, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    found = collected(registry_of_each_state)
    assert written(found, Terminal()) == written(found, io.StringIO())


def test_a_narrow_terminal_loses_nothing(registry_of_each_state, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    text = written(collected(registry_of_each_state), Terminal())
    assert "…" not in text
    assert "brackets" in text


@pytest.mark.parametrize("columns", [80, 50])
def test_a_narrow_terminal_breaks_no_word(registry_of_each_state, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    for name in ("blocked", "failed", "notimported", "notinstalled"):
        registry_of_each_state.plugins[name].framework = "elsewhere"
    found = collected(registry_of_each_state)
    found.entries[0].hooks[:] = ["any_within_gradient", "prevent_gradient", "non_differentiable", "value_and_grad"]
    found.entries[0] = dataclasses.replace(found.entries[0], reason="")
    text = written(found, Terminal(), verbose=True)
    assert max(map(len, text.splitlines())) <= columns
    words = {word for entry in found.entries for word in (*entry.hooks, *entry.state.split(), *entry.reason.split())}
    assert words <= set(text.replace(",", " ").split())
    assert ("notes" in text) == (columns == 80)


def test_a_blocked_name_of_no_plugin_is_reported(registry_of_each_state, monkeypatch):
    monkeypatch.setenv("ADPROTOCOL_BLOCK", "nowhere_to_be_found, troch")
    text = written(collected(registry_of_each_state), io.StringIO())
    assert "ADPROTOCOL_BLOCK names 'troch', and no plugin has that name\n" in text
    assert "names 'nowhere" not in text


def test_hooks_are_listed_if_asked_for(registry):
    registry.register(Minimal(), "fakefw")
    found = collected(registry)
    assert written(found, io.StringIO()).splitlines()[2].split() == ["fakefw", "fakefw", "-", "active", "-"]
    assert "array_types, cond, non_differentiable" in written(found, io.StringIO(), verbose=True)


def test_no_plugins_at_all(registry):
    assert "no plugins" in written(collected(registry), io.StringIO())


def test_the_version_of_a_framework_that_the_plugin_itself_installs_editable(monkeypatch, tmp_path):
    info = tmp_path / "site" / "fake-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fake\nVersion: 1.5\n")
    distribution = metadata.Distribution.at(info)
    module = ModuleType("fakefw")
    monkeypatch.setitem(sys.modules, "fakefw", module)

    def version(file, **origin):
        module.__file__ = str(tmp_path / file)
        (info / "direct_url.json").write_text(json.dumps(origin))
        return report.framework_version("fakefw", {}, distribution)

    editable = {"url": (tmp_path / "a b").as_uri(), "dir_info": {"editable": True}}
    for own in ("a b/fakefw.py", "a b/fakefw/__init__.py", "a b/src/fakefw/__init__.py"):
        assert version(own, **editable) == "1.5"
    for other in ("fakefw.py", "a b/.venv/lib/fakefw/__init__.py", "c/fakefw/__init__.py"):
        assert version(other, **editable) is None
    assert version("a b/fakefw.py", url=editable["url"], dir_info={}) is None
    assert version("a b/fakefw.py", url="https://example.org/a.whl", archive_info={}) is None
    (info / "direct_url.json").unlink()
    assert report.framework_version("fakefw", {}, distribution) is None
    module.__version__ = "4.2"
    assert version("a b/fakefw.py", **editable) == "4.2"


def test_a_diagnosis_is_wrapped_between_words_on_a_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    check = doctor.Check("a finding " + "that goes on " * 10, "a remedy " + "with_a_name " * 8)
    terminal, log = Terminal(), io.StringIO()
    check.write(terminal)
    check.write(log)
    rows = terminal.getvalue().splitlines()
    assert len(log.getvalue().splitlines()) == 2
    assert max(map(len, rows)) <= 50
    assert terminal.getvalue().split() == log.getvalue().split()
    assert all(row.startswith(("PROBLEM ", "         ")) for row in rows)
