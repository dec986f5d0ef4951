"""The registry of plugins: found by entry points, loaded when their framework is imported, checked by pluggy.

A plugin starts as *not imported* (its framework is installed, but not imported),
*not installed*, or *blocked* by ``ADPROTOCOL_BLOCK``. At the first value seen after
the framework's root module appears in ``sys.modules`` it becomes *active*, or
*failed*, with the reason. Each plugin is checked in a pluggy manager of its own
before it joins the common one, so a broken one cannot disturb the others
(``PluginManager.load_setuptools_entrypoints`` stops at the first that raises).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING

from adprotocol._dispatch import release, validation
from adprotocol._dispatch.arrival import when_imported
from adprotocol._dispatch.binding import of_framework
from adprotocol._dispatch.plugin import (
    ACTIVE,
    BLOCKED,
    FAILED,
    LOADING,
    NOT_IMPORTED,
    NOT_INSTALLED,
    UNSETTLED,
    WAITING,
    Plugin,
)  # fmt: skip
from adprotocol.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pluggy

__all__ = [
    "ACTIVE", "BLOCKED", "BLOCK_VARIABLE", "FAILED", "GROUP", "LOADING", "LOCK", "NOT_IMPORTED", "NOT_INSTALLED",
    "NUMPY_GROUP", "REGISTRY", "UNSETTLED", "WAITING", "Plugin", "Registry", "blocked_names", "root", "wake_plugins",
]  # fmt: skip

GROUP = "adprotocol"
# Names the plugins that differentiate functions of NumPy arrays and Python numbers, known before they are loaded.
NUMPY_GROUP = "adprotocol.numpy"
BLOCK_VARIABLE = "ADPROTOCOL_BLOCK"

LOCK = threading.RLock()
# A process is forked only between changes: the child of a change under way would wait for its lock for ever.
if hasattr(os, "register_at_fork"):

    def _release() -> None:
        # Not held where the fork began before this module was imported, in another thread.
        with contextlib.suppress(RuntimeError):
            LOCK.release()

    os.register_at_fork(before=LOCK.acquire, after_in_parent=_release, after_in_child=_release)


class Registry:
    """Hold every known plugin, and the pluggy manager that the active ones joined."""

    def __init__(self) -> None:
        # Replaced, never changed, for other threads may be going through it.
        self.plugins: dict[str, Plugin] | None = None
        self.watchers: list[Callable[[], None]] = []
        # Called with each plugin before it becomes active; what they raise makes it fail.
        self.greeters: list[Callable[[Plugin], None]] = []
        self._manager: pluggy.PluginManager | None = None

    def known(self) -> dict[str, Plugin]:
        """Return the plugins by name, reading the entry points on the first call."""
        if self.plugins is None:
            with LOCK:
                if self.plugins is None:
                    self.plugins = _discover()
        return self.plugins

    @property
    def manager(self) -> pluggy.PluginManager:
        """Return the pluggy manager that holds the active plugins."""
        if self._manager is None:
            self._manager = validation.new_manager()
        return self._manager

    def refresh(self, arrived: str = "") -> None:
        """Load each plugin whose framework has been imported since the last call, or wait until it is loaded.

        `arrived` names a module, a framework or a plugin, whose import is about to end.
        """
        for plugin in self.known().values():
            # Waits for the thread that loads it; within its own import, this goes on.
            if plugin.state in UNSETTLED and _imported(plugin.framework, arrived):
                if arrived == plugin.framework and _is_half_imported(plugin):
                    continue  # it imports its framework; its own end is awaited too
                with LOCK:
                    if plugin.state in WAITING:
                        plugin.state = LOADING
                        try:
                            self._load(plugin)
                        finally:  # interrupted: try again next time
                            if plugin.state == LOADING:
                                plugin.state = NOT_IMPORTED
                        self._changed()

    def _load(self, plugin: Plugin) -> None:
        entry_point = plugin.entry_point
        if entry_point is None:
            return
        refused = release.refusal(plugin)
        if refused is not None:
            plugin.state, plugin.error = FAILED, refused
            return
        try:
            implementation = entry_point.load()
        # Any exception of the import marks this plugin alone as failed: it is kept,
        # shown by `info` and `doctor`, and raised for the framework's values.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            plugin.state, plugin.error = FAILED, release.failure(plugin, error)
            return
        self._activate(plugin, implementation)

    def _activate(self, plugin: Plugin, implementation: object) -> None:
        try:
            hooks, priority = validation.checked_hooks(implementation, plugin.name)
            plugin.types = validation.checked_types(hooks["array_types"](), plugin.name)
            if "view_types" in hooks and "view" in hooks:
                plugin.viewed = validation.checked_types(hooks["view_types"](), plugin.name, "view_types")
            plugin.hooks, plugin.priority = hooks, priority
            plugin.bindings = of_framework(plugin.name, hooks)
            for greet in self.greeters:
                greet(plugin)
            self.manager.register(implementation, plugin.name)
        # As above; a hook that raises when it lists its types counts too.
        except Exception as error:  # noqa: BLE001
            plugin.state, plugin.error = FAILED, release.failure(plugin, error)
        else:
            plugin.state = ACTIVE

    def await_frameworks(self) -> None:
        """Load each plugin at the end of the import of its framework, instead of at the first value seen after it."""
        for plugin in tuple(self.known().values()):
            if plugin.state not in WAITING or plugin.entry_point is None:
                continue
            if plugin.framework in sys.modules and not _imported(plugin.framework):
                # Another thread imports it, and its end can no longer be announced: wait for it.
                with contextlib.suppress(ImportError):
                    importlib.import_module(plugin.framework)
            when_imported(plugin.framework, self.refresh)
            when_imported(plugin.entry_point.module, self.refresh)
        self.refresh()

    def register(self, implementation: object, framework: str) -> Plugin:
        """Add a plugin by hand; raises `PluginError` if pluggy refuses it or a required hook is missing."""
        with LOCK:
            name = _free_name(self.known(), framework)
            plugin = Plugin(name, framework)
            self._activate(plugin, implementation)
            if plugin.error is not None:
                msg = f"adprotocol cannot register the plugin {implementation!r}: {plugin.reason}"
                raise PluginError(msg) from plugin.error
            self.plugins = {**self.known(), name: plugin}
            self._changed()
            return plugin

    def unregister(self, name: str) -> None:
        """Remove a plugin that was added by hand."""
        with LOCK:
            plugin = self.known().get(name)
            if plugin is None:
                msg = f"no plugin {name!r} is registered; registered plugins: {', '.join(self.known()) or 'none'}"
                raise PluginError(msg)
            if plugin.entry_point is not None:
                msg = f"{name!r} is installed; block it with {BLOCK_VARIABLE}={plugin.framework} instead"
                raise PluginError(msg)
            self.plugins = {other: record for other, record in self.known().items() if other != name}
            self.manager.unregister(name=name)
            self._changed()

    def _changed(self) -> None:
        for watcher in self.watchers:
            watcher()

    def active(self) -> list[Plugin]:
        """Return the active plugins in the order of their priority."""
        plugins = [plugin for plugin in self.known().values() if plugin.state == ACTIVE]
        return sorted(plugins, key=lambda plugin: (plugin.priority, plugin.name))

    def claimants(self, cls: type) -> list[Plugin]:
        """Return the active plugins that claim `cls`; the first one serves it.

        The nearest claimed base class decides, then `tryfirst` and `trylast`,
        then whether the plugin is named after the root module of the class, then
        the alphabet.
        """
        roots = _roots(cls)
        ranked = []
        for plugin in self.active():
            if plugin.types and issubclass(cls, plugin.types):
                bases = [i for i, base in enumerate(cls.__mro__) if base in plugin.types]
                nearest = min(bases, default=len(cls.__mro__))
                ranked.append(((nearest, plugin.priority, plugin.framework not in roots, plugin.name), plugin))
        return [plugin for _, plugin in sorted(ranked, key=lambda pair: pair[0])]

    def unusable(self, cls: type) -> Plugin | None:
        """Return the failed or blocked plugin whose framework defines `cls`, if there is one."""
        roots = _roots(cls)
        for plugin in self.known().values():
            if plugin.framework in roots and plugin.state in (FAILED, BLOCKED):
                return plugin
        return None

    def conflicts(self) -> list[tuple[str, str, list[str]]]:
        """List each type that several plugins claim: its name, the plugin that serves it, and the others."""
        found = []
        for cls in dict.fromkeys(cls for plugin in self.active() for cls in plugin.types):
            # A plugin for a subclass of another's type is not a conflict: the nearest base decides.
            names = [plugin.name for plugin in self.claimants(cls) if cls in plugin.types]
            if len(names) > 1:
                found.append((f"{cls.__module__}.{cls.__qualname__}", names[0], names[1:]))
        return found


def blocked_names() -> list[str]:
    """Return the names in the environment variable that blocks plugins."""
    return [name.strip() for name in os.environ.get(BLOCK_VARIABLE, "").split(",") if name.strip()]


def _discover() -> dict[str, Plugin]:
    from importlib.metadata import entry_points  # noqa: PLC0415  (30 ms; not at import)

    blocked = blocked_names()
    plugins: dict[str, Plugin] = {}
    found = {(point.name, point.value): point for point in entry_points(group=GROUP)}
    for_numpy = {(point.name, point.value) for point in entry_points(group=NUMPY_GROUP)}
    for (framework, value), point in sorted(found.items()):
        plugin = Plugin(_free_name(plugins, framework), framework, point)
        plugin.differentiates_numpy = (framework, value) in for_numpy
        if framework in blocked:
            plugin.state = BLOCKED
        elif framework not in sys.modules and not _installed(framework):
            plugin.state = NOT_INSTALLED
        plugins[plugin.name] = plugin
    return plugins


def _free_name(plugins: dict[str, Plugin], framework: str) -> str:
    name, count = framework, 1
    while name in plugins:
        count += 1
        name = f"{framework}#{count}"
    return name


def _installed(framework: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415

    try:
        return find_spec(framework) is not None
    except (ImportError, ValueError):
        return False


def _imported(name: str, arrived: str = "") -> bool:
    module = sys.modules.get(name)
    # While its import runs, the plugin would see a half-imported framework.
    return module is not None and (
        name == arrived or not getattr(getattr(module, "__spec__", None), "_initializing", False)
    )


def _is_half_imported(plugin: Plugin) -> bool:
    name = "" if plugin.entry_point is None else plugin.entry_point.module
    return name in sys.modules and not _imported(name)


def root(cls: type) -> str:
    """Return the name of the root module of a class."""
    return str(cls.__module__).partition(".")[0]


def _roots(cls: type) -> set[str]:
    return set(map(root, cls.__mro__))


REGISTRY = Registry()


def wake_plugins() -> None:
    """Load the plugins whose frameworks have been imported."""
    REGISTRY.refresh()
