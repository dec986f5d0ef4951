"""The one AD framework among the arguments of a call, which computes the gradient."""

from __future__ import annotations

import types

from adprotocol._dispatch import registry
from adprotocol._dispatch.table import plugin_binding
from adprotocol._trees.held import held
from adprotocol._trees.traversal import sole_framework
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import BackendError, MixedFrameworksError, PluginError
from adprotocol.messages import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from adprotocol._dispatch.binding import Binding


def of_values(sole: Binding, others: Collection[Any], fun: Callable[..., Any]) -> Binding:
    """Return the binding of the one framework among the values of a call.

    `sole` is the binding of the differentiated arguments, `others` are the other
    arguments. If all leaves are NumPy arrays and Python numbers, what is bound to
    `fun` decides: the object of a method, the arguments of a ``functools.partial``.
    """
    sole = sole_framework(others, sole)
    if sole.framework is None and type(fun) is not types.FunctionType:
        # A partial may be of a method.
        sole = sole_framework([*held(fun), *held(getattr(fun, "func", None))], sole)
    return sole


def find(sole: Binding, backend: str | None) -> Binding:
    """Return the binding of the framework that differentiates: that of the values, or `backend`, or the default."""
    name = sole.framework
    if backend is not None:
        name = named(backend)
        if sole.framework not in (None, name):
            raise MixedFrameworksError(
                f"backend={backend!r} was given with values of {sole.framework}; omit it, or convert the arguments"
            )
    elif name is None:
        name = default()
    binding = plugin_binding(name)
    if binding.vjp is None and binding.jvp is None:
        msg = f"the plugin {name!r} has neither the hook vjp nor jvp, so it cannot differentiate; upgrade the plugin"
        raise PluginError(msg)
    return binding


# What `default` found, until plugins change: 2 µs.
_DEFAULT: dict[None, str] = {}
registry.REGISTRY.on_change.append(_DEFAULT.clear)


def default() -> str:
    """Return the name of the plugin that differentiates functions of NumPy arrays and Python numbers.

    Plugins that declare this in their metadata are imported first, so that the
    answer does not depend on what else the program has imported.
    """
    if None in _DEFAULT:
        return _DEFAULT[None]
    ready, reasons = [], []
    for plugin in registry.REGISTRY.known().values():
        if plugin.differentiates_numpy:
            try:
                named(plugin.name, plugin.name)
                ready.append(plugin)
            except BackendError as error:
                reasons.append(error)
    if not ready:
        names = ", ".join(repr(plugin.name) for plugin in registry.REGISTRY.active()) or "none"
        none = registry.NONE_FOUND if not registry.REGISTRY.known() else "install a plugin that does"
        remedy = "; ".join(map(str, reasons)) or none
        raise BackendError(
            "the arguments hold only NumPy arrays and Python numbers, and no active plugin differentiates these "
            f"(active plugins: {names}): {remedy}, or name a framework with backend="
        ) from (reasons[0] if reasons else None)
    _DEFAULT[None] = name = min(ready, key=lambda plugin: (plugin.priority, plugin.name)).name
    return name


def named(name: Any, asked: str = "") -> str:
    """Return the name of an active plugin, importing its framework if necessary; errors say how it was `asked` for."""
    asked = asked or f"backend={name!r:.60}"
    known = registry.REGISTRY.known()
    plugin = known.get(name) if isinstance(name, str) else None
    if plugin is None:
        raise BackendError(
            f"{asked} names no plugin; known plugins: {', '.join(map(repr, known)) or 'none'} (nearest: "
            f"{nearest(str(name), known)}). Correct the name, or install the distribution that has this plugin"
        )
    if plugin.state in registry.UNSETTLED:
        import importlib  # noqa: PLC0415

        try:
            importlib.import_module(plugin.framework)
        except ImportError as error:
            remedy = f"python -m pip install '{plugin.installation}'"
            raise BackendError(f"{asked} cannot be imported ({error}); install it: {remedy}") from error
        registry.load_plugins()
    if plugin.state != registry.ACTIVE:
        reason = plugin.reason or f"remove it from {registry.BLOCK_VARIABLE}"
        raise BackendError(f"the plugin for {asked} is {plugin.state}: {reason}. Run `python -m adprotocol doctor`")
    return plugin.name
