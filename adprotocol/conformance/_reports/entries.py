"""Entries: the results that one fault explains, so that a report tells it once and not once a scenario."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adprotocol.conformance._reports.words import line, some
from adprotocol.conformance._run.result import BROKEN, HARNESS, WRONG
from adprotocol.conformance.scenario import LEVELS

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from adprotocol.conformance._run.result import Report, Result

# What differs between messages of one cause: the nesting that is refused, addresses, and numbers.
_NESTING = re.compile(r"(?<=\brefuses )[^:]*(?=: )")
_NUMBER = re.compile(r"\b(0x[0-9a-fA-F]+|\d[\d.]*(e[+-]?\d+)?)")
_FRAME = re.compile(r'^ *(File ".*", line \d+)', re.MULTILINE)
# A capability is not checked if one that its check uses is broken.
_BASIS = re.compile(r"not checked, for (\w+) is broken")


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold results of one outcome and one cause."""

    results: Sequence[Result]

    @property
    def first(self) -> Result:
        """Return the result that stands for all: one that can be reproduced, if there is one."""
        return next((result for result in self.results if result.repro), self.results[0])

    @property
    def others(self) -> list[str]:
        """Return the ids of the others."""
        return [result.id for result in self.results if result is not self.first]

    @property
    def ids(self) -> list[str]:
        """Return the ids of all, that of the first before the others."""
        return [self.first.id, *self.others]

    @property
    def message(self) -> str:
        """Return what went wrong; the capability that is broken says more than the error of a scenario."""
        return next((result.message for result in self.results if not result.ran), self.first.message)

    @property
    def standing(self) -> str:
        """Return the levels, the rules and the versions of the scenarios."""
        levels = sorted({result.level for result in self.results}, key=LEVELS.index)
        rules = list(dict.fromkeys(result.rule for result in self.results))
        since = sorted({result.since for result in self.results})
        return f"{', '.join(levels)}, rule{'s' * (len(rules) > 1)} {some(rules)}, since {line(', '.join(since))}"


def entries(report: Report, results: Iterable[Result]) -> list[Entry]:
    """Return the results as entries, in the order of the first of each."""
    states = {name: report.state(name) for name in report.capabilities}
    faults = {name: fault for name, (state, fault) in states.items() if state == BROKEN}
    found: dict[Hashable, list[Result]] = {}
    for result in results:
        found.setdefault(_key(faults, result), []).append(result)
    return list(map(Entry, found.values()))


def _key(faults: Mapping[str, str], result: Result) -> Hashable:
    """Return what two results have in common if they have one cause; `faults` are those of broken capabilities."""
    masked = _masked(result.message)
    if not result.ran:
        broken = next((name for name in ("array", "to_numpy", *result.needs) if name in faults), "")
        # What is not checked for another capability's sake has that one's fault.
        while (basis := _BASIS.fullmatch(faults.get(broken, ""))) and basis[1] != broken:
            broken = basis[1]
        return result.outcome, broken or masked
    if result.cause == HARNESS:
        alike = [name for name, fault in faults.items() if _masked(fault) == masked]
        if alike:
            return result.outcome, alike[-1]
    if result.outcome == WRONG:
        # Another number is another answer.
        return result.outcome, result.hook, result.message
    frames = _FRAME.findall(result.detail)
    return result.outcome, result.bad, result.cause, masked, *frames[-1:]


def _masked(message: str) -> str:
    return _NUMBER.sub("#", _NESTING.sub("", line(message)))


def reasons(results: Iterable[Result]) -> dict[str, list[str]]:
    """Return why results do not apply, in words of the first, with the ids of all for which it is nearly the same."""
    words: dict[str, str] = {}
    found: dict[str, list[str]] = {}
    for result in results:
        message = line(result.message) or "no reason was given"
        found.setdefault(words.setdefault(_masked(message), message), []).append(result.id)
    return found
