"""The oldest release of a framework that a plugin works with, as its distribution declares it.

The metadata says it, because a plugin whose import fails with a release cannot:

.. code-block:: toml

    [project.optional-dependencies]
    toyad = ["toyad>=2.0"]

An older release is refused; without a lower bound nothing is.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from adprotocol.errors import PluginError

if TYPE_CHECKING:
    from importlib.metadata import Distribution


class OldReleaseError(PluginError):
    """The framework is older than what its plugin works with."""

    def __init__(self, framework: str, release: str, floor: str) -> None:
        super().__init__(
            f"{framework} {release} is older than {floor}, the oldest that its plugin works with: upgrade {framework}"
        )
        self.remedy: str = f"python -m pip install --upgrade '{framework}>={floor}'"


def numbers(version: str) -> list[int]:
    """Return the first three numbers of a version, zeros for those that it leaves out."""
    return [int(number) for number in (*re.findall(r"\d+", version), 0, 0, 0)][:3]


def parsed(requirement: str) -> tuple[str, str]:
    """Return the name and the lower bound (0 if none) of a requirement such as "jax<1,>=0.10; extra == 'jax'"."""
    ((name, floor),) = re.findall(r"^([\w.-]+)(?:[^;]*>=\s*([\d.]+))?", requirement)
    return name, floor or "0"


def refuse_older(framework: str, distribution: Distribution | None) -> None:
    """Raise for a framework whose release is older than the lower bound that its plugin's distribution sets."""
    release = installed(framework)
    for name, floor in map(parsed, (distribution.requires if distribution is not None else None) or ()):
        if name == framework and release is not None and numbers(release) < numbers(floor):
            raise OldReleaseError(framework, release, floor)


def installed(framework: str) -> str | None:
    """Return the version of the distribution named like a framework, or else the version in its module."""
    from importlib import metadata  # noqa: PLC0415  (30 ms; not at import)

    try:
        return metadata.version(framework)
    except metadata.PackageNotFoundError:
        version = getattr(sys.modules.get(framework), "__version__", None)
        return None if version is None else str(version)
