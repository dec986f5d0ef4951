"""The digest: what every report says, as data, so that text, Markdown and HTML say the same."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from adprotocol.conformance._reports.matrix import Matrix
from adprotocol.conformance._reports.words import clean, line, seconds
from adprotocol.conformance._run.result import (
    DIVERGENCES,
    EXPECTED,
    FAIL,
    HARNESS,
    NOT_APPLICABLE,
    OUTCOMES,
    PASS,
    TIME,
    WRONG,
    count_ran,
)
from adprotocol.conformance.scenario import LEVELS
from adprotocol.divergence import CORE
from adprotocol.divergence import WRONG as DECLARED_WRONG

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from adprotocol.conformance._run.result import Divergence, Report, Result

# What the headings of the reports add to an outcome.
MEANINGS: Mapping[str, str] = {
    WRONG: "an answer that is wrong, with no error",
    FAIL: "an error where an answer was due, or another fault that is named",
    EXPECTED: "declared by the plugin, with the reason",
}
ALSO = "what the plugin declares and no scenario of this run shows"

_BLAME: Mapping[str, str] = {
    HARNESS: "the harness is at fault",
    DIVERGENCES: "the declared divergences are at fault",
    TIME: "it ran out of time",
}
_THERE = "there"
# How many ids stand for all in a list of reasons.
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Missing:
    """Hold a capability that is not there, why, and how many scenarios do not apply because of it."""

    capability: str
    state: str
    reason: str
    scenarios: int


@dataclass(frozen=True, slots=True)
class Tally:
    """Hold the results of one level or hook, to be counted."""

    name: str
    results: Sequence[Result]

    @property
    def ran(self) -> str:
        """Return how many of how many ran."""
        return f"{count_ran(self.results)} of {len(self.results)}"

    @property
    def counts(self) -> dict[str, int]:
        """Return how many results there are of each outcome."""
        counts = Counter(result.outcome for result in self.results)
        return {outcome: counts[outcome] for outcome in OUTCOMES}

    @property
    def summary(self) -> str:
        """Return the counts in words, the worst outcome first."""
        return ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items() if count)


class Digest:
    """Derive from a report what is shown of it."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @property
    def title(self) -> str:
        """Return the backend with the version of its framework."""
        return line(" ".join(filter(None, (self.report.backend, self.report.framework_version))))

    @property
    def verdict(self) -> str:
        """Return PASS or FAIL; a PASS says how many answers are declared silently wrong."""
        if not self.report.ok:
            return "FAIL"
        number = self.report.declared_wrong
        return f"PASS, with {number} answer{'s' * (number > 1)} declared silently wrong" if number else "PASS"

    @property
    def verdict_outcome(self) -> str:
        """Return the outcome whose colour the verdict has."""
        return (EXPECTED if self.report.declared_wrong else PASS) if self.report.ok else FAIL

    @property
    def facts(self) -> dict[str, str]:
        """Return what was run, on what and with what, for the head of a report."""
        report = self.report
        words = "".join(f" -k {word}" for word in report.keywords)
        found = {
            "plugin": " ".join(filter(None, (report.plugin, report.plugin_version))) or "-",
            "framework": f"{report.backend} {report.framework_version or 'of unknown version'}",
            "device": report.device or "the default",
            "adprotocol": report.adprotocol,
            "python": f"{report.python} on {report.platform}",
            "selection": f"--level {report.level}{words}",
        }
        return {key: line(value) for key, value in found.items()}

    @cached_property
    def matrix(self) -> Matrix:
        """Return the support matrix of the report."""
        return Matrix.of([self.report])

    @cached_property
    def levels(self) -> list[Tally]:
        """Return the results by level, for the levels that were selected, and then all."""
        results = self.report.results
        tallies = [Tally(level, [result for result in results if result.level == level]) for level in LEVELS]
        return [*(tally for tally in tallies if tally.results), Tally("all", results)]

    @cached_property
    def hooks(self) -> list[Tally]:
        """Return the results by hook, in the order in which they ran."""
        found: dict[str, list[Result]] = {}
        for result in self.report.results:
            found.setdefault(result.hook, []).append(result)
        return [Tally(hook, results) for hook, results in found.items()]

    def of(self, outcome: str) -> list[Result]:
        """Return the results of one outcome, MUST before MAY."""
        return [result for result in self.report.sorted() if result.outcome == outcome]

    def number(self, result: Result) -> int:
        """Return the place of a result, for an anchor: the id of a variant may have any character."""
        return next(place for place, each in enumerate(self.report.results) if each is result)

    def standing(self, result: Result) -> str:
        """Return level, rule and version of a scenario, and who is at fault if not the plugin."""
        notes = [f"{result.level}, rule {result.rule}, since {result.since}"]
        if result.outcome in (WRONG, FAIL):
            notes += [_BLAME[result.cause]] if result.cause in _BLAME else []
            notes += [] if result.bad else ["it does not fail the suite"]
        return line("; ".join(notes))

    @cached_property
    def expected(self) -> list[tuple[str, Divergence | None, list[Result]]]:
        """Return the expected failures by divergence, in the order in which the plugin declares them."""
        order = {entry.name: place for place, entry in enumerate(self.report.divergences)}
        found: dict[str, list[Result]] = {}
        for result in sorted(self.of(EXPECTED), key=lambda result: order.get(result.divergence, len(order))):
            found.setdefault(result.divergence, []).append(result)
        return [(name, self.report.divergence_of(results[0]), results) for name, results in found.items()]

    @cached_property
    def also_declared(self) -> list[Divergence]:
        """Return the plugin's own divergences that no expected failure shows."""
        core = {(entry.name, entry.title) for entry in CORE}
        shown = {name for name, _, _ in self.expected}
        return [
            entry
            for entry in self.report.divergences
            if entry.name not in shown and (entry.name, entry.title) not in core
        ]

    @cached_property
    def missing(self) -> list[Missing]:
        """Return the capabilities that are not there; a scenario that needs two of them counts at both."""
        states = self.report.capabilities
        needed = Counter(
            need
            for result in self.report.results
            if result.outcome == NOT_APPLICABLE
            for need in dict.fromkeys(result.needs)
        )
        found = []
        for capability, description in states.items():
            if description != _THERE:
                state, _, reason = description.partition(":")
                found.append(Missing(line(capability), line(state), line(reason), needed[capability]))
        return found

    @cached_property
    def other_reasons(self) -> dict[str, list[str]]:
        """Return why scenarios do not apply although every capability is there, with their ids."""
        states = self.report.capabilities
        found: dict[str, list[str]] = {}
        for result in self.report.results:
            if result.outcome == NOT_APPLICABLE and all(states.get(need, _THERE) == _THERE for need in result.needs):
                found.setdefault(line(result.message) or "no reason was given", []).append(result.id)
        return found

    @property
    def none_wrong(self) -> str:
        """Return the sentence for a report in which nothing is silently wrong."""
        declared = self.report.declared_wrong
        beyond = f", beyond the {declared} declared below" if declared else ""
        return f"None of the {self.report.ran} scenarios that ran gave a wrong answer with no error{beyond}."

    @property
    def not_applicable(self) -> str:
        """Return the sentences on what does not apply."""
        return (
            f"{self.available} capabilities are there; {len(self.of(NOT_APPLICABLE))} scenarios do not apply. "
            "A scenario that needs two missing capabilities is counted at both. Other reasons are that the "
            "system itself refuses the nesting, or that the plugin lacks an optional hook."
        )

    @property
    def filters(self) -> dict[str, dict[str, int]]:
        """Return what the results can be filtered by, and how many have each value."""
        levels = Counter(result.level for result in self.report.results)
        return {
            "outcome": Tally("all", self.report.results).counts,
            "level": {level: levels[level] for level in LEVELS},
            "hook": {tally.name: len(tally.results) for tally in self.hooks},
        }

    @property
    def available(self) -> str:
        """Return how many of how many capabilities are there."""
        total = len(self.report.capabilities)
        return f"{total - len(self.missing)} of {total}"


def first(ids: Sequence[str]) -> Sequence[str]:
    """Return the first few ids, which stand for all; `more` says how many are left."""
    return ids[:_SHOWN]


def more(ids: Sequence[str]) -> str:
    """Return how many ids `first` leaves out, in words; empty if none."""
    return f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""


def spent(result: Result) -> str:
    """Return the time that a result took; empty if it did not run."""
    return seconds(result.seconds) if count_ran([result]) else ""


def manner(divergence: Divergence) -> str:
    """Return the sentence on how a declared divergence shows."""
    return "A wrong answer, with no error." if divergence.outcome == DECLARED_WRONG else "An error."


def blocks(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield ("prose", text) and ("code", text) of a divergence's Markdown, without the comments for its tests."""
    fence, held = "", list[str]()
    for row in [*clean(markdown).split("\n"), None]:
        found = re.match(r"\s*(`{3,}|~{3,})", row or "")
        turns = row is None or (found is not None and (not fence or found[1].startswith(fence)))
        if row is not None and not turns:
            if fence or not re.match(r"% ?\w", row):
                held.append(row)
            continue
        text = "\n".join(held).strip("\n")
        if text.strip():
            yield ("code" if fence else "prose", text)
        fence, held = ("" if fence or found is None else found[1]), []
