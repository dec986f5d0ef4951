"""Supported framework versions, as the distribution of a plugin declares them.

The metadata says it, because a plugin whose import fails with a release cannot:

.. code-block:: toml

    [project.optional-dependencies]
    toyad = ["toyad>=2.0"]        # the oldest release that works
    toyad-tried = ["toyad==2.4"]  # the newest release that was tried

An older release is refused. A newer one is used; if the plugin fails with it, the
reason names the releases. A distribution without the extra ``<framework>-tried``
declares no range: nothing is refused.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, NamedTuple

from adprotocol.errors import PluginError, one_line

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = re.compile(r"[\w.-]+")
FLOOR = re.compile(r">=\s*(\d+(?:\.\d+)*)")
PIN = re.compile(r"==\s*(\d+(?:\.\d+)*)")
EXTRA = re.compile(r"extra\s*==\s*[\"']([^\"']+)")


class Range(NamedTuple):
    """Hold the range that a plugin declares, and the release that is installed, if that is known."""

    framework: str
    oldest: str
    newest: str
    installed: str | None

    @property
    def is_newer(self) -> bool:
        """Tell whether the installed release is newer than the newest that was tried."""
        return self.installed is not None and numbers(self.installed) > numbers(self.newest)

    @property
    def span(self) -> str:
        """Return the range as text."""
        return f"{self.framework} {self.oldest} to {self.newest}"

    def refuse_older(self) -> None:
        """Raise for a framework that is older than what its plugin works with."""
        if self.installed is not None and numbers(self.installed) < numbers(self.oldest):
            msg = (
                f"{self.framework} {self.installed} is older than {self.oldest}, the oldest that works ({self.span} "
                f"were tried): upgrade {self.framework}"
            )
            raise PluginError(msg)

    def explained(self, error: BaseException) -> BaseException:
        """Return the error of a plugin that failed, with the releases if its framework is newer than what was tried."""
        if not self.is_newer:
            return error
        newer = PluginError(
            f"{self.framework} {self.installed} is newer than {self.newest}, the newest that was tried, and the plugin "
            f"fails with it ({one_line(error)}): upgrade the plugin, or install one of {self.span}"
        )
        newer.__cause__ = error
        return newer


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version starts with, without trailing zeros."""
    found = [int(number) for number in re.split(r"[^\d.]", version, maxsplit=1)[0].split(".") if number]
    while found and found[-1] == 0:
        found.pop()
    return tuple(found)


def parsed(requirement: str) -> tuple[str, str]:
    """Return the name and the lower bound (0 if none) of a requirement such as "jax<1,>=0.10; extra == 'jax'"."""
    specifier = requirement.partition(";")[0]
    name, floor = NAME.match(specifier), FLOOR.search(specifier)
    return name[0] if name else specifier, floor[1] if floor else "0"


def declared(framework: str, distribution: Distribution | None) -> Range | None:
    """Return the range that the distribution of a plugin declares, or None if it declares none."""
    requirements = () if distribution is None else distribution.requires or ()
    for requirement in requirements:
        specifier, _, marker = requirement.partition(";")
        extra, pin = EXTRA.search(marker), PIN.search(specifier)
        if extra is not None and pin is not None and _plain(extra[1]) == _plain(f"{framework}-tried"):
            name, _ = parsed(requirement)
            floors = [floor for other, floor in map(parsed, requirements) if _plain(other) == _plain(name)]
            oldest = max(floors, key=numbers)  # the pin itself has no lower bound
            return Range(framework, oldest, pin[1], installed(framework, name))
    return None


def installed(framework: str, *distributions: str) -> str | None:
    """Return the version of the first of some distributions that is installed, or else the version in the module."""
    from importlib import metadata  # noqa: PLC0415  (30 ms; not at import)

    for distribution in distributions:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    version = getattr(sys.modules.get(framework), "__version__", None)
    return None if version is None else str(version)


def _plain(name: str) -> str:
    """Return a name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
