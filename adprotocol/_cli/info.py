"""`info`: the facts about every plugin, as data, as JSON and as a table.

It only collects; `doctor` judges. The JSON has a schema number, because other
programs read it; the table is for people and may change.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import adprotocol
from adprotocol._cli import terminal
from adprotocol._dispatch import plugin as states
from adprotocol._dispatch import registry, release
from adprotocol.errors import PluginError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adprotocol._dispatch.plugin import Plugin
    from adprotocol._dispatch.registry import Registry

SCHEMA = 1

# The fields of a declared divergence that are written; its text is for the documentation.
DECLARED = ("name", "title", "remedy", "outcome", "scenarios")

HEADINGS = ("plugin", "framework", "distribution", "state", "notes")
NARROWEST = 24  # columns for the last: the longest name of a hook and more


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold the facts about one plugin; the fields are those of the JSON."""

    name: str
    framework: str
    framework_version: str | None
    distribution: str | None
    distribution_version: str | None
    state: str
    reason: str
    hooks: list[str]
    divergences: list[dict[str, Any]] = field(default_factory=list)
    # The range of releases that the plugin's distribution declares, if it does.
    oldest: str | None = None
    newest_tried: str | None = None
    untried: bool = False


@dataclass(frozen=True, slots=True)
class Conflict:
    """Hold a type that several plugins claim: the plugin that serves it, and the others."""

    type: str
    served_by: str
    passed_over: list[str]


@dataclass(frozen=True, slots=True)
class Info:
    """Hold the entries and conflicts, and the frameworks whose own import fails."""

    entries: list[Entry]
    conflicts: list[Conflict]
    broken_frameworks: dict[str, Exception] = field(default_factory=dict)
    # Names in the environment variable that blocks plugins which are of no plugin.
    unknown_blocked: list[str] = field(default_factory=list)


def collect(found: Registry, *, import_frameworks: bool) -> Info:
    """Look at every plugin of the registry, importing the installed frameworks first if asked to.

    Without the imports nothing is loaded, so an installed framework shows as *not
    imported*.
    """
    broken: dict[str, Exception] = {}
    if import_frameworks:
        waiting = {plugin.framework for plugin in found.known().values() if plugin.state == states.NOT_IMPORTED}
        # Output that a framework prints during its import must not end up in the JSON.
        with contextlib.redirect_stdout(sys.stderr):
            broken = {name: error for name in sorted(waiting) if (error := import_error(name)) is not None}
            found.refresh()
    providers = metadata.packages_distributions()
    known = sorted(found.known().values(), key=lambda plugin: plugin.name)
    return Info(
        [_entry(plugin, broken.get(plugin.framework), providers) for plugin in known],
        [Conflict(*conflict) for conflict in found.conflicts()],
        broken,
        [name for name in registry.blocked_names() if name not in {plugin.framework for plugin in known}],
    )


def import_error(name: str) -> Exception | None:
    """Import a module; return what that raises, any exception of which is part of the report."""
    try:
        importlib.import_module(name)
    except Exception as error:  # noqa: BLE001
        return error
    return None


def _entry(plugin: Plugin, broken: Exception | None, providers: Mapping[str, list[str]]) -> Entry:
    distribution = plugin.distribution
    state, reason = plugin.state, plugin.reason
    if state == states.NOT_IMPORTED and broken is not None:
        state, reason = states.FAILED, f"import {plugin.framework} raises {one_line(broken, None)}"
    elif state == states.BLOCKED:
        reason = f"named in {registry.BLOCK_VARIABLE}"
    divergences: list[dict[str, Any]] = []
    try:
        divergences = [{name: getattr(entry, name) for name in DECLARED} for entry in plugin.divergences()]
    except PluginError as error:
        reason = str(error)
    is_there = state != states.NOT_INSTALLED
    tried = plugin.releases() if is_there else None
    return Entry(
        name=plugin.name,
        framework=plugin.framework,
        framework_version=framework_version(plugin.framework, providers, distribution) if is_there else None,
        distribution=distribution.name if distribution is not None else None,
        distribution_version=distribution.version if distribution is not None else None,
        state=state,
        reason=reason,
        hooks=sorted(plugin.hooks),
        divergences=divergences,
        oldest=tried and tried.oldest,
        newest_tried=tried and tried.newest,
        untried=tried is not None and tried.is_newer,
    )


def framework_version(
    framework: str, providers: Mapping[str, list[str]], own: metadata.Distribution | None = None
) -> str | None:
    """Return the version of the distribution that provides a module, or the version in the module itself.

    `providers` maps each top-level module to its distributions. `own` is the
    distribution of the plugin, whose version counts if the two are one project.
    """
    version = release.installed(framework, *providers.get(framework, ()), framework)
    return own.version if version is None and own is not None and _holds(own, framework) else version


def _holds(distribution: metadata.Distribution, module: str) -> bool:
    """Tell whether an editable install has a module: its metadata does not list its modules."""
    origin = json.loads(distribution.read_text("direct_url.json") or "{}")
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not origin.get("dir_info", {}).get("editable"):
        return False
    root = origin["url"].rstrip("/")
    places = {f"{root}/{source}{module}{rest}" for source in ("", "src/") for rest in (".py", "/__init__.py")}
    # The folder may have been given as a link.
    return not places.isdisjoint({Path(file).absolute().as_uri(), Path(file).resolve().as_uri()})


def write_json(info: Info, stream: TextIO) -> None:
    """Write the report as JSON."""
    data = {
        "schema": SCHEMA,
        "adprotocol": adprotocol.__version__,
        "python": platform.python_version(),
        "plugins": [asdict(entry) for entry in info.entries],
        "conflicts": [asdict(conflict) for conflict in info.conflicts],
    }
    json.dump(data, stream, indent=2)
    stream.write("\n")


def write_text(info: Info, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the report for people, fitted to a terminal, in full width to anything else; `verbose` lists the hooks."""
    stream.write(f"adprotocol {adprotocol.__version__}, Python {platform.python_version()}\n")
    rows, width = [_row(entry, verbose=verbose) for entry in info.entries], terminal.width_of(stream)
    table = terminal.aligned([HEADINGS, *rows], "  ", str.ljust)
    last = table[0].index(HEADINGS[-1])
    if not rows:
        stream.write("no plugins: no distribution has entry points in the group 'adprotocol'\n")
    elif width is not None and width < last + NARROWEST:
        _write_blocks(rows, stream, width)
    else:
        stream.writelines(f"{line}\n" for row in table for line in terminal.wrapped(row, width, last, NARROWEST))
    for conflict in info.conflicts:
        others = ", ".join(conflict.passed_over)
        stream.write(f"conflict: {conflict.type} is served by {conflict.served_by}; also claimed by {others}\n")
    stream.writelines(
        f"{registry.BLOCK_VARIABLE} names {name!r}, and no plugin has that name\n" for name in info.unknown_blocked
    )


def _row(entry: Entry, *, verbose: bool) -> tuple[str, ...]:
    hooks = ", ".join(entry.hooks) if verbose else ""
    return (
        entry.name,
        versioned(entry.framework, entry.framework_version),
        versioned(entry.distribution, entry.distribution_version),
        entry.state,
        entry.reason or "; ".join(filter(None, (untried(entry), _divergences(entry), hooks))) or "-",
    )


def untried(entry: Entry) -> str:
    """Say that a plugin was not tried with a release as new as this; empty if it was, or if it declares no range."""
    release = versioned(entry.framework, entry.framework_version)
    return f"{release} was not tried, {entry.oldest} to {entry.newest_tried} were" if entry.untried else ""


def _divergences(entry: Entry) -> str:
    count = len(entry.divergences)
    return f"{count} declared divergence{'s' * (count > 1)}" if count else ""


def versioned(name: str | None, version: str | None) -> str:
    """Return a name with its version, as far as these are known."""
    return " ".join(part for part in (name, version) if part) or "-"


def _write_blocks(rows: list[tuple[str, ...]], stream: TextIO, width: int) -> None:
    """Write each plugin as a paragraph, for a terminal that is too narrow for the table."""
    for name, framework, distribution, state, rest in rows:
        stream.write(f"\n{name}: {state}\n")
        for cell in (framework, distribution, rest):
            stream.writelines(f"{line}\n" for line in terminal.wrapped(f"  {cell}", width, 4))
