"""The digest: what every report says, as data, so that text, Markdown and HTML say the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from adprotocol.conformance._reports.entries import Entry, entries, reasons
from adprotocol.conformance._reports.matrix import Matrix
from adprotocol.conformance._reports.words import line, seconds
from adprotocol.conformance._run import result as results
from adprotocol.conformance._run.result import (
    ABSENT,
    CRASHED,
    EXPECTED,
    FAIL,
    HARNESS,
    NOT_APPLICABLE,
    OUTCOMES,
    PASS,
    THERE,
    UNDEFINED,
    WRONG,
)
from adprotocol.conformance.scenario import LEVELS
from adprotocol.divergence import CORE
from adprotocol.divergence import WRONG as DECLARED_WRONG

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from adprotocol.conformance._run.result import Divergence, Report, Result

# What the headings of the reports add to an outcome.
MEANINGS: Mapping[str, str] = {
    WRONG: "an answer that is wrong, with no error",
    CRASHED: "the process ended, or had to be ended; the rest ran in another",
    FAIL: "an error where an answer was due, or another fault that is named",
    EXPECTED: "declared by the plugin, with the reason",
}
# Functions of a few lines in any system; without them faults pass unseen.
SMALL = ("sum", "where", "dtypes", "cast", "operations")
# The outcomes that the plugin does not declare.
BAD = (WRONG, CRASHED, FAIL)
ALSO = "what the plugin declares and no scenario of this run shows"

_BLAME: Mapping[str, str] = {
    HARNESS: "the harness is at fault",
    results.DIVERGENCES: "the declared divergences are at fault",
    results.TIME: "it ran out of time",
}


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
        return f"{results.count_ran(self.results)} of {len(self.results)}"

    @property
    def counts(self) -> dict[str, int]:
        """Return how many results there are of each outcome."""
        return results.counts(self.results)

    @property
    def sentence(self) -> str:
        """Return how many ran and the counts in words, the worst outcome first."""
        return f"{self.ran} ran: {', '.join(f'{count} {outcome}' for outcome, count in self.counts.items() if count)}"


class Digest:
    """Derive from a report what is shown of it."""

    def __init__(self, report: Report) -> None:
        self.report = report

    @property
    def title(self) -> str:
        """Return the backend with the version of its framework."""
        return line(f"{self.report.backend} {self.report.framework_version or ''}")

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
        found = {
            "plugin": " ".join(filter(None, (report.plugin, report.plugin_version))) or "-",
            "framework": f"{report.backend} {report.framework_version or 'of unknown version'}",
            "device": report.device or "the default",
            "adprotocol": report.adprotocol,
            "python": f"{report.python} on {report.platform}",
            "selection": " -k ".join([f"--level {report.level}", *report.keywords]),
        }
        return {key: line(value) for key, value in found.items()}

    @cached_property
    def matrix(self) -> Matrix:
        """Return the support matrix of the report: what applies."""
        return Matrix.of({line(self.report.backend): self.report}).applicable()

    @cached_property
    def outcomes(self) -> list[Tally]:
        """Return the results by outcome, the worst first."""
        return self._tallies("outcome", OUTCOMES)

    @cached_property
    def levels(self) -> list[Tally]:
        """Return the results by level, for the levels that were selected, and then all."""
        return [*self._tallies("level", LEVELS), self.all]

    @cached_property
    def hooks(self) -> list[Tally]:
        """Return the results by hook, in the order in which they ran."""
        return self._tallies("hook", dict.fromkeys(result.hook for result in self.report.results))

    @property
    def all(self) -> Tally:
        """Return all results."""
        return Tally("all", self.report.results)

    def _tallies(self, field: str, values: Iterable[str]) -> list[Tally]:
        groups = {value: [each for each in self.report.results if getattr(each, field) == value] for value in values}
        return [Tally(value, found) for value, found in groups.items() if found]

    def of(self, outcome: str) -> list[Result]:
        """Return the results of one outcome, MUST before MAY."""
        return [result for result in self.report.sorted() if result.outcome == outcome]

    @cached_property
    def entries(self) -> dict[str, list[Entry]]:
        """Return what went wrong by outcome, each fault once; expected failures in the order of their divergences."""
        order = {entry.name: place for place, entry in enumerate(self.report.divergences)}
        declared: dict[str, list[Result]] = {}
        for result in sorted(self.of(EXPECTED), key=lambda result: order.get(result.divergence, len(order))):
            declared.setdefault(result.divergence, []).append(result)
        found = {outcome: entries(self.report, self.of(outcome)) for outcome in BAD}
        return {**found, EXPECTED: list(map(Entry, declared.values()))}

    @cached_property
    def _places(self) -> dict[int, tuple[str, Entry]]:
        # By identity: the ids of variants may coincide.
        every = (entry for found in self.entries.values() for entry in found)
        return {id(result): (f"entry-{n}", entry) for n, entry in enumerate(every) for result in entry.results}

    def entry(self, result: Result) -> Entry | None:
        """Return the entry of a result; None if nothing went wrong."""
        return self._places[id(result)][1] if id(result) in self._places else None

    def anchor(self, result: Result) -> str:
        """Return the anchor of the entry of a result."""
        return self._places[id(result)][0]

    def alike(self, entry: Entry) -> list[Entry]:
        """Return the results of one divergence, those of one message together."""
        return entries(self.report, entry.results)

    def standing(self, entry: Entry) -> str:
        """Return levels, rules and versions of the scenarios, and who is at fault if not the plugin."""
        notes, result = [entry.standing], entry.first
        if result.outcome in BAD:
            notes += [_BLAME[result.cause]] if result.cause in _BLAME else []
            notes += [] if result.bad else ["it does not fail the suite"]
        return line("; ".join(notes))

    def fields(self, entry: Entry) -> dict[str, str]:
        """Return what is told of an entry, by name; of one that could not run, who is at fault and why."""
        result = entry.first
        told = {
            "level": self.standing(entry),
            "summary": result.description * result.ran,
            "found": entry.message,
            "declared": self.report.reason(result) if result.outcome == EXPECTED else "",
            "source": result.source * result.ran,
        }
        return {name: line(text) for name, text in told.items() if text}

    @cached_property
    def also_declared(self) -> list[Divergence]:
        """Return the plugin's own divergences that no expected failure shows."""
        core = {(entry.name, entry.title) for entry in CORE}
        shown = {entry.first.divergence for entry in self.entries[EXPECTED]}
        return [
            entry
            for entry in self.report.divergences
            if entry.name not in shown and (entry.name, entry.title) not in core
        ]

    @cached_property
    def missing(self) -> list[Missing]:
        """Return the capabilities that are not there; a scenario that needs two of them counts at both."""
        needed = Counter(need for result in self.of(NOT_APPLICABLE) for need in set(result.needs))
        states = {name: self.report.state(name) for name in self.report.capabilities}
        return [
            Missing(line(name), line(state), line(reason), needed[name])
            for name, (state, reason) in states.items()
            if state != THERE
        ]

    @cached_property
    def other_reasons(self) -> dict[str, list[str]]:
        """Return why scenarios do not apply although every capability is there, with their ids."""
        return reasons(
            result
            for result in self.of(NOT_APPLICABLE)
            if all(self.report.state(need)[0] == THERE for need in result.needs)
        )

    @cached_property
    def sections(self) -> dict[str, str]:
        """Return the headings of the parts that a written report has, in their order, by a name for each."""
        report, count = self.report, self.report.counts()
        headings = {
            "matrix": "Support matrix" * bool(report.results),
            "problems": f"Problems{report.troubled}: {len(report.problems)}" * bool(report.problems),
            WRONG: f"{WRONG.capitalize()}: {count[WRONG]}",
            CRASHED: f"{CRASHED.capitalize()}: {count[CRASHED]}" * bool(count[CRASHED]),
            FAIL: f"{FAIL.capitalize()}: {count[FAIL]}" * bool(count[FAIL]),
            EXPECTED: f"Expected failures: {count[EXPECTED]}" * bool(count[EXPECTED]),
            "also": f"Also declared: {len(self.also_declared)}" * bool(self.also_declared),
            "capabilities": f"Capabilities: {self.available}" * bool(self.missing or self.other_reasons),
            "slowest": f"Slowest, of {seconds(report.seconds)}" * bool(report.slowest()),
            "scenarios": f"Every scenario: {len(report.results)}",
        }
        return {name: heading for name, heading in headings.items() if heading}

    @property
    def suggestion(self) -> str:
        """Return what a few small functions of the harness would add, on one line; empty if none is left out."""
        lacking = {one.capability for one in self.missing if one.state == ABSENT}
        left = [one.capability for one in self.missing if one.capability in SMALL and one.reason == UNDEFINED]
        more = sum(bool(needs) and needs <= set(left) for needs in self._lacked(lacking))
        if not more:
            return ""
        functions = f"{len(left)} small function{'s' * (len(left) > 1)}"
        return f"{functions} more in the harness would run {more} scenarios: {', '.join(left)}"

    def _lacked(self, lacking: set[str]) -> Iterator[set[str]]:
        for result in self.of(NOT_APPLICABLE):
            yield lacking.intersection(result.needs)

    @property
    def advice(self) -> str:
        """Return what to do next, on one line; empty if nothing is wrong."""
        report = self.report
        places = [problem.where for problem in report.problems]
        bad = next((one for found in self.entries.values() for one in found if one.first.bad), None)
        if report.ok:
            return ""
        if results.RUN in places:
            return "run it again; the report has what ran until then"
        if HARNESS in places:
            return "begin with the problems, which come first above, and run it again; -v shows where each is raised"
        if bad is not None:
            name, remedy = line(bad.first.id), "paste its repro into Python, or " * bool(bad.first.repro)
            return f"begin with {name}: {remedy}run that alone with its traceback, by -k {name} -v"
        if places:
            return "correct what the plugin declares, as the problems above say, and run it again"
        return "nothing ran: let the harness have the capabilities that are missing, or select other scenarios"

    @property
    def none_wrong(self) -> str:
        """Return the sentence for a report in which nothing is silently wrong."""
        declared = self.report.declared_wrong
        beyond = f", beyond the {declared} declared below" if declared else ""
        return f"None of the {self.report.ran} scenarios that ran gave a wrong answer with no error{beyond}."

    @property
    def available(self) -> str:
        """Return how many of how many capabilities are there."""
        total = len(self.report.capabilities)
        return f"{total - len(self.missing)} of {total}"


def spent(result: Result) -> str:
    """Return the time that a result took; empty if it did not run."""
    return seconds(result.seconds) if results.count_ran([result]) else ""


def manner(divergence: Divergence) -> str:
    """Return the sentence on how a declared divergence shows."""
    return "A wrong answer, with no error." if divergence.outcome == DECLARED_WRONG else "An error."
