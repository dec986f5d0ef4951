"""Races that `make stress` found, each at the one moment that matters."""

import threading

import pytest
from minimal_plugin import Minimal

from adprotocol import NonDifferentiable, plugins
from adprotocol._dispatch import registry as registry_module
from adprotocol._dispatch import table
from adprotocol._dispatch.registry import ACTIVE, Registry
from adprotocol._gradients import framework

PATIENCE = 600.0


class SlowEntryPoint:
    """An entry point whose module is being imported until it is let go."""

    dist = None

    def __init__(self):
        self.is_loading, self.go_on = threading.Event(), threading.Event()

    def load(self):
        self.is_loading.set()
        assert self.go_on.wait(PATIENCE)
        return Minimal()


@pytest.mark.parametrize("use", [registry_module.load_plugins, lambda: framework.named("pytest")])
def test_a_thread_waits_while_another_one_loads_the_plugin(use, monkeypatch):
    registry, point, seen = Registry(), SlowEntryPoint(), []
    monkeypatch.setattr(registry_module, "REGISTRY", registry)
    registry.plugins = {"pytest": plugins.Plugin("pytest", "pytest", point)}
    loading = threading.Thread(target=registry.refresh)
    loading.start()
    assert point.is_loading.wait(PATIENCE)

    def run():
        use()
        seen.extend(plugin.state for plugin in registry.active())

    using = threading.Thread(target=run)
    using.start()
    using.join(0.2)
    point.go_on.set()
    for thread in (loading, using):
        thread.join(PATIENCE)
    assert seen == [ACTIVE]


def test_a_plugin_that_asks_while_it_is_loaded_does_not_wait_for_itself():
    registry = Registry()

    class Asking:
        dist = None

        def load(self):
            registry.refresh()
            return Minimal()

    registry.plugins = {"pytest": plugins.Plugin("pytest", "pytest", Asking())}
    registry.refresh()
    assert [plugin.state for plugin in registry.active()] == [ACTIVE]


def test_plugins_may_change_while_they_are_listed():
    registry = Registry()

    class Listed(plugins.Plugin):
        """A record whose state is read just when another plugin is registered, as by another thread."""

        @property
        def state(self):
            name = f"{self.name} again"
            if name not in registry.known() and self.name == "first":
                registry.register(Minimal(), name)
            return ACTIVE

        @state.setter
        def state(self, value):
            pass

    registry.plugins = {}
    registry.plugins["first"] = Listed("first", "first")
    assert [plugin.name for plugin in registry.active()] == ["first"]
    assert [plugin.name for plugin in registry.active()] == ["first", "first again"]
    registry.unregister("first again")
    assert list(registry.known()) == ["first"]


def test_a_class_of_the_core_that_is_met_while_plugins_change_stays_what_it_is():
    found = []
    looking = threading.Thread(target=lambda: found.append(table.lookup(NonDifferentiable)))
    # The moment within a change of the plugins at which the table is empty.
    with registry_module.LOCK:
        table.TABLE.clear()
        looking.start()
        looking.join(0.2)
        table.TABLE.update(table.KNOWN)
    looking.join(PATIENCE)
    assert found == [table.BINDINGS.LABEL]
    assert table.lookup(NonDifferentiable) is table.BINDINGS.LABEL
