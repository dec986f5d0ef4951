"""`doctor`: checks on the facts that `info` collects, each with its remedy if it finds a problem.

A problem has exactly one remedy, written so that it can be followed without
reading further. A framework that is not installed is not a problem.
"""

from __future__ import annotations

import difflib
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple, TextIO

from adprotocol._cli import terminal
from adprotocol._cli.info import collect, distribution, versioned
from adprotocol._dispatch import plugin as states
from adprotocol._dispatch import registry
from adprotocol._dispatch.release import OldReleaseError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from adprotocol._cli.info import Entry, Info
    from adprotocol._dispatch.plugin import Plugin
    from adprotocol._dispatch.registry import Registry

PIP = "python -m pip"


class Check(NamedTuple):
    """Hold one finding; it is a problem if there is a remedy."""

    finding: str
    remedy: str = ""


def main(plugins: Registry, stream: TextIO) -> int:
    """Write every check and their number; return the exit status."""
    checks = list(diagnose(collect(plugins, import_frameworks=True), plugins))
    for finding, remedy in checks:
        lines = [f"PROBLEM  {finding}", f"         remedy: {remedy}"] if remedy else [f"ok       {finding}"]
        terminal.write(lines, stream, 9)
    problems = sum(bool(check.remedy) for check in checks)
    stream.write(f"{len(checks)} checks, {problems} problem(s)\n")
    return 1 if problems else 0


def next_step(info: Info, plugins: Registry) -> str:
    """Return what to do about the facts that `info` shows."""
    problems = sum(bool(check.remedy) for check in diagnose(info, plugins))
    if problems:
        return f"python -m adprotocol doctor  (a remedy for {problems} problem{'s' * (problems > 1)})"
    if all(entry.state == states.NOT_INSTALLED for entry in info.entries):
        return f"{PIP} install 'adprotocol[jax]'  (or torch, or autograd; NumPy needs no plugin)"
    return "python -m adprotocol demo  (one model under each framework)"


def diagnose(info: Info, plugins: Registry) -> Iterator[Check]:
    """Yield every check on this installation of adprotocol and its plugins."""
    try:
        metadata.distribution("adprotocol")
    except metadata.PackageNotFoundError:
        yield Check(
            "adprotocol is importable but not installed, so its plugins are not found",
            f"{PIP} install adprotocol (or, in a checkout, {PIP} install --editable .)",
        )
    for entry in info.entries:
        yield _state(entry, plugins.known()[entry.name], broken=entry.framework in info.broken_frameworks)
    for conflict in info.conflicts:
        yield _conflict(*conflict, plugins)
    known = sorted({entry.framework for entry in info.entries})
    for name in info.unknown_blocked:  # the plugin that was meant is not blocked
        near = difflib.get_close_matches(name, known, n=1)
        yield Check(
            f"the environment variable {registry.BLOCK_VARIABLE} names {name!r}, and no plugin has that name; it "
            "blocks nothing",
            f"replace it by {near[0]}" if near else f"remove it; the plugins are {', '.join(known) or 'none'}",
        )


def _state(entry: Entry, plugin: Plugin, *, broken: bool) -> Check:
    """Check one plugin by its state."""
    framework = versioned(entry.framework, entry.framework_version)
    owner = f"plugin {entry.name} ({distribution(entry)})"
    if entry.state == states.FAILED and broken:
        return Check(
            f"{framework} is installed, but {entry.reason}",
            f"{PIP} install --force-reinstall {entry.framework} (python -c 'import {entry.framework}' shows where it "
            "fails), or uninstall it",
        )
    if entry.state == states.FAILED:
        return Check(f"{owner} failed: {entry.reason}", _remedy(entry, plugin))
    if entry.state == states.BLOCKED:
        return Check(
            f"{owner} is blocked, so values of {entry.framework} raise an error",
            f"remove {entry.framework} from the environment variable {registry.BLOCK_VARIABLE}",
        )
    if entry.state == states.NOT_INSTALLED:
        return Check(
            f"{owner} is idle: {entry.framework} is not installed; to get it: {PIP} install '{plugin.installation}' "
            "(in a plugin of your own, the entry point has the name of the framework's root module)"
        )
    if entry.state == states.NOT_IMPORTED:
        return Check(f"{owner} is idle: {framework} is not imported")
    if entry.reason:  # active all the same: no value needs the divergences
        return Check(entry.reason, f"repair the hook divergences of plugin {entry.name}")
    count = len(plugin.types)
    return Check(f"{owner} is active for {framework} and claims {count} type{'s' * (count > 1)}")


def _remedy(entry: Entry, plugin: Plugin) -> str:
    """Return the remedy for a plugin that failed: of its framework's release, or by the kind of the error."""
    upgrade = f"{PIP} install --upgrade {entry.distribution}"
    if isinstance(plugin.error, OldReleaseError):
        return plugin.error.remedy
    if isinstance(plugin.error, ModuleNotFoundError) and plugin.error.name:
        # No command that installs it: anyone may own a distribution of that name.
        return (
            f"plugin {entry.name} imports {plugin.error.name}, which is missing: reinstall {entry.distribution} from "
            "where you got it, or tell its authors; in a plugin of your own, ship or declare that module"
        )
    if isinstance(plugin.error, ImportError):
        return f"{upgrade} {entry.framework}: the plugin imports what the installed version does not have"
    return (
        f"{upgrade}; if it still fails, tell the authors of {entry.distribution}; in a plugin of your own, mend what "
        "the reason names (adprotocol.hookspecs documents the hooks)"
    )


def _conflict(cls: str, served_by: str, passed_over: list[str], plugins: Registry) -> Check:
    names = [served_by, *passed_over]
    distributions = [plugins.known()[name].distribution for name in names]
    # Not this library itself: its three plugins would go with it.
    owners = [owner.name for owner in distributions if owner is not None and owner.name != "adprotocol"]
    owned = " or ".join(f"{PIP} uninstall {owner}" for owner in owners)
    return Check(
        f"{cls} is claimed by {len(names)} plugins: {served_by} serves it, not {', '.join(passed_over)}",
        f"keep one of {', '.join(names)}{owned and ': '}{owned}; in a plugin of your own, claim no class of another "
        "framework",
    )
