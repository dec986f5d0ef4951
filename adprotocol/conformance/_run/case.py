"""Cases: scenarios as they run, once each and once more with each variant, and the selection among them."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adprotocol.conformance._run.backend import UsageError
from adprotocol.conformance.scenario import LEVELS, MAY, Scenario
from adprotocol.conformance.scenarios import all_scenarios

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True, slots=True)
class Case:
    """Hold one scenario and the variant of a capability it runs with, such as "grad=vjp", or none."""

    scenario: Scenario
    variant: str = ""

    @property
    def id(self) -> str:
        """Return the id of the result."""
        return f"{self.scenario.id}@{self.variant}" if self.variant else self.scenario.id


def cases(variants: Mapping[str, Iterable[str]]) -> list[Case]:
    """Return every case for the variants of a harness: each scenario, and those that vary once more with each."""
    named = {capability: [f"{capability}={name}" for name in names] for capability, names in variants.items()}
    found: list[Case] = []
    for scenario in all_scenarios().values():
        varied = [name for key, names in named.items() if scenario.varies and key in scenario.needs for name in names]
        found += [Case(scenario, variant) for variant in ("", *varied)]
    return found


def select(found: Iterable[Case], keywords: Sequence[str] = (), level: str = MAY) -> list[Case]:
    """Return the cases of a level or above whose id, transform or rule matches a keyword, a word or a glob.

    Raises `UsageError` for an unknown level, a keyword that nothing matches, or a string instead of a list of them.
    """
    if level not in LEVELS:
        raise UsageError(f"level is {level!r:.60}; it is one of {', '.join(LEVELS)}")
    if isinstance(keywords, str) or not all(isinstance(word, str) for word in keywords):
        raise UsageError(f"keywords is {keywords!r:.60}; it is a list of words")
    found, levels = list(found), LEVELS[: LEVELS.index(level) + 1]
    matching = {word: [case for case in found if _matches(case, word)] for word in keywords}
    for word, those in matching.items():
        if not those:
            raise UsageError(f"no scenario matches {word!r} in its id, transform or rule; --list shows what there is")
    chosen = {case.id for those in matching.values() for case in those}
    return [case for case in found if case.scenario.level in levels and (not keywords or case.id in chosen)]


def _matches(case: Case, word: str) -> bool:
    glob = word if set(word) & set("*?[") else f"*{word}*"
    return any(fnmatch.fnmatchcase(text, glob) for text in (case.id, case.scenario.transform, case.scenario.rule))
