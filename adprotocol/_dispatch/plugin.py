"""The record of one plugin: its state, how it is loaded and checked, and what its hooks yield."""

from __future__ import annotations

from collections.abc import Mapping

from adprotocol._dispatch.binding import framework_bindings
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import PluginError
from adprotocol.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from importlib.metadata import Distribution, EntryPoint

    import pluggy

    from adprotocol._dispatch.binding import Binding
    from adprotocol.divergence import Divergence
    from adprotocol.hookspecs import TreeLibrary

ACTIVE = "active"
NOT_IMPORTED = "not imported"
NOT_INSTALLED = "not installed"
FAILED = "failed"
BLOCKED = "blocked"
# Seen from within the import of the plugin itself, and by other threads meanwhile.
LOADING = "loading"
WAITING = (NOT_IMPORTED, NOT_INSTALLED)
UNSETTLED = (*WAITING, LOADING)

# The modules whose classes no plugin may claim: numbers, containers, functions and NumPy arrays.
_NOT_TO_CLAIM = ("builtins", "numpy")


class Plugin:
    """Record what is known about one plugin; its bindings are valid only while it is active."""

    def __init__(
        self, name: str, framework: str, entry_point: EntryPoint | None = None, *, differentiates_numpy: bool = False
    ) -> None:
        self.name: str = name
        self.framework: str = framework
        self.entry_point: EntryPoint | None = entry_point
        # Whether `value_and_grad` takes functions of only NumPy arrays and Python numbers.
        self.differentiates_numpy: bool = differentiates_numpy
        self.state: str = NOT_IMPORTED
        self.error: BaseException | None = None
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
        self.bindings: dict[tuple[str, type | None], Binding] = {}
        self.without_ad: frozenset[str | type] = frozenset()

    def load(self, checks: Iterable[Callable[[TreeLibrary | None], None]]) -> None:
        """Import the plugin and check it, unless its framework is too old; an exception fails this plugin only."""
        if self.entry_point is None:
            return
        from adprotocol._dispatch import release  # noqa: PLC0415  (2 ms; not at import)

        self.state = LOADING
        try:
            release.refuse_older(self.framework, self.distribution)
            self.activate(self.entry_point.load(), checks)
        # It is kept, shown by `info` and `doctor`, and raised for the framework's values.
        except (Exception, SystemExit) as error:  # noqa: BLE001
            self._fail(error)
        finally:
            if self.state == LOADING:  # interrupted: try again next time
                self.state = NOT_IMPORTED

    def activate(self, implementation: object, checks: Iterable[Callable[[TreeLibrary | None], None]]) -> None:
        """Take the hooks of an implementation if they pass and the `checks` raise nothing; else fail, unchanged."""
        try:
            offered = _offered(implementation, self.name)
            for check in checks:
                check(offered["tree_library"])
        # As above; a hook that raises when it lists its types counts too.
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        else:
            vars(self).update(offered, state=ACTIVE)

    def _fail(self, error: BaseException) -> None:
        self.state, self.error = FAILED, error

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

    def divergences(self) -> tuple[Divergence, ...]:
        """Return the declared divergences: none, if the plugin has no such hook; `PluginError` if that raises."""
        by_name = _returned(self.name, self.hooks, "divergences", lambda given: {entry.name: entry for entry in given})
        return tuple((by_name or {}).values())


def _offered(implementation: object, name: str) -> dict[str, Any]:
    """Return the attributes of the plugin `name` that its hooks give, each checked."""
    hooks, priority = checked_hooks(implementation, name)
    types = _classes(name, hooks, "array_types")
    return {
        "hooks": hooks,
        "priority": priority,
        "types": tuple(types),
        "constants": frozenset(cls for cls, can_be_tracked in types.items() if not can_be_tracked),
        "functions": frozenset(_classes(name, hooks, "function_types")),
        "without_ad": _returned(name, hooks, "without_ad", frozenset) or frozenset(),
        "label_methods": _returned(name, hooks, "label_protocol", dict) or {},
        "tree_library": _returned(name, hooks, "tree_library", lambda library: library.node and library),
        "bindings": framework_bindings(name, hooks, _classes(name, hooks, "views")),
    }


def _returned(name: str, hooks: Mapping[str, Any], hook: str, convert: Callable[[Any], Any]) -> Any:
    """Return what a hook without arguments returns, converted; None if the plugin has no such hook."""
    if hook not in hooks:
        return None
    try:
        return convert(hooks[hook]())
    # Any exception is the plugin's fault.
    except Exception as error:
        raise PluginError(f"plugin {name!r}: the hook {hook} raises {one_line(error, None)}") from error


def _classes(name: str, hooks: Mapping[str, Any], hook: str) -> dict[type, Any]:
    """Return what a hook says of each class that it lists (True in a sequence), if a plugin may claim these."""
    listed: dict[type, Any] = _returned(name, hooks, hook, _by_class) or {}
    for cls in listed:
        if not isinstance(cls, type) or cls.__module__ in _NOT_TO_CLAIM:
            raise PluginError(
                f"plugin {name!r}: {hook} returned {cls!r:.60}, which is not a class that a framework owns; "
                "return the framework's own classes"
            )
    return listed


def _by_class(listed: Any) -> dict[type, Any]:
    return dict(listed) if isinstance(listed, Mapping) else dict.fromkeys(listed, True)


def checked_hooks(implementation: object, name: str) -> tuple[dict[str, Callable[..., Any]], int]:
    """Let pluggy check one plugin apart from the others; return its functions and priority."""
    import pluggy as _pluggy  # noqa: PLC0415  (25 ms; not at import)

    from adprotocol import hookspecs  # noqa: PLC0415  (imports pluggy)

    manager = _pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(implementation, name)
    if hasattr(getattr(implementation, "value_and_grad", None), f"{hookspecs.PROJECT}_impl"):
        raise PluginError(
            f"plugin {name!r}: unknown hook 'value_and_grad'; its successor is vjp(fun, leaves, once), which returns a "
            "function in place of gradients, as adprotocol.hookspecs documents"
        )
    manager.check_pending()
    hooks: dict[str, Callable[..., Any]] = {}
    priority = 0
    for caller in manager.get_hookcallers(implementation) or ():
        for impl in caller.get_hookimpls():
            fault = _fault(impl, caller.spec)
            if fault:
                raise PluginError(f"plugin {name!r}: hook {caller.name!r} {fault}")
            hooks[caller.name] = impl.function
            priority += impl.trylast - impl.tryfirst
    missing = [hook for hook in hookspecs.REQUIRED if hook not in hooks]
    if missing and "without_ad" not in hooks:
        unmarked = ", ".join(hook for hook in missing if callable(getattr(implementation, hook, None)))
        fault = f"lacks the required hook(s) {', '.join(missing)}; adprotocol.hookspecs documents them"
        if unmarked:
            fault = f"defines {unmarked} without the decorator adprotocol.hookspecs.hookimpl; add it"
        raise PluginError(f"plugin {name!r} {fault}")
    return hooks, priority


def _fault(impl: pluggy.HookImpl, spec: Any) -> str:
    """Say what is wrong with a hook that pluggy accepts: it is called directly, by position. Empty if nothing is."""
    import inspect  # noqa: PLC0415  (pluggy has imported it)

    parameters = inspect.signature(impl.function).parameters.values()
    written = ", ".join(str(parameter.replace(annotation=parameter.empty)) for parameter in parameters)
    documented = ", ".join(spec.argnames)
    if written == documented and not (impl.wrapper or impl.hookwrapper):
        return ""
    return (
        f"takes ({written}){' and is a wrapper' * (impl.wrapper or impl.hookwrapper)}; hooks are called directly, by "
        f"position: write a plain function that takes ({documented}), as adprotocol.hookspecs documents"
    )
