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

    Raises `UsageError` for an unknown level, or for a string instead of a list of keywords.
    """
    if level not in LEVELS:
        raise UsageError(f"level is {level!r:.60}; it is one of {', '.join(LEVELS)}")
    if isinstance(keywords, str) or not all(isinstance(word, str) for word in keywords):
        raise UsageError(f"keywords is {keywords!r:.60}; it is a list of words")
    levels = LEVELS[: LEVELS.index(level) + 1]
    return [case for case in found if case.scenario.level in levels and _matches(case, keywords)]


def _matches(case: Case, keywords: Sequence[str]) -> bool:
    texts = (case.id, case.scenario.transform, case.scenario.rule)
    globs = [word if set(word) & set("*?[") else f"*{word}*" for word in keywords]
    return not globs or any(fnmatch.fnmatchcase(text, glob) for glob in globs for text in texts)
