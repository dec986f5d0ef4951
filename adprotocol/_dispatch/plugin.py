"""The record of one plugin, and the states that it can be in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.errors import PluginError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

    from adprotocol._dispatch.binding import Binding
    from adprotocol.divergence import Divergence

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
    """Record what is known about one plugin; `bindings` are set while it is active."""

    __slots__ = (
        "bindings",
        "differentiates_numpy",
        "entry_point",
        "error",
        "framework",
        "hooks",
        "name",
        "priority",
        "state",
        "types",
        "viewed",
    )

    def __init__(self, name: str, framework: str, entry_point: EntryPoint | None = None) -> None:
        self.name: str = name
        self.framework: str = framework
        self.entry_point: EntryPoint | None = entry_point
        # From the metadata, before the plugin is loaded; the hook of that name decides.
        self.differentiates_numpy: bool = False
        self.state: str = NOT_IMPORTED
        self.error: BaseException | None = None
        self.hooks: dict[str, Callable[..., Any]] = {}
        self.types: tuple[type, ...] = ()
        self.viewed: tuple[type, ...] = ()
        self.bindings: tuple[Binding, ...] = ()
        self.priority: int = 0

    @property
    def reason(self) -> str:
        """Say why the plugin failed, in one line; empty otherwise."""
        return "" if self.error is None else one_line(self.error, None)

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

    @property
    def installation(self) -> str:
        """Return the requirement that installs the framework: an extra of the plugin's distribution, if it has one."""
        distribution = None if self.entry_point is None else self.entry_point.dist
        if distribution is not None and self.framework in (distribution.metadata.get_all("Provides-Extra") or ()):
            return f"{distribution.name}[{self.framework}]"
        return self.framework
