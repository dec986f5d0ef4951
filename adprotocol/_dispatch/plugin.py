"""The record of one plugin: its state, how it is loaded, and what its hooks yield."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dispatch import validation
from adprotocol._dispatch.binding import of_framework
from adprotocol.errors import PluginError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from importlib.metadata import Distribution, EntryPoint

    from adprotocol._dispatch.binding import Binding, Kind
    from adprotocol._dispatch.release import Range
    from adprotocol.divergence import Divergence
    from adprotocol.tree_library import TreeLibrary

ACTIVE = "active"
NOT_IMPORTED = "not imported"
NOT_INSTALLED = "not installed"
FAILED = "failed"
BLOCKED = "blocked"
# Seen from within the import of the plugin itself, and by other threads meanwhile.
LOADING = "loading"
WAITING = (NOT_IMPORTED, NOT_INSTALLED)
UNSETTLED = (*WAITING, LOADING)


class Plugin:
    """Record what is known about one plugin; what its hooks yield is of use while it is active."""

    def __init__(
        self, name: str, framework: str, entry_point: EntryPoint | None = None, *, differentiates_numpy: bool = False
    ) -> None:
        self.name: str = name
        self.framework: str = framework
        self.entry_point: EntryPoint | None = entry_point
        # Whether `value_and_grad` takes functions of NumPy arrays and Python numbers alone.
        self.differentiates_numpy: bool = differentiates_numpy
        self.state: str = NOT_IMPORTED
        self.error: BaseException | None = None
        # What the plugin's author does about the error, if the checks know.
        self.remedy: str = ""
        self.implementation: object = None
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.priority: int = 0
        self.types: tuple[type, ...] = ()
        # Those of the types whose own instances never carry a derivative.
        self.constants: frozenset[type] = frozenset()
        # Those that wrap a function.
        self.functions: frozenset[type] = frozenset()
        self.tree_library: TreeLibrary | None = None
        # The methods by which the framework's functions accept a label.
        self.label_methods: Mapping[str, Any] = {}
        # By kind, and for a kind with a view by the viewed type.
        self.bindings: dict[tuple[Kind, type | None], Binding] = {}

    def load(self, checks: Iterable[Callable[[Plugin], None]]) -> None:
        """Import the plugin and check it, unless its framework is too old; any exception makes it fail, alone."""
        if self.entry_point is None:
            return
        self.state = LOADING
        try:
            releases = self.releases()
            if releases is not None:
                releases.refuse_older()
            self.activate(self.entry_point.load(), checks)
        # It is kept, shown by `info` and `doctor`, and raised for the framework's values.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            self._fail(error)
        finally:
            if self.state == LOADING:  # interrupted: try again next time
                self.state = NOT_IMPORTED

    def activate(self, implementation: object, checks: Iterable[Callable[[Plugin], None]]) -> None:
        """Take the hooks of an implementation if they pass, and the further `checks` raise nothing; else fail."""
        try:
            hooks, self.priority = validation.checked_hooks(implementation, self.name)
            types = validation.checked_types(hooks["array_types"](), self.name)
            self.types = tuple(types)
            self.constants = frozenset(cls for cls, can_be_tracked in types.items() if not can_be_tracked)
            views = validation.checked_views(hooks["views"](), self.name) if "views" in hooks else {}
            if "function_types" in hooks:
                listed = hooks["function_types"]()
                self.functions = frozenset(validation.checked_types(listed, self.name, "function_types"))
            if "tree_library" in hooks:
                self.tree_library = validation.checked_tree_library(hooks["tree_library"](), self.name)
            if "label_protocol" in hooks:
                self.label_methods = validation.checked_labels(hooks["label_protocol"](), self.name)
            self.implementation, self.hooks = implementation, hooks
            self.bindings = of_framework(self.name, hooks, views)
            for check in checks:
                check(self)
        # As above; a hook that raises when it lists its types counts too.
        except Exception as error:  # noqa: BLE001
            self._fail(error, validation.remedy_for(error))
        else:
            self.state = ACTIVE

    def _fail(self, error: BaseException, remedy: str = "") -> None:
        releases = self.releases()
        self.error = error if releases is None else releases.explained(error)
        self.state, self.remedy, self.implementation = FAILED, remedy, None

    @property
    def reason(self) -> str:
        """Say why the plugin failed, in one line; empty otherwise."""
        return "" if self.error is None else one_line(self.error, None)

    @property
    def distribution(self) -> Distribution | None:
        """Return the installed distribution that names the plugin, if one does."""
        return None if self.entry_point is None else self.entry_point.dist

    @property
    def installation(self) -> str:
        """Return the requirement that installs the framework: an extra of the plugin's distribution, if it has one."""
        distribution = self.distribution
        if distribution is not None and self.framework in (distribution.metadata.get_all("Provides-Extra") or ()):
            return f"{distribution.name}[{self.framework}]"
        return self.framework

    def releases(self) -> Range | None:
        """Return the range of supported framework versions, or None if the distribution declares none."""
        from adprotocol._dispatch import release  # noqa: PLC0415  (2 ms; not at import)

        return release.declared(self.framework, self.distribution)

    def divergences(self) -> tuple[Divergence, ...]:
        """Return the declared divergences: none, if the plugin has no such hook.

        Raises `PluginError` if the hook raises, or returns anything but divergences
        with different names.
        """
        from adprotocol.divergence import Divergence  # noqa: PLC0415  (with dataclasses 15 ms; not at import)

        if "divergences" not in self.hooks:
            return ()
        where = f"plugin {self.name!r}: the hook divergences"
        try:
            found = tuple(self.hooks["divergences"]())
        # Any exception is the plugin's fault, for the callers to report.
        except Exception as error:
            msg = f"{where} raises {one_line(error, None)}"
            raise PluginError(msg) from error
        names: set[str] = set()
        for divergence in found:
            if not isinstance(divergence, Divergence):
                msg = (
                    f"{where} returned {divergence!r:.60} among the rest; return instances of "
                    "adprotocol.extend.Divergence"
                )
                raise PluginError(msg)
            if divergence.name in names:
                msg = f"{where} returned two divergences named {divergence.name!r}; rename one"
                raise PluginError(msg)
            names.add(divergence.name)
        return found
