"""The backend of a run: the harness of a plugin, found by name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import manifest, plugins, report
from adprotocol.conformance.harness import Harness

if TYPE_CHECKING:
    from adprotocol.plugins import Plugin

# The one backend that is no plugin: what the core itself answers for.
NUMPY = "numpy"


class UsageError(adprotocol.ADProtocolError, ValueError):
    """The suite was asked for a backend, harness or device that is not there."""


class BrokenBackend(adprotocol.ADProtocolError, RuntimeError):  # noqa: N818
    """The plugin, its framework or its hook `harness` fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Hold a harness, the manifest that goes with it, and the versions of both.

    `expression` is Python that makes the harness again, for repros.
    """

    name: str
    harness: Harness
    expression: str
    divergences: Callable[[], Sequence[Any]] = tuple
    # Of the optional hooks those that the plugin has.
    hooks: frozenset[str] = frozenset()
    plugin: str | None = None
    plugin_version: str | None = None
    framework_version: str | None = None


def names() -> list[str]:
    """Return what a backend may be called here."""
    return [NUMPY, *sorted(plugins.REGISTRY.known())]


def find(name: str, device: str | None = None) -> Backend:
    """Return the backend of that name, its framework imported, on a device.

    Raises `UsageError` if there is no plugin of the name, or it has no harness or
    no such device, and `BrokenBackend` if the plugin or its hook fails.
    """
    if name == NUMPY:
        from adprotocol.conformance.numpy_harness import NumpyHarness  # noqa: PLC0415  (imports NumPy)

        return around(NumpyHarness(device), expression=_expression(name, device))
    plugin = _activated(name)
    hook = plugin.hooks.get("harness")
    if hook is None:
        msg = (
            f"the plugin {name!r} has no hook harness, so the suite does not know how to use {plugin.framework}; "
            "upgrade the plugin, or name a harness with --harness MODULE:CLASS"
        )
        raise UsageError(msg)
    try:
        harness = hook(device)
    except Exception as error:
        msg = f"the hook harness of the plugin {name!r} raises {report.one_line(error)}"
        raise BrokenBackend(msg) from error
    return around(harness, name=name, expression=_expression(name, device))


def load(path: str, device: str | None = None) -> Backend:
    """Return the backend of a harness given as "module:class"; raises `UsageError` if there is none."""
    module, _, attribute = path.partition(":")
    # As `python -m`: a module in the current directory is found.
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        made = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"--harness {path!r} names nothing: {error}; it is MODULE:CLASS"
        raise UsageError(msg) from error
    if isinstance(made, type):
        made = made(device)
    return around(made, expression=f"harness_of({path!r})" if device is None else f"harness_of({path!r}, {device!r})")


def around(harness: Any, *, name: str = "", expression: str = "") -> Backend:
    """Return the backend of a harness; the plugin of its name serves its arrays.

    Raises `UsageError` for what is no harness, or if there is no plugin of its name.
    """
    if isinstance(harness, type):
        harness = harness()
    if not isinstance(harness, Harness):
        msg = f"{harness!r:.80} is a {type(harness).__name__}; a harness derives from adprotocol.conformance.Harness"
        raise UsageError(msg)
    name = name or harness.name
    if not harness.name:
        harness.name = name
    if not isinstance(name, str) or not name:
        msg = f"{type(harness).__qualname__} has no name; set the attribute name to that of its plugin"
        raise UsageError(msg)
    _check_device(harness)
    cls = type(harness)
    expression = expression or f"harness_of('{cls.__module__}:{cls.__qualname__}')"
    if name == NUMPY:
        return Backend(
            name=name,
            harness=harness,
            expression=expression,
            framework_version=metadata.version(NUMPY),
            plugin="adprotocol",
            plugin_version=adprotocol.__version__,
        )
    plugin = _activated(name)
    distribution = plugin.entry_point.dist if plugin.entry_point is not None else None
    return Backend(
        name=name,
        harness=harness,
        expression=expression,
        divergences=functools.partial(manifest.declared, plugin),
        hooks=frozenset(plugin.hooks),
        plugin=distribution.name if distribution is not None else None,
        plugin_version=distribution.version if distribution is not None else None,
        framework_version=report.framework_version(plugin.framework, metadata.packages_distributions()),
    )


def _expression(name: str, device: str | None) -> str:
    return f"harness_of({name!r})" if device is None else f"harness_of({name!r}, {device!r})"


def _check_device(harness: Harness) -> None:
    if harness.device is None:
        return
    if not type(harness).defines("devices"):
        msg = f"{harness.name} has no devices to choose from, and {harness.device!r} was asked for; leave --device out"
        raise UsageError(msg)
    there = tuple(harness.devices())
    if harness.device not in there:
        msg = f"{harness.name} has no device {harness.device!r} here; there are {', '.join(there)}"
        raise UsageError(msg)


def _activated(name: str) -> Plugin:
    plugin = plugins.REGISTRY.known().get(name)
    if plugin is None:
        msg = f"no backend {name!r}; there are {', '.join(names())}. Install its plugin, or correct the name"
        raise UsageError(msg)
    if plugin.state in plugins.WAITING:
        try:
            # What a framework prints while it is imported must not end up in a report.
            with contextlib.redirect_stdout(sys.stderr):
                importlib.import_module(plugin.framework)
        except ImportError as error:
            msg = f"backend {name!r}: {plugin.framework} cannot be imported ({error}); install it"
            raise UsageError(msg) from error
        plugins.wake_plugins()
    if plugin.state == plugins.BLOCKED:
        msg = f"backend {name!r} is blocked; take it out of the environment variable {plugins.BLOCK_VARIABLE}"
        raise UsageError(msg)
    if plugin.state != plugins.ACTIVE:
        msg = f"the plugin {name!r} is {plugin.state}: {plugin.reason}. Run `python -m adprotocol doctor`"
        raise BrokenBackend(msg)
    return plugin
