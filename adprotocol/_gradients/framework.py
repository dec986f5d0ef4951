"""The one AD framework among the arguments of a call, which computes the gradient."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch import registry
from adprotocol._dispatch.binding import OPAQUE
from adprotocol._dispatch.table import lookup, plugin_binding
from adprotocol._trees.traversal import sole_framework
from adprotocol.errors import (
    BackendError,
    MixedFrameworksError,
    PluginError,
    kind_of,
    nearest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from adprotocol._dispatch.binding import Binding


def of_values(found: Binding, others: Collection[Any], fun: Callable[..., Any]) -> Binding:
    """Return the binding of the one framework among the values of a call.

    `found` is the binding of the differentiated arguments, `others` are the other
    arguments. If all leaves are NumPy arrays and Python numbers, the values bound
    to `fun` decide.
    """
    found = sole_framework(others, found)
    if found.framework is not None or type(fun) is types.FunctionType:
        return found
    return sole_framework(_bound(fun), found)


def find(found: Binding, backend: str | None) -> Binding:
    """Return the binding of the framework that differentiates: that of the values, or `backend`, or the default."""
    name = found.framework
    if backend is not None:
        name = named(backend)
        if found.framework not in (None, name):
            msg = (
                f"backend={backend!r} was given, but the arguments hold values of {found.framework}; omit backend=, or "
                "convert the arguments"
            )
            raise MixedFrameworksError(msg)
    elif name is None:
        name = default()
    binding = plugin_binding(name)
    if binding.value_and_grad is None:
        msg = (
            f"the plugin {name!r} has no hook value_and_grad, so it cannot differentiate; upgrade the plugin, or "
            "differentiate with its framework's own functions"
        )
        raise PluginError(msg)
    return binding


def _bound(fun: Any) -> list[Any]:
    """Return the values bound to a method, a ``functools.partial`` or a callable object."""
    values: list[Any] = []
    while isinstance(fun, functools.partial):
        values.extend((*fun.args, *fun.keywords.values()))
        fun = fun.func
    if type(fun) is not types.FunctionType:  # behind a partial it may be one
        values.extend((fun, getattr(fun, "__self__", None)))
    return [value for value in values if lookup(type(value)).kind is not OPAQUE]


# What `default` found, until plugins change: 2 µs.
_DEFAULT: dict[None, str] = {}
registry.REGISTRY.on_change.append(_DEFAULT.clear)


def default() -> str:
    """Return the name of the plugin that differentiates functions of NumPy arrays and Python numbers.

    Plugins that declare this in their metadata are imported first, so that the
    answer does not depend on what else the program has imported.
    """
    name = _DEFAULT.get(None)
    if name is None:
        _DEFAULT[None] = name = _found_default()
    return name


def _found_default() -> str:
    candidates = [plugin for plugin in registry.REGISTRY.known().values() if plugin.differentiates_numpy]
    reasons: list[BackendError] = []
    for plugin in candidates:
        if plugin.state != registry.ACTIVE:
            try:
                named(plugin.name)
            except BackendError as error:
                reasons.append(error)
    ready = [plugin for plugin in candidates if plugin.state == registry.ACTIVE]
    if ready:
        return min(ready, key=lambda plugin: (plugin.priority, plugin.name)).name
    active = registry.REGISTRY.active()
    remedy = " or ".join(f"install {plugin.installation}" for plugin in candidates) or "install a plugin that does"
    failed = [plugin for plugin in candidates if plugin.state == registry.FAILED]
    if failed:  # installed already
        remedy = "; ".join(f"the plugin {plugin.name!r} failed: {plugin.reason}" for plugin in failed)
    names = ", ".join(repr(plugin.name) for plugin in active) or "none"
    msg = (
        "the arguments hold only NumPy arrays and Python numbers, and no active plugin differentiates these "
        f"(active plugins: {names}); {remedy}, or name a framework with backend="
    )
    raise BackendError(msg) from (reasons[0] if reasons else None)


def named(name: Any) -> str:
    """Return the name of an active plugin, importing its framework if necessary."""
    if not isinstance(name, str):
        msg = f"backend is {name!r:.60}, {kind_of(name)}; give the name of a framework, such as 'jax'"
        raise BackendError(msg)
    known = registry.REGISTRY.known()
    plugin = known.get(name)
    if plugin is None:
        msg = (
            f"backend={name!r} names no plugin; known plugins: {', '.join(map(repr, known)) or 'none'} (nearest: "
            f"{nearest(name, known)}). Correct the name, or install the distribution that has this plugin"
        )
        raise BackendError(msg)
    if plugin.state in registry.UNSETTLED:
        import importlib  # noqa: PLC0415

        try:
            importlib.import_module(plugin.framework)
        except ImportError as error:
            msg = (
                f"backend={name!r} cannot be imported ({error}); install it: python -m pip install "
                f"'{plugin.installation}'"
            )
            raise BackendError(msg) from error
        registry.load_plugins()
    if plugin.state != registry.ACTIVE:
        reason = plugin.reason or f"remove it from {registry.BLOCK_VARIABLE}"
        msg = f"the plugin for backend={name!r} is {plugin.state}: {reason}. Run `python -m adprotocol doctor`"
        raise BackendError(msg)
    return plugin.name
