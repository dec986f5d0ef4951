"""The backend of a run: the harness of a plugin, found by name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import operator
import os
import sys
from dataclasses import dataclass, field
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol._dispatch import registry
from adprotocol._dispatch.release import installed
from adprotocol.conformance.harness import Harness
from adprotocol.errors import PluginError
from adprotocol.messages import kind_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from adprotocol._dispatch.registry import Plugin

# The one backend that is not a plugin: what the core itself answers for.
NUMPY = "numpy"
_CLASS = "adprotocol.conformance.Harness"


class UsageError(adprotocol.ADProtocolError, ValueError):
    """The suite was asked for a backend, harness, device or selection that does not exist."""


class BrokenBackend(PluginError):  # noqa: N818
    """The plugin, its framework or the making of its harness fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Hold a harness, the divergences declared for it, and the versions of both.

    `expression` is Python that makes the harness again, for repros.
    """

    name: str
    harness: Harness
    expression: str
    divergences: Callable[[], Sequence[Any]] = tuple
    # The hooks that the plugin has.
    hooks: frozenset[str] = frozenset()
    plugin: str | None = None
    plugin_version: str | None = None
    framework_version: str | None = None
    # The root modules of adprotocol, plugin and framework, each with its file.
    files: Mapping[str, str] = field(default_factory=dict)


def names() -> list[str]:
    """Return the names of the backends that are installed."""
    return [NUMPY, *sorted(registry.REGISTRY.known())]


def backend_of(backend: str | Harness | type[Harness], device: str | None = None) -> Backend:
    """Return the backend of a plugin's name, of a path "module:class", or of a harness."""
    need("numpy", "the conformance suite needs NumPy")  # it compares, and only a list does without
    if not isinstance(backend, str):
        return around(backend, device)
    return load(backend, device) if ":" in backend else find(backend, device)


def need(module: str, what: str) -> None:
    """Raise `UsageError` with the remedy if an optional module is not installed; `what` says what needs it."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        msg = f"{what}, which is not installed: pip install 'adprotocol[conformance]'"
        raise UsageError(msg) from error


@contextlib.contextmanager
def _broken(what: str) -> Iterator[None]:
    """Raise `BrokenBackend` in the place of an error of somebody else's code, whose output is not part of a report."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        raise BrokenBackend(f"{what} {one_line(error)}") from error


def find(name: str, device: str | None = None) -> Backend:
    """Return the backend of that name on a device, with its framework imported.

    Raises `UsageError` if there is no such plugin, or it has no harness or no such
    device, and `BrokenBackend` if the plugin or its hook fails.
    """
    if name == NUMPY:
        from adprotocol.conformance._run.numpy_harness import NumpyHarness

        return around(NumpyHarness(device), expression=expression_of(name, device))
    plugin = _activated(name)
    hook = plugin.hooks.get("harness")
    if hook is None:
        msg = (
            f"the plugin {name!r} has no hook harness, so the suite does not know how to use {plugin.framework}; "
            "upgrade the plugin, or name a harness with --harness MODULE:CLASS"
        )
        raise UsageError(msg)
    with _broken(f"the hook harness of the plugin {name!r} raises"):
        harness = hook(device)
    if not isinstance(harness, Harness):
        raise BrokenBackend(f"the hook harness of the plugin {name!r} returned {kind_of(harness)}, no {_CLASS}")
    # Scenarios name the plugin by it; it differs from the framework's name if two plugins serve one framework.
    harness.name = name
    return around(harness, expression=expression_of(name, device))


def load(path: str, device: str | None = None) -> Backend:
    """Return the backend of a harness given as "module:attribute", a class or an instance.

    Raises `BrokenBackend` if there is none, or its module or class raises.
    """
    module, _, attribute = path.partition(":")
    # As with `python -m`, a module in the current directory is found, and hides none that is installed.
    if "" not in sys.path:
        sys.path.append("")
    with _broken(f"the harness {path!r}, as MODULE:CLASS, raises"):
        made = operator.attrgetter(attribute)(importlib.import_module(module))
    return around(made, device, expression=expression_of(path, device))


def around(harness: Any, device: str | None = None, *, expression: str = "") -> Backend:
    """Return the backend of a harness, an instance or a class; the plugin of its name serves its arrays.

    Raises `UsageError` for an object that is not a harness, another device or a name
    without a plugin, and `BrokenBackend` if the harness raises.
    """
    if isinstance(harness, type) and issubclass(harness, Harness):
        with _broken(f"{harness.__qualname__} raises"):
            harness = harness() if device is None else harness(device)
    if not isinstance(harness, Harness):
        raise UsageError(f"{harness!r:.80} is {kind_of(harness)}; a harness derives from {_CLASS}")
    cls = type(harness)
    with _broken(f"{cls.__qualname__} raises"):
        name, there = harness.name, list(map(str, harness.devices())) if harness.defines("devices") else []
    if not isinstance(name, str) or not name:
        raise UsageError(f"{cls.__qualname__} has the name {name!r:.60}; set the attribute name to that of its plugin")
    if device not in (None, harness.device):
        raise UsageError(f"the device {device!r} was asked for, and the harness of {name} is on {harness.device!r}")
    if harness.device not in (None, *there):
        raise UsageError(f"{name} has no device {harness.device!r} here; there are {', '.join(there) or 'none'}")
    expression = expression or expression_of(f"{cls.__module__}:{cls.__qualname__}", harness.device)
    made = functools.partial(Backend, name=name, harness=harness, expression=expression)
    if name == NUMPY:
        made = functools.partial(made, framework_version=metadata.version(NUMPY), files=files_of("adprotocol", NUMPY))
        return made(plugin="adprotocol", plugin_version=adprotocol.__version__)
    plugin = _activated(name)
    distribution, modules = plugin.distribution, modules_of(plugin)
    return made(
        divergences=plugin.divergences,
        hooks=frozenset(plugin.hooks),
        plugin=distribution.name if distribution is not None else None,
        # What ran may be a working copy, which has no metadata but its own `__version__`.
        plugin_version=_version(modules[1]) or (distribution.version if distribution is not None else None),
        framework_version=_version(plugin.framework) or installed(plugin.framework),
        files=files_of(*modules),
    )


def modules_of(plugin: Plugin) -> list[str]:
    """Return the root modules of adprotocol, a plugin (its framework's, if registered by hand) and its framework."""
    module = plugin.entry_point.module if plugin.entry_point is not None else plugin.framework
    return ["adprotocol", module.partition(".")[0], plugin.framework]


def files_of(*modules: str) -> dict[str, str]:
    """Return the files of modules: where they were imported from, or would be."""
    specs = {name: sys.modules[name].__spec__ if name in sys.modules else find_spec(name) for name in modules}
    places = {name: [spec.origin, *(spec.submodule_search_locations or ())] for name, spec in specs.items() if spec}
    return {name: os.path.realpath(next(filter(None, found))) for name, found in places.items()}


def expected_files() -> dict[str, str]:
    """Return the files of every plugin and framework that is installed, as this process would import them."""
    plugins = registry.REGISTRY.known().values()
    return files_of(NUMPY, *{module for plugin in plugins for module in modules_of(plugin)})


def refuse_other_files(backend: Backend, expected: Mapping[str, str]) -> None:
    """Raise `BrokenBackend` if a backend is of other files than another process expects."""
    for module, file in backend.files.items():
        if expected.get(module, file) != file:
            raise BrokenBackend(
                f"the process that runs the scenarios has {module} from {file}, and the one that you started from "
                f"{expected[module]}: something that is imported on the way changes sys.path; set PYTHONPATH instead"
            )


def _version(module: str) -> str | None:
    version = getattr(sys.modules.get(module), "__version__", None)
    return str(version) if isinstance(version, str) else None  # PyTorch has a class of its own


def expression_of(name: str, device: str | None) -> str:
    """Return Python that makes the harness of a name or path on a device."""
    return f"harness_of({name!r})" if device is None else f"harness_of({name!r}, {device!r})"


def refuse_unknown(name: str) -> None:
    """Raise `UsageError` for the name of no backend."""
    if name not in names():
        raise UsageError(f"no backend {name!r}; there are {', '.join(names())}. Correct it, or install its plugin")


def _activated(name: str) -> Plugin:
    """Return the plugin of that name, with its framework imported."""
    refuse_unknown(name)
    plugin = registry.REGISTRY.known()[name]
    if plugin.state in registry.WAITING:
        with _broken(f"backend {name!r}: importing {plugin.framework} raises"):
            importlib.import_module(plugin.framework)
        registry.load_plugins()
    if plugin.state != registry.ACTIVE:
        reason = f"{plugin.state}: {plugin.reason}" if plugin.reason else plugin.state
        raise BrokenBackend(f"the plugin {name!r} is {reason}. Run `python -m adprotocol doctor`")
    return plugin
