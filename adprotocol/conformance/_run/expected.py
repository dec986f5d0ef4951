"""The divergences that a plugin declares, as the suite reads them: which scenarios fail, and why."""

from __future__ import annotations

import fnmatch
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from adprotocol.conformance._run.result import Divergence, Problem
from adprotocol.divergence import CORE, ERROR, WRONG
from adprotocol.divergence import Divergence as Declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["ERROR", "WRONG", "declared", "problems", "reported"]


def problems(found: Iterable[Declared], ids: Sequence[str]) -> list[Problem]:
    """Return the problems of the divergences that a plugin declares.

    `ids` are the ids of the cases of this harness. A divergence that names another id,
    or one that another divergence names too, is a problem.
    """
    wrong: list[str] = []
    taken: dict[str, str] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for entry in found:
        # The variant of a pattern may be that of another harness of the system.
        wrong.extend(
            f"divergence {entry.name!r} names the unknown scenario {pattern!r}"
            for pattern in entry.scenarios
            if not any(
                fnmatch.fnmatchcase(identifier, part)
                for identifier in ids
                for part in (_plain(pattern), _plain(pattern).partition("@")[0])
            )
        )
        for identifier in ids:
            other = taken.setdefault(identifier, entry.name) if _names(entry, identifier) else entry.name
            if other != entry.name:
                twice.setdefault((other, entry.name), []).append(identifier)
    for (one, other), (first, *more) in twice.items():
        others = f" and {len(more)} more" if more else ""
        wrong.append(f"the divergences {one!r} and {other!r} both name {first!r}{others}")
    return [Problem(where="divergences", message=message) for message in wrong]


def declared(divergences: Iterable[Declared], identifier: str) -> Declared | None:
    """Return the divergence that names a result, or None."""
    return next((entry for entry in divergences if _names(entry, identifier)), None)


def _names(entry: Declared, identifier: str) -> bool:
    """Return whether a divergence names a result: the last pattern that matches decides, and "!" excludes."""
    matching = [pattern for pattern in entry.scenarios if fnmatch.fnmatchcase(identifier, _plain(pattern))]
    return bool(matching) and not matching[-1].startswith("!")


def _plain(pattern: str) -> str:
    return pattern.removeprefix("!")


def reported(divergences: Iterable[Any]) -> tuple[Divergence, ...]:
    """Return the divergences as a report holds them, those of all frameworks last."""
    return tuple(Divergence(**asdict(entry)) for entry in (*divergences, *CORE))
