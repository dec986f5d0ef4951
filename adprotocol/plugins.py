"""Plugins registered by hand, for an AD system or a test that is not an installed distribution; and loaded at once.

An installed plugin is found by its entry point and needs no registration
(`adprotocol.hookspecs`).
"""

from __future__ import annotations

import adprotocol._public  # noqa: F401  (the bindings and marks)
from adprotocol._dispatch.registry import REGISTRY, Plugin, load_plugins
from adprotocol._hooks.builtins import WITHOUT_AD
from adprotocol.errors import PluginError
from adprotocol.messages import shown

__all__ = ["Plugin", "PluginError", "load", "register", "register_without_ad", "unregister"]


def load() -> None:
    """Load the plugins of the frameworks that have been imported, which the first call of the library does too.

    Call it where that first call would be in a function that a compiler traces: it would trace the loading.

    >>> import autograd
    >>> from adprotocol import plugins
    >>> plugins.load()
    """
    load_plugins()


def register(implementation: object, framework: str, *, differentiates_numpy: bool = False) -> Plugin:
    """Register a plugin by hand.

    >>> from adprotocol import plugins
    >>> try:
    ...     plugins.register(object(), "toyad")
    ... except plugins.PluginError as error:
    ...     print("lacks the required hook(s)" in str(error))
    True

    Args:
        implementation: a module, or any object, whose functions are marked with
            `adprotocol.hookspecs.hookimpl`.
        framework: the name of the root module that the plugin serves.
        differentiates_numpy: whether its hook `vjp` takes NumPy arrays and Python numbers
            alone, as leaves. An installed plugin says so by the entry-point
            group ``adprotocol.numpy``.

    Returns:
        The record of the plugin, which has its `name` and `state`.

    Raises:
        PluginError: an unknown hook, a wrong signature, a missing hook.
    """
    return REGISTRY.register(implementation, framework, differentiates_numpy=differentiates_numpy)


def unregister(name: str) -> None:
    """Remove a plugin that `register` added.

    >>> from adprotocol import plugins
    >>> try:
    ...     plugins.unregister("toyad")
    ... except plugins.PluginError as error:
    ...     print("no plugin 'toyad'" in str(error))
    True

    Args:
        name: the name of its record.

    Raises:
        PluginError: no plugin has that name, or it is an installed one.
    """
    REGISTRY.unregister(name)


def register_without_ad(library: str | type) -> None:
    """Declare that the arrays of a library, or the instances of a class, have no AD: constants, as NumPy's are.

    >>> import adprotocol
    >>> class Mask:
    ...     shape, dtype = (2,), "bool"
    ...     def __array__(self): ...
    >>> adprotocol.plugins.register_without_ad(Mask)
    >>> adprotocol.within_gradient(Mask())
    False

    Call it once, before the arrays are used: in the library that takes them, or in a
    ``conftest.py``. Known from the start are NumPy, array_api_strict, CuPy, Dask, sparse,
    pandas and the like. The maintainers of arrays declare them by the hook
    `adprotocol.hookspecs.without_ad`. A class that holds arrays of a framework is no
    such class: make it a structure with `adprotocol.register_structure`.

    Args:
        library: the name of the root package, or a class, whose subclasses are meant too.

    Raises:
        PluginError: a framework that has a plugin, or a class that a plugin claims.
    """
    claimed = library in REGISTRY.known() if isinstance(library, str) else REGISTRY.claimants(library)
    if claimed:
        msg = f"register_without_ad was given {shown(library)}, which has a plugin, so its arrays may carry derivatives"
        raise PluginError(msg)
    WITHOUT_AD.add(library)
