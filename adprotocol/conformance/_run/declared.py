"""The divergences that a plugin declares, as the suite reads them."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from adprotocol.divergence import Divergence


def problems(found: Iterable[Divergence], ids: Sequence[str]) -> Iterator[str]:
    """Yield the problems of the divergences that a plugin declares.

    `ids` are the ids of the cases of this harness. A divergence that names another id,
    or one that another divergence names too, is a problem.
    """
    taken: dict[str, str] = {}
    twice: dict[tuple[str, str], list[str]] = {}
    for entry in found:
        for pattern in entry.scenarios:
            # The variant of a pattern may be that of another harness of the system.
            parts = {_plain(pattern), _plain(pattern).partition("@")[0]}
            if not any(fnmatch.fnmatchcase(identifier, part) for identifier in ids for part in parts):
                yield f"divergence {entry.name!r} names the unknown scenario {pattern!r}"
        for identifier in ids:
            other = taken.setdefault(identifier, entry.name) if _names(entry, identifier) else entry.name
            if other != entry.name:
                twice.setdefault((other, entry.name), []).append(identifier)
    for (one, other), (first, *more) in twice.items():
        others = f" and {len(more)} more" if more else ""
        yield f"the divergences {one!r} and {other!r} both name {first!r}{others}"


def divergence_of(divergences: Iterable[Divergence], identifier: str) -> Divergence | None:
    """Return the divergence that names a result, or None."""
    return next((entry for entry in divergences if _names(entry, identifier)), None)


def expects(entry: Divergence, error: BaseException) -> bool:
    """Return whether an error is one that a divergence names, by the class or by words; any, if it names none."""
    shown = [*(cls.__name__ for cls in type(error).__mro__), str(error)]
    return not entry.errors or any(words in text for words in entry.errors for text in shown)


def _names(entry: Divergence, identifier: str) -> bool:
    """Return whether a divergence names a result: the last pattern that matches decides, and "!" excludes."""
    matching = [pattern for pattern in entry.scenarios if fnmatch.fnmatchcase(identifier, _plain(pattern))]
    return bool(matching) and not matching[-1].startswith("!")


def _plain(pattern: str) -> str:
    return pattern.removeprefix("!")
