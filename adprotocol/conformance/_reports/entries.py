"""What every report says beside the results themselves: what one fault explains, and what does not apply."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from adprotocol.conformance._reports.words import line
from adprotocol.conformance._run.result import CRASHED, EXPECTED, FAIL, NOT_APPLICABLE, OUTCOMES, THERE, WRONG
from adprotocol.conformance.scenario import LEVELS

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from adprotocol.conformance._run.result import Report, Result

# What the headings of the reports add to an outcome.
MEANINGS: Mapping[str, str] = {
    WRONG: "an answer that is wrong, with no error",
    CRASHED: "the process ended, or had to be ended; the rest ran in another",
    FAIL: "an error where an answer was due, or another fault that is named",
    EXPECTED: "declared by the plugin, with the reason",
}
# The outcomes that the plugin does not declare.
BAD = (WRONG, CRASHED, FAIL)

# What differs between messages of one cause: the nesting that is refused, addresses, and numbers.
_UNDER = re.compile(r"^([^:]*?) under [^:]*(?=: )")
_VARYING = re.compile(r"(?<=\brefuses )[^:]*(?=: )|\b(0x[0-9a-fA-F]+|\d[\d.]*(e[+-]?\d+)?)")


def entries(report: Report, outcome: str) -> list[list[Result]]:
    """Return the results of one outcome, MUST before MAY, those of one cause together, but not what could not run."""
    groups: dict[Hashable, list[Result]] = {}
    for result in sorted(report.results, key=lambda result: LEVELS.index(result.level)):
        if result.outcome == outcome and result.ran:
            groups.setdefault(_cause(result), []).append(result)
    return list(groups.values())


def _cause(result: Result) -> Hashable:
    if result.outcome == EXPECTED:
        return result.divergence
    message = _UNDER.sub(r"\1", line(result.message))
    if result.outcome == WRONG:  # another number is another answer
        return result.hook, message
    return result.bad, result.cause, _VARYING.sub("#", message)


def cells(report: Report) -> dict[tuple[str, str], list[Result]]:
    """Return the results by transformation and hook, the worst outcome of each first.

    Nestings are together by the outermost transformation.
    """
    found: dict[tuple[str, str], list[Result]] = {}
    for result in sorted(report.results, key=lambda result: OUTCOMES.index(result.outcome)):
        outer, nested, _ = line(result.transform).partition(" of ")
        found.setdefault((f"{outer} of ..." if nested else outer or "no transform", result.hook), []).append(result)
    return found


def missing(report: Report) -> dict[str, tuple[str, int]]:
    """Return each capability that is not there with its state, and how many scenarios need it and do not apply."""
    absent = (result for result in report.results if result.outcome == NOT_APPLICABLE)
    needed = Counter(need for result in absent for need in set(result.needs))
    return {name: (state, needed[name]) for name, state in report.capabilities.items() if state != THERE}


def other_reasons(report: Report) -> dict[str, list[str]]:
    """Return why scenarios do not apply although every capability is there, with the ids for each reason."""
    reasons: dict[str, tuple[str, list[str]]] = {}
    for result in report.results:
        there = all(report.capabilities.get(need, THERE) == THERE for need in result.needs)
        if result.outcome == NOT_APPLICABLE and there:
            message = line(result.message) or "no reason was given"
            reasons.setdefault(_VARYING.sub("#", message), (message, []))[1].append(result.id)
    return dict(reasons.values())
