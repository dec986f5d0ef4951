"""The diagnosis: checks on a report, each with its remedy if it finds a problem.

A problem has exactly one remedy, written so that it can be followed without
reading further. A framework that is not installed is not a problem.
"""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, TextIO

from adprotocol._cli import terminal
from adprotocol._cli.info import import_error, untried, versioned
from adprotocol._dispatch import plugin as states
from adprotocol._dispatch import registry, table
from adprotocol._dispatch.release import numbers, parsed
from adprotocol.errors import full_name, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adprotocol._cli.info import Conflict, Entry, Info
    from adprotocol._dispatch.plugin import Plugin
    from adprotocol._dispatch.registry import Registry

PIP = "python -m pip"


@dataclass(frozen=True, slots=True)
class Check:
    """Hold one finding; it is a problem if there is a remedy."""

    finding: str
    remedy: str = ""

    def write(self, stream: TextIO) -> None:
        """Write the finding on one line and its remedy, if any, on the next; both wrapped on a terminal."""
        lines = [f"{'PROBLEM' if self.remedy else 'ok':<8} {self.finding}"]
        if self.remedy:
            lines.append(f"{'':<8} remedy: {self.remedy}")
        for line in lines:
            stream.writelines(f"{row}\n" for row in terminal.wrapped(line, terminal.width_of(stream), 9))


def diagnose(info: Info, registry: Registry, *, verbose: bool = False) -> Iterator[Check]:
    """Yield every check on this installation of adprotocol and its plugins; `verbose` lists hooks and types."""
    yield from _requirements()
    for entry in info.entries:
        plugin = registry.known()[entry.name]
        yield _state(entry, plugin, broken=entry.framework in info.broken_frameworks, verbose=verbose)
        yield from _age(entry)
    contested = {conflict.type for conflict in info.conflicts}
    for plugin in registry.active():
        yield from _types(plugin, contested, verbose=verbose)
    for conflict in info.conflicts:
        yield _conflict(conflict, registry)
    for name in info.unknown_blocked:
        yield _unknown_blocked(name, info)
    if not info.conflicts:
        yield Check("no type is claimed by two plugins")


def _requirements() -> Iterator[Check]:
    """Check that the distributions that adprotocol requires are installed, new enough and working."""
    try:
        required = metadata.requires("adprotocol") or ()
    except metadata.PackageNotFoundError:
        yield Check(
            "adprotocol is importable but not installed, so its plugins are not found",
            f"{PIP} install adprotocol (or, in a checkout, {PIP} install --editable .)",
        )
        return
    for requirement in required:
        if "extra" not in requirement.partition(";")[2]:
            yield _requirement(*parsed(requirement))


def _requirement(name: str, floor: str) -> Check:
    upgrade = f"{PIP} install --upgrade '{name}>={floor}'"
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return Check(f"{name} is not installed, and adprotocol requires it", upgrade)
    if numbers(version) < numbers(floor):
        return Check(f"{name} {version} is older than {floor}, which adprotocol requires", upgrade)
    error = import_error(name)
    if error is not None:
        return Check(
            f"{name} {version} is installed, but import {name} raises {one_line(error, None)}",
            f"{PIP} install --force-reinstall '{name}>={floor}'",
        )
    return Check(f"{name} {version} (required: {floor} or later)")


def _state(entry: Entry, plugin: Plugin, *, broken: bool, verbose: bool) -> Check:
    """Check one plugin by its state."""
    framework = versioned(entry.framework, entry.framework_version)
    named = f"plugin {entry.name} ({versioned(entry.distribution, entry.distribution_version)})"
    if entry.state == states.FAILED and broken:
        return Check(
            f"{framework} is installed, but {entry.reason}",
            f"{PIP} install --force-reinstall {entry.framework} (python -c 'import {entry.framework}' shows where it "
            "fails), or uninstall it",
        )
    if entry.state == states.FAILED:
        return Check(f"{named} failed: {entry.reason}", _remedy(entry, plugin))
    if entry.state == states.BLOCKED:
        value = os.environ.get(registry.BLOCK_VARIABLE, "")
        return Check(
            f"{named} is blocked, so values of {entry.framework} raise an error",
            f"remove {entry.framework} from the environment variable {registry.BLOCK_VARIABLE} (now {value!r})",
        )
    if entry.state == states.NOT_INSTALLED:
        wanted = plugin.installation
        return Check(
            f"{named} is idle: {entry.framework} is not installed; to get it: {PIP} install "
            f"{wanted if wanted == entry.framework else repr(wanted)} (in a plugin of your own, the entry point has "
            "the name of the framework's root module)"
        )
    if entry.state == states.NOT_IMPORTED:
        return Check(f"{named} is idle: {framework} is not imported")
    if entry.reason:  # active all the same: no value needs the divergences
        return Check(entry.reason, f"repair the hook divergences of plugin {entry.name}")
    new = f" ({untried(entry)})" if entry.untried else ""
    hooks = f" with the hooks {', '.join(entry.hooks)}" if verbose else ""
    return Check(f"{named} is active for {framework}{hooks}{new}")


def _remedy(entry: Entry, plugin: Plugin) -> str:
    """Return the remedy for a plugin that failed: of the releases, of its own checks, or by the kind of the error."""
    upgrade = f"{PIP} install --upgrade {entry.distribution}"
    if entry.untried:
        return f"{upgrade}; if it still fails, {PIP} install '{entry.framework}>={entry.oldest},<={entry.newest_tried}'"
    if entry.oldest and entry.framework_version and numbers(entry.framework_version) < numbers(entry.oldest):
        return f"{PIP} install --upgrade '{entry.framework}>={entry.oldest}'"
    if plugin.remedy:
        return f"{upgrade}; in a plugin of your own, {plugin.remedy}"
    if isinstance(plugin.error, ModuleNotFoundError) and plugin.error.name:
        return (
            f"{PIP} install {plugin.error.name.partition('.')[0]}, or, if that is a part of {entry.distribution}, "
            "reinstall the latter; in a plugin of your own, check the spelling of the import"
        )
    if isinstance(plugin.error, ImportError):
        return f"{upgrade} {entry.framework}: the plugin imports what the installed version does not have"
    return f"{upgrade}; if it still fails, tell the authors of {entry.distribution}"


def _age(entry: Entry) -> Iterator[Check]:
    """Check an active framework against the oldest version that its plugin's distribution requires."""
    if entry.state != states.ACTIVE or entry.distribution is None or entry.framework_version is None:
        return
    for name, floor in map(parsed, metadata.requires(entry.distribution) or ()):
        if name == entry.framework and numbers(entry.framework_version) < numbers(floor):
            yield Check(
                f"{name} {entry.framework_version} is older than {floor}, the oldest version that "
                f"{entry.distribution} is made for",
                f"{PIP} install --upgrade '{name}>={floor}'",
            )
            return


def _unknown_blocked(name: str, info: Info) -> Check:
    """Report a name that blocks nothing: the plugin that was meant is not blocked."""
    known = sorted({entry.framework for entry in info.entries})
    near = difflib.get_close_matches(name, known, n=1)
    return Check(
        f"the environment variable {registry.BLOCK_VARIABLE} names {name!r}, and no plugin has that name; it blocks "
        "nothing",
        f"replace it by {near[0]}" if near else f"remove it; the plugins are {', '.join(known) or 'none'}",
    )


def _types(plugin: Plugin, contested: set[str], *, verbose: bool) -> Iterator[Check]:
    """Check that the types a plugin claims reach it; types that two plugins claim are reported separately."""
    reached = []
    for cls in plugin.types:
        name = full_name(cls)
        if name in contested:
            continue
        server = table.lookup(cls)
        if server.framework == plugin.name:
            reached.append(name)
        else:
            yield Check(
                f"plugin {plugin.name} claims {name}, but it is served by the core, as {server.kind.value}",
                f"remove {name} from what array_types of plugin {plugin.name} returns",
            )
    if reached:
        count = f"{len(reached)} type{'s' * (len(reached) > 1)}"
        yield Check(f"plugin {plugin.name} serves {', '.join(reached) if verbose else count}, as it claims")


def _conflict(conflict: Conflict, registry: Registry) -> Check:
    names = [conflict.served_by, *conflict.passed_over]
    distributions = [registry.known()[name].distribution for name in names]
    # Not this library itself: its three plugins would go with it.
    owners = [owner.name for owner in distributions if owner is not None and owner.name != "adprotocol"]
    owned = " or ".join(f"{PIP} uninstall {owner}" for owner in owners)
    return Check(
        f"{conflict.type} is claimed by {len(names)} plugins: {conflict.served_by} serves it, not "
        f"{', '.join(conflict.passed_over)}",
        f"keep one of {', '.join(names)}{owned and ': '}{owned}; in a plugin of your own, claim no class of another "
        "framework",
    )
