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
import textwrap
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import adprotocol
from adprotocol._dispatch import registry, release
from adprotocol.errors import PluginError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adprotocol._dispatch.registry import Plugin, Registry

SCHEMA = 1

# The fields of a declared divergence that are written; its text is for the documentation.
DECLARED = ("name", "title", "remedy", "outcome", "scenarios")

HEADINGS = ("plugin", "framework", "distribution", "state", "hooks, or the reason")


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
    broken_frameworks: dict[str, BaseException] = field(default_factory=dict)
    # Names in the environment variable that blocks plugins which are of no plugin.
    unknown_blocked: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """Return the data that `info --json` writes."""
        return {
            "schema": SCHEMA,
            "adprotocol": adprotocol.__version__,
            "python": platform.python_version(),
            "plugins": [asdict(entry) for entry in self.entries],
            "conflicts": [asdict(conflict) for conflict in self.conflicts],
        }


def collect(found: Registry, *, import_frameworks: bool) -> Info:
    """Look at every plugin of the registry, importing the installed frameworks first if asked to.

    Without the imports nothing is loaded, so an installed framework shows as *not
    imported*.
    """
    broken: dict[str, BaseException] = {}
    if import_frameworks:
        # Output that a framework prints during its import must not end up in the JSON.
        with contextlib.redirect_stdout(sys.stderr):
            broken = _import_frameworks(found)
            found.refresh()
    providers = metadata.packages_distributions()
    known = sorted(found.known().values(), key=lambda plugin: plugin.name)
    return Info(
        [_entry(plugin, broken.get(plugin.framework), providers) for plugin in known],
        [Conflict(*conflict) for conflict in found.conflicts()],
        broken,
        [name for name in registry.blocked_names() if name not in {plugin.framework for plugin in known}],
    )


def _import_frameworks(found: Registry) -> dict[str, BaseException]:
    broken: dict[str, BaseException] = {}
    for plugin in found.known().values():
        if plugin.state == registry.NOT_IMPORTED and plugin.framework not in broken:
            try:
                importlib.import_module(plugin.framework)
            # Any exception of the import is part of the report.
            except Exception as error:  # noqa: BLE001
                broken[plugin.framework] = error
    return broken


def _entry(plugin: Plugin, broken: BaseException | None, providers: Mapping[str, list[str]]) -> Entry:
    distribution = plugin.entry_point.dist if plugin.entry_point is not None else None
    state, reason = plugin.state, plugin.reason
    if state == registry.NOT_IMPORTED and broken is not None:
        state, reason = registry.FAILED, f"import {plugin.framework} raises {one_line(broken, None)}"
    elif state == registry.BLOCKED:
        reason = f"named in {registry.BLOCK_VARIABLE}"
    version = framework_version(plugin.framework, providers, distribution)
    declared = None if state == registry.NOT_INSTALLED else release.declared(plugin)
    divergences: list[dict[str, Any]] = []
    try:
        divergences = [{name: getattr(entry, name) for name in DECLARED} for entry in plugin.divergences()]
    except PluginError as error:
        reason = str(error)
    return Entry(
        name=plugin.name,
        framework=plugin.framework,
        framework_version=None if state == registry.NOT_INSTALLED else version,
        distribution=distribution.name if distribution is not None else None,
        distribution_version=distribution.version if distribution is not None else None,
        state=state,
        reason=reason,
        hooks=sorted(plugin.hooks),
        divergences=divergences,
        oldest=None if declared is None else declared.oldest,
        newest_tried=None if declared is None else declared.newest,
        untried=declared is not None and declared.is_newer,
    )


def framework_version(
    framework: str, providers: Mapping[str, list[str]], own: metadata.Distribution | None = None
) -> str | None:
    """Return the version of the distribution that provides a module, or the version in the module itself.

    `providers` maps each top-level module to its distributions. `own` is the
    distribution of the plugin, whose version counts if the two are one project.
    """
    for distribution in (*providers.get(framework, ()), framework):
        with contextlib.suppress(metadata.PackageNotFoundError):
            return metadata.version(distribution)
    version = getattr(sys.modules.get(framework), "__version__", None)
    if version is None and own is not None and _holds(own, framework):
        version = own.version
    return None if version is None else str(version)


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
    json.dump(info.data(), stream, indent=2)
    stream.write("\n")


def write_text(info: Info, stream: TextIO) -> None:
    """Write the report for people: fitted to a terminal, in full width to anything else."""
    stream.write(f"adprotocol {adprotocol.__version__}, Python {platform.python_version()}\n")
    rows = [_row(entry) for entry in info.entries]
    if not rows:
        stream.write("no plugins: no distribution has entry points in the group 'adprotocol'\n")
    elif not (stream.isatty() and _write_rich(rows, stream)):
        _write_plain(rows, stream)
    for conflict in info.conflicts:
        others = ", ".join(conflict.passed_over)
        stream.write(f"conflict: {conflict.type} is served by {conflict.served_by}; also claimed by {others}\n")
    stream.writelines(
        f"{registry.BLOCK_VARIABLE} names {name!r}, and no plugin has that name\n" for name in info.unknown_blocked
    )


def _row(entry: Entry) -> tuple[str, ...]:
    return (
        entry.name,
        versioned(entry.framework, entry.framework_version),
        versioned(entry.distribution, entry.distribution_version),
        entry.state,
        entry.reason or "; ".join(filter(None, (untried(entry), _hooks(entry)))) or "-",
    )


def untried(entry: Entry) -> str:
    """Say that a plugin was not tried with a release as new as this; empty if it was, or if it declares no range."""
    release = versioned(entry.framework, entry.framework_version)
    return f"{release} was not tried, {entry.oldest} to {entry.newest_tried} were" if entry.untried else ""


def _hooks(entry: Entry) -> str:
    hooks, count = ", ".join(entry.hooks), len(entry.divergences)
    return f"{hooks}; {count} declared divergence{'s' * (count > 1)}" if count else hooks


def versioned(name: str | None, version: str | None) -> str:
    """Return a name with its version, as far as these are known."""
    return " ".join(part for part in (name, version) if part) or "-"


def _write_plain(rows: list[tuple[str, ...]], stream: TextIO) -> None:
    table = [HEADINGS, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        stream.write(line.rstrip() + "\n")


def _write_rich(rows: list[tuple[str, ...]], stream: TextIO) -> bool:
    """Write a table with rich and return True; return False if rich is not installed."""
    try:
        from rich.console import Console  # noqa: PLC0415  (an optional dependency)
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415
    except ImportError:
        return False
    colours = {registry.ACTIVE: "green", registry.FAILED: "red", registry.BLOCKED: "yellow"}
    console = Console(file=stream)
    table = Table()
    # No column is narrower than its longest word, which rich would break.
    longest = [
        max(len(word) for cell in column for word in cell.split()) for column in zip(HEADINGS, *rows, strict=True)
    ]
    for heading, width in zip(HEADINGS, longest, strict=True):
        table.add_column(heading, overflow="fold", min_width=width)
    for row in rows:
        # As Text: a reason may contain brackets, which rich would read as markup.
        table.add_row(*(Text(cell, style=colours.get(cell, "")) for cell in row))
    if sum(longest) + 3 * len(longest) + 1 > console.width:  # with the lines and the space around each cell
        _write_blocks(rows, stream, console.width)
    else:
        console.print(table)
    return True


def _write_blocks(rows: list[tuple[str, ...]], stream: TextIO, width: int) -> None:
    """Write each plugin as a paragraph, for a terminal that is too narrow for the table; no word is broken."""
    for name, framework, distribution, state, rest in rows:
        stream.write(f"\n{name}: {state}\n")
        for cell in (framework, distribution, rest):
            text = textwrap.fill(
                cell,
                width,
                initial_indent="  ",
                subsequent_indent="    ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            stream.write(f"{text}\n")
