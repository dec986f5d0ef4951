"""`info`: the facts about every plugin, as data, as JSON and as text.

It only collects; `doctor` judges. The JSON has a schema number, because other
programs read it; the text is for people and may change.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import platform
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import adprotocol
from adprotocol._cli import terminal
from adprotocol._dispatch import plugin as states
from adprotocol._dispatch import registry
from adprotocol._dispatch.release import installed
from adprotocol.errors import PluginError
from adprotocol.messages import one_line

if TYPE_CHECKING:
    from adprotocol._dispatch.plugin import Plugin
    from adprotocol._dispatch.registry import Registry

SCHEMA = 2

# The fields of a declared divergence that are written; its text is for the documentation.
DECLARED = ("name", "title", "remedy", "outcome", "scenarios")


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
    divergences: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Info:
    """Hold the entries, and the frameworks whose own import fails."""

    entries: list[Entry]
    # Each type that several plugins claim, with the plugin that serves it, and the others.
    conflicts: list[tuple[str, str, list[str]]]
    broken_frameworks: dict[str, Exception] = field(default_factory=dict)
    # Names in the environment variable that blocks plugins which are of no plugin.
    unknown_blocked: list[str] = field(default_factory=list)


def collect(plugins: Registry, *, import_frameworks: bool) -> Info:
    """Look at every plugin of the registry, importing the installed frameworks first if asked to.

    Without the imports nothing is loaded, so an installed framework shows as *not
    imported*.
    """
    broken: dict[str, Exception] = {}
    known = sorted(plugins.known().values(), key=lambda plugin: plugin.name)
    if import_frameworks:
        # Output that a framework prints during its import must not end up in the JSON.
        with contextlib.redirect_stdout(sys.stderr):
            for name in sorted({plugin.framework for plugin in known if plugin.state == states.NOT_IMPORTED}):
                try:
                    importlib.import_module(name)
                # Any exception is part of the report.
                except Exception as error:  # noqa: BLE001
                    broken[name] = error
            plugins.refresh()
    return Info(
        [_entry(plugin, broken.get(plugin.framework)) for plugin in known],
        plugins.conflicts(),
        broken,
        [name for name in registry.blocked_names() if name not in {plugin.framework for plugin in known}],
    )


def _entry(plugin: Plugin, broken: Exception | None) -> Entry:
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
    return Entry(
        name=plugin.name,
        framework=plugin.framework,
        framework_version=None if state == states.NOT_INSTALLED else installed(plugin.framework),
        distribution=None if plugin.distribution is None else plugin.distribution.name,
        distribution_version=None if plugin.distribution is None else plugin.distribution.version,
        state=state,
        reason=reason,
        hooks=sorted(plugin.hooks),
        divergences=divergences,
    )


def write_json(info: Info, stream: TextIO) -> None:
    """Write the report as JSON."""
    data = {
        "schema": SCHEMA,
        "adprotocol": adprotocol.__version__,
        "python": platform.python_version(),
        "plugins": [asdict(entry) for entry in info.entries],
        "conflicts": [dict(zip(("type", "served_by", "passed_over"), each, strict=True)) for each in info.conflicts],
    }
    json.dump(data, stream, indent=2)
    stream.write("\n")


def write_text(info: Info, stream: TextIO, *, verbose: bool = False) -> None:
    """Write the report for people, a line for each plugin, wrapped on a terminal; `verbose` lists the hooks."""
    lines = [f"adprotocol {adprotocol.__version__}, Python {platform.python_version()}"]
    for entry in info.entries:
        count = len(entry.divergences)
        notes = [
            entry.reason,
            f"{count} declared divergence{'s' * (count > 1)}" if count else "",
            f"hooks {', '.join(entry.hooks)}" if verbose and entry.hooks else "",
        ]
        parts = [entry.state, versioned(entry.framework, entry.framework_version), f"plugin from {distribution(entry)}"]
        lines.append(f"{entry.name}: {'; '.join(filter(None, [', '.join(parts), *notes]))}")
    if not info.entries:
        lines.append(f"no plugins. {registry.NONE_FOUND}")
    for cls, served_by, passed_over in info.conflicts:
        lines.append(f"conflict: {cls} is served by {served_by}; also claimed by {', '.join(passed_over)}")
    lines += [f"{registry.BLOCK_VARIABLE} names {name!r}, and no plugin has that name" for name in info.unknown_blocked]
    terminal.write(lines, stream, 4)


def versioned(name: str, version: str | None) -> str:
    """Return a name with its version, if that is known."""
    return name if version is None else f"{name} {version}"


def distribution(entry: Entry) -> str:
    """Return the distribution of a plugin with its version; one registered by hand has none."""
    return (
        "no distribution" if entry.distribution is None else versioned(entry.distribution, entry.distribution_version)
    )
