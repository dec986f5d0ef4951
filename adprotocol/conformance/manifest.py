"""The manifest of a plugin, as the suite reads it: which scenarios fail, and why."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any

from adprotocol.conformance.result import Divergence, Problem, one_line
from adprotocol.manifest import CORE, ERROR, WRONG
from adprotocol.manifest import Divergence as Declared

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adprotocol.conformance.backend import Backend

__all__ = ["ERROR", "WRONG", "declared", "of", "reported"]


def of(backend: Backend, ids: Sequence[str]) -> tuple[tuple[Declared, ...], list[Problem]]:
    """Return the divergences that the plugin declares, and what is wrong with them.

    `ids` are those that this harness gives rise to. An entry that names another
    one, or a scenario that another entry names too, is a problem.
    """
    problems: list[Problem] = []
    try:
        found = tuple(backend.divergences())
    except Exception as error:  # noqa: BLE001  (the plugin's own hook: whatever it raises is reported)
        return (), [Problem(where="manifest", message=one_line(error))]
    taken: dict[str, str] = {}
    for entry in found:
        for pattern in entry.scenarios:
            matching = fnmatch.filter(ids, pattern)
            if not matching:
                message = f"divergence {entry.name!r} names the scenario {pattern!r}, which there is not"
                problems.append(Problem(where="manifest", message=message))
            for identifier in matching:
                other = taken.setdefault(identifier, entry.name)
                if other != entry.name:
                    message = f"the divergences {other!r} and {entry.name!r} both name {identifier!r}"
                    problems.append(Problem(where="manifest", message=message))
    return found, problems


def declared(divergences: Iterable[Declared], identifier: str) -> Declared | None:
    """Return the divergence that names a result, or None."""
    for entry in divergences:
        if any(fnmatch.fnmatchcase(identifier, pattern) for pattern in entry.scenarios):
            return entry
    return None


def reported(divergences: Iterable[Any]) -> tuple[Divergence, ...]:
    """Return the divergences as a report holds them, those of every framework last."""
    return tuple(
        Divergence(
            name=entry.name,
            title=entry.title,
            text=entry.text,
            remedy=entry.remedy,
            outcome=entry.outcome,
            scenarios=tuple(entry.scenarios),
        )
        for entry in (*divergences, *CORE)
    )
