"""The registry of plugins: discovered by ``importlib.metadata``, loaded when their framework is imported, and ordered.

A plugin starts as *not imported* (its framework is installed, but not imported),
*not installed*, or *blocked* by ``ADPROTOCOL_BLOCK``. At the first value seen after
the framework's root module appears in ``sys.modules`` it becomes *active*, or
*failed*, with the reason. Each plugin is loaded and checked apart from the others, so a
broken one cannot disturb them (``PluginManager.load_setuptools_entrypoints`` stops at
the first that raises).
"""

from __future__ import annotations

import os
import sys
from _thread import RLock  # `threading` takes 0.8 ms to import

from adprotocol._dispatch.plugin import ACTIVE, BLOCKED, FAILED, NOT_INSTALLED, UNSETTLED, WAITING, Plugin
from adprotocol._dispatch.post_import import call_after_import
from adprotocol._typing import TYPE_CHECKING
from adprotocol.errors import PluginError
from adprotocol.messages import full_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol.hookspecs import TreeLibrary

__all__ = [
    "ACTIVE", "BLOCKED", "BLOCK_VARIABLE", "FAILED", "GROUP", "LOCK", "NONE_FOUND", "NOT_INSTALLED", "NUMPY_GROUP",
    "REGISTRY", "UNSETTLED", "WAITING", "Plugin", "Registry", "blocked_names", "load_plugins", "nearest_base", "root",
]  # fmt: skip

GROUP = "adprotocol"
# Names the plugins that differentiate functions of NumPy arrays and Python numbers, known before they are loaded.
NUMPY_GROUP = "adprotocol.numpy"
BLOCK_VARIABLE = "ADPROTOCOL_BLOCK"
NONE_FOUND = (
    f"No distribution has an entry point in the group {GROUP!r}, not even adprotocol: its metadata are missing. "
    "Reinstall it; in a frozen application bundle them (PyInstaller does; else copy them, and import the plugins)"
)

LOCK = RLock()


class Registry:
    """Hold every known plugin."""

    def __init__(self) -> None:
        # Replaced, never changed, for other threads may be going through it.
        self.plugins: dict[str, Plugin] | None = None
        # Called when the set of active plugins has changed.
        self.on_change: list[Callable[[], None]] = []
        # Called with the tree library of a plugin before it becomes active; what they raise makes it fail.
        self.on_activate: list[Callable[[TreeLibrary | None], None]] = []

    def known(self) -> dict[str, Plugin]:
        """Return the plugins by name, reading the entry points on the first call."""
        if self.plugins is None:
            with LOCK:
                if self.plugins is None:
                    self.plugins = _discover()
        return self.plugins

    def refresh(self, imported: str = "") -> None:
        """Load each plugin whose framework has been imported since the last call, or wait until it is loaded.

        `imported` names a module, a framework or a plugin, whose import is about to end.
        """
        for plugin in self.known().values():
            # Waits for the thread that loads it; within its own import, this goes on.
            if plugin.state not in UNSETTLED or sys.modules.get(plugin.framework) is None:
                continue
            # A plugin that imports its framework is loaded at its own end, which is announced too.
            at_end = imported == plugin.framework and plugin.entry_point is not None
            if _is_half_imported(plugin.entry_point.module if at_end else plugin.framework):  # type: ignore[union-attr]
                continue
            with LOCK:
                if plugin.state in WAITING:
                    plugin.load(self.on_activate)
                    self._changed()

    def await_frameworks(self) -> None:
        """Load each plugin at the end of the import of its framework, instead of at the first value seen after it."""
        for plugin in tuple(self.known().values()):
            if plugin.state in WAITING and plugin.entry_point is not None:
                call_after_import(plugin.framework, self.refresh)
                call_after_import(plugin.entry_point.module, self.refresh)
        self.refresh()

    def register(self, implementation: object, framework: str, *, differentiates_numpy: bool = False) -> Plugin:
        """Add a plugin by hand; raises `PluginError` if it fails one of the checks."""
        with LOCK:
            name = _free_name(self.known(), framework)
            plugin = Plugin(name, framework, differentiates_numpy=differentiates_numpy)
            plugin.activate(implementation, self.on_activate)
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
            if plugin is None or plugin.entry_point is not None:
                msg = f"no plugin {name!r} was registered by hand; {BLOCK_VARIABLE}={name} blocks an installed one"
                raise PluginError(msg)
            self.plugins = {other: record for other, record in self.known().items() if other != name}
            self._changed()

    def _changed(self) -> None:
        for call in self.on_change:
            call()

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
        roots = set(map(root, cls.__mro__))
        ranked = []
        for plugin in self.active():
            nearest = nearest_base(cls, plugin.types)
            if nearest is not None:
                ranked.append((nearest[0], plugin.priority, plugin.framework not in roots, plugin.name, plugin))
        return [plugin for *_, plugin in sorted(ranked)]

    def unusable(self, cls: type) -> Plugin | None:
        """Return the failed or blocked plugin whose framework defines `cls`, if there is one."""
        roots = set(map(root, cls.__mro__))
        unusable = [plugin for plugin in self.known().values() if plugin.state in (FAILED, BLOCKED)]
        return next((plugin for plugin in unusable if plugin.framework in roots), None)

    def conflicts(self) -> list[tuple[str, str, list[str]]]:
        """List each type that several plugins claim: its name, the plugin that serves it, and the others."""
        conflicts = []
        for cls in dict.fromkeys(cls for plugin in self.active() for cls in plugin.types):
            # A plugin for a subclass of another's type is not a conflict: the nearest base decides.
            names = [plugin.name for plugin in self.claimants(cls) if cls in plugin.types]
            if len(names) > 1:
                conflicts.append((full_name(cls), names[0], names[1:]))
        return conflicts


def blocked_names() -> list[str]:
    """Return the names in the environment variable that blocks plugins."""
    return [name.strip() for name in os.environ.get(BLOCK_VARIABLE, "").split(",") if name.strip()]


def _discover() -> dict[str, Plugin]:
    from importlib.metadata import entry_points  # noqa: PLC0415  (30 ms; not at import)

    blocked = blocked_names()
    plugins: dict[str, Plugin] = {}
    points = {(point.name, point.value): point for point in entry_points(group=GROUP)}
    for_numpy = {(point.name, point.value) for point in entry_points(group=NUMPY_GROUP)}
    for key, point in sorted(points.items()):
        framework = point.name
        plugin = Plugin(_free_name(plugins, framework), framework, point, differentiates_numpy=key in for_numpy)
        if framework in blocked:
            plugin.state = BLOCKED
        elif framework not in sys.modules and not _is_installed(framework.partition(".")[0]):
            plugin.state = NOT_INSTALLED
        plugins[plugin.name] = plugin
    return plugins


def _is_installed(name: str) -> bool:
    from importlib.util import find_spec  # noqa: PLC0415

    try:
        return find_spec(name) is not None
    except ImportError:  # of a finder that blocks the module, as in tests of what a program does without it
        return False


def _free_name(plugins: dict[str, Plugin], framework: str) -> str:
    name, count = framework, 1
    while name in plugins:
        count += 1
        name = f"{framework}#{count}"
    return name


def _is_half_imported(name: str) -> bool:
    """Return whether the import of a module is under way: who uses it now sees a part of it."""
    spec = getattr(sys.modules.get(name), "__spec__", None)
    return getattr(spec, "_initializing", False)


def nearest_base(cls: type, bases: Iterable[type]) -> tuple[int, type] | None:
    """Return the nearest base class of `cls` among some, after its distance; a virtual one is the farthest."""
    mro = cls.__mro__
    ranked = [(mro.index(base) if base in mro else len(mro), base) for base in bases if issubclass(cls, base)]
    return min(ranked, key=lambda pair: pair[0], default=None)


def root(cls: type) -> str:
    """Return the name of the root module of a class."""
    return str(cls.__module__).partition(".")[0]


REGISTRY = Registry()


def load_plugins() -> None:
    """Load the plugins whose frameworks have been imported."""
    REGISTRY.refresh()
