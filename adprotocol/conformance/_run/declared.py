"""The divergences that a plugin declares, as the suite reads them, and as a draft of what a plugin may declare."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import asdict
from typing import TYPE_CHECKING

from adprotocol.conformance._run.result import FAIL, PLUGIN, WRONG, Divergence
from adprotocol.divergence import CORE, ERROR
from adprotocol.divergence import WRONG as DECLARED_WRONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from adprotocol.conformance._run.result import Report, Result
    from adprotocol.divergence import Divergence as Declared

_HEAD = """# What {backend} {version} does not allow the plugin to do right, drafted from a run of the suite

A draft declares nothing: an entry without a text is refused. For each find out why it fails. Mend what is wrong in the
plugin. For what the system does not allow, write title, remedy and reason; merge entries of one reason.
"""
_ENTRY = """
## {message}

- name: draft-{number}
- outcome: {outcome}
- scenarios: {scenarios}
"""
_WIDTH = 110


def problems(found: Iterable[Declared], ids: Sequence[str]) -> Iterator[str]:
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


def of(divergences: Iterable[Declared], identifier: str) -> Declared | None:
    """Return the divergence that names a result, or None."""
    return next((entry for entry in divergences if _names(entry, identifier)), None)


def _names(entry: Declared, identifier: str) -> bool:
    """Return whether a divergence names a result: the last pattern that matches decides, and "!" excludes."""
    matching = [pattern for pattern in entry.scenarios if fnmatch.fnmatchcase(identifier, _plain(pattern))]
    return bool(matching) and not matching[-1].startswith("!")


def _plain(pattern: str) -> str:
    return pattern.removeprefix("!")


def reported(divergences: Iterable[Declared]) -> tuple[Divergence, ...]:
    """Return the divergences as a report holds them, those of all frameworks last."""
    return tuple(Divergence(**asdict(entry)) for entry in (*divergences, *CORE))


def draft(report: Report) -> str:
    """Return Markdown with a divergence for each way in which scenarios fail, those of one error together."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in report.results:
        if result.outcome in (WRONG, FAIL) and result.cause == PLUGIN:
            # A wrong answer has its own numbers; an error of one text, its numbers apart, has one reason.
            kind = "" if result.outcome == WRONG else re.sub(r"[0-9.]+", "0", result.message)[:80]
            groups.setdefault((result.outcome, kind or result.hook), []).append(result)
    entries = [
        _ENTRY.format(
            number=number,
            outcome=DECLARED_WRONG if outcome == WRONG else ERROR,
            message=" ".join(found[0].message.split())[:_WIDTH],
            scenarios=", ".join(f"`{result.id}`" for result in found),
        )
        for number, ((outcome, _), found) in enumerate(groups.items(), 1)
    ]
    return _HEAD.format(backend=report.backend, version=report.framework_version) + "".join(entries)
