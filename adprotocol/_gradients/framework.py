"""The backend of a gradient: the one AD framework among the arguments of a call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch import registry as plugins
from adprotocol._dispatch.table import binding_of, of_plugin, sole_framework
from adprotocol._dynamo import run_while_tracing
from adprotocol._gradients.structure import labelled
from adprotocol._hooks import within_gradient as query
from adprotocol._trees import traversal as tree
from adprotocol.errors import BackendError, MixedFrameworksError, PluginError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol._dispatch.binding import Binding

# Differentiates functions of NumPy arrays and Python numbers.
DEFAULT = "autograd"


def find(found: Binding, others: Iterable[Any], fun: Callable[..., Any], wanted: str | None) -> Binding:
    """Return the binding of the framework that differentiates.

    `found` is that of the differentiated arguments, `others` are the rest. If
    all are NumPy's and Python's, what `fun` is bound to is asked, then `wanted`.
    """
    found = _among(found, others)
    if found.framework is None:
        found = _among(found, _bound(fun))
    name = found.framework
    if wanted is not None:
        name = _known(wanted)
        if found.framework not in (None, name):
            msg = (
                f"backend={wanted!r} was asked for a gradient, but the arguments hold values of {found.framework}; "
                "leave backend out, or convert the arguments"
            )
            raise MixedFrameworksError(msg)
    elif name is None:
        name = _default()
    return _differentiating(name)


def _among(found: Binding, values: Iterable[Any]) -> Binding:
    leaves = query.elements(tree.flatten(tuple(values)))
    for leaf in (*leaves, *labelled(leaves)):
        found = sole_framework(found, binding_of(type(leaf)))
    return found


def _bound(fun: Any) -> list[Any]:
    """Return what a method, a ``functools.partial`` or a callable object carries with it."""
    values: list[Any] = []
    while isinstance(fun, functools.partial):
        values.extend((*fun.args, *fun.keywords.values()))
        fun = fun.func
    values.extend((fun, getattr(fun, "__self__", None)))
    return [value for value in values if binding_of(type(value)).key != "opaque"]


def _differentiating(name: str) -> Binding:
    binding = of_plugin(name)
    if binding.value_and_grad is None:
        msg = (
            f"the plugin {name!r} has no hook value_and_grad, so it cannot differentiate; upgrade the plugin, or "
            "differentiate with its framework's own functions"
        )
        raise PluginError(msg)
    return binding


@run_while_tracing
def _default() -> str:
    """Return the name of the plugin that differentiates functions of NumPy arrays."""
    try:
        return _activated(DEFAULT)
    except BackendError as error:
        others = ", ".join(repr(plugin.name) for plugin in plugins.REGISTRY.active()) or "none"
        msg = (
            "the arguments hold no array of an AD framework, only NumPy arrays and Python numbers, and autograd is "
            f"not there to differentiate them (active plugins: {others}); install adprotocol[autograd], or name "
            "a framework with backend="
        )
        raise BackendError(msg) from error


@run_while_tracing
def _known(name: Any) -> str:
    """Return the name of an active plugin; its framework is imported if need be, for it was asked for."""
    if not isinstance(name, str):
        msg = f"backend is {name!r:.60}, a {type(name).__qualname__}; it is the name of a framework, such as 'jax'"
        raise BackendError(msg)
    return _activated(name)


def _activated(name: str) -> str:
    plugin = plugins.REGISTRY.known().get(name)
    if plugin is None:
        known = ", ".join(map(repr, plugins.REGISTRY.known())) or "none"
        msg = f"backend={name!r} has no plugin; there are {known}. Install one, or correct the name"
        raise BackendError(msg)
    if plugin.state in plugins.WAITING:
        import importlib  # noqa: PLC0415

        try:
            importlib.import_module(plugin.framework)
        except ImportError as error:
            msg = f"backend={name!r} cannot be imported ({error}); install it: pip install 'adprotocol[{name}]'"
            raise BackendError(msg) from error
        plugins.wake_plugins()
    if plugin.state != plugins.ACTIVE:
        reason = plugin.reason or f"take it out of {plugins.BLOCK_VARIABLE}"
        msg = f"backend={name!r} has a plugin that is {plugin.state}: {reason}. Run `python -m adprotocol doctor`"
        raise BackendError(msg)
    return plugin.name
