"""The digest: what every written report says, as data, so that text, Markdown and HTML say the same.

Messages hold whatever a framework wrote. `clean` is what makes them fit to be
shown: no control character reaches a terminal or a file.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adprotocol.conformance._run.result import (
    EXPECTED,
    FAIL,
    HARNESS,
    MANIFEST,
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
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from adprotocol.conformance._run.result import Divergence, Report, Result

# Beside the colour, which some readers do not see.
SIGNS: Mapping[str, str] = {WRONG: "!!", FAIL: "✗", EXPECTED: "~", PASS: "✓", NOT_APPLICABLE: "-"}

# What the headings of the reports say of the outcomes that are listed.
MEANINGS: Mapping[str, str] = {
    WRONG: "an answer that is wrong, with no error",
    FAIL: "an error where an answer was due, or another fault that is named",
    EXPECTED: "declared by the plugin, with the reason",
}

# What the heading of the divergences says that no expected failure shows.
ALSO = "what the plugin declares and no scenario of this run shows"

_BLAMED: Mapping[str, str] = {
    HARNESS: "the harness is at fault",
    MANIFEST: "the manifest is at fault",
    TIME: "it ran out of time",
}

THERE = "there"

# How many ids stand for all in a list of reasons.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Lack:
    """Hold a capability that is not there, why, and how many scenarios do not apply because of it."""

    capability: str
    state: str
    reason: str
    scenarios: int


def clean(text: str) -> str:
    """Return text with what is not printable written as escapes; lines and tabs are kept."""
    return "".join(
        character if character in "\n\t" or character.isprintable() else _escaped(character)
        for character in text.replace("\r\n", "\n")
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def line(text: str) -> str:
    """Return text, cleaned, on one line."""
    return " ".join(clean(text).split())


def cut(text: str, most: int = 160) -> str:
    """Return at most so many characters, for a list; the text stands in full elsewhere."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def title(report: Report) -> str:
    """Return the backend with the version of its framework."""
    return line(" ".join(part for part in (report.backend, report.framework_version) if part))


def verdict(report: Report) -> str:
    """Return PASS or FAIL; a PASS says how many wrong answers it is in spite of."""
    if not report.ok:
        return "FAIL"
    number = report.declared_wrong
    return f"PASS, with {number} answer{'s' * (number > 1)} declared silently wrong" if number else "PASS"


def verdict_kind(report: Report) -> str:
    """Return the outcome whose colour the verdict has."""
    return (EXPECTED if report.declared_wrong else PASS) if report.ok else FAIL


def facts(report: Report) -> dict[str, str]:
    """Return what was run, on what and with what, for the head of a report."""
    plugin = " ".join(part for part in (report.plugin, report.plugin_version) if part)
    words = "".join(f" -k {word}" for word in report.keywords)
    found = {
        "plugin": plugin or "-",
        "framework": " ".join((report.backend, report.framework_version or "of unknown version")),
        "device": report.device or "the default",
        "adprotocol": report.adprotocol,
        "python": f"{report.python} on {report.platform}",
        "selection": f"--level {report.level}{words}",
    }
    return {key: line(value) for key, value in found.items()}


def listed(report: Report, outcome: str) -> list[Result]:
    """Return the results of one outcome, MUST before MAY."""
    return [result for result in report.sorted() if result.outcome == outcome]


def standing(result: Result) -> str:
    """Return level, rule and version of a scenario, and whose fault a failure is if not the plugin's."""
    said = [f"{result.level}, rule {result.rule}, since {result.since}"]
    if result.outcome in (WRONG, FAIL):
        said += [_BLAMED[result.cause]] if result.cause in _BLAMED else []
        said += [] if result.bad else ["it does not fail the suite"]
    return line("; ".join(said))


def declared(report: Report, result: Result) -> str:
    """Return the title of the divergence that an expected failure belongs to."""
    titles = {divergence.name: divergence.title for divergence in report.divergences}
    return line(titles.get(result.divergence, result.divergence) or result.message)


def none_wrong(report: Report) -> str:
    """Return the sentence for a report in which nothing is silently wrong."""
    number = report.declared_wrong
    beyond = f", beyond the {number} declared below" if number else ""
    return f"None of the {report.ran} scenarios that ran gave a wrong answer with no error{beyond}."


def by_divergence(report: Report) -> dict[str, list[Result]]:
    """Return the expected failures by the name of their divergence, in the order of the manifest."""
    order = {divergence.name: place for place, divergence in enumerate(report.divergences)}
    found: dict[str, list[Result]] = {}
    for result in sorted(listed(report, EXPECTED), key=lambda result: order.get(result.divergence, len(order))):
        found.setdefault(result.divergence, []).append(result)
    return found


def also_declared(report: Report) -> list[Divergence]:
    """Return the plugin's divergences that no expected failure shows; those of every framework are not its own."""
    core = {(entry.name, entry.title) for entry in CORE}
    shown = by_divergence(report)
    return [entry for entry in report.divergences if entry.name not in shown and (entry.name, entry.title) not in core]


def lacks(report: Report) -> list[Lack]:
    """Return the capabilities that are not there; a scenario that takes two of them is counted at both."""
    missing = Counter(
        need
        for result in report.results
        if result.outcome == NOT_APPLICABLE
        for need in dict.fromkeys(result.needs)
        if report.capabilities.get(need, THERE) != THERE
    )
    found = []
    for capability, said in report.capabilities.items():
        if said != THERE:
            state, _, reason = said.partition(":")
            found.append(Lack(line(capability), line(state), line(reason), missing[capability]))
    return found


def other_reasons(report: Report) -> dict[str, list[str]]:
    """Return why scenarios do not apply although every capability is there, and their ids."""
    found: dict[str, list[str]] = {}
    for result in report.results:
        if result.outcome == NOT_APPLICABLE and all(
            report.capabilities.get(need, THERE) == THERE for need in result.needs
        ):
            found.setdefault(line(result.message) or "no reason was given", []).append(result.id)
    return found


def named(ids: Sequence[str], shown: Callable[[str], str] = line) -> str:
    """Return the first few ids, each as `shown` writes it, and how many more there are."""
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(map(shown, ids[:_NAMED])) + more


def not_applicable(report: Report) -> str:
    """Return the sentences on what does not apply."""
    there = sum(said == THERE for said in report.capabilities.values())
    return (
        f"{there} of {len(report.capabilities)} capabilities are there; {report.counts()[NOT_APPLICABLE]} scenarios do "
        "not apply. One that takes two capabilities that are not there is counted at both. Other reasons are that the "
        "system itself refuses the nesting, or that the plugin lacks an optional hook."
    )


def by_hook(report: Report) -> dict[str, list[Result]]:
    """Return the results by hook, in the order in which they ran."""
    found: dict[str, list[Result]] = {}
    for result in report.results:
        found.setdefault(result.hook, []).append(result)
    return found


def by_level(report: Report) -> dict[str, list[Result]]:
    """Return the results by level, for the levels that were selected, and then all."""
    levels = {level: [result for result in report.results if result.level == level] for level in LEVELS}
    return {level: results for level, results in levels.items() if results} | {"all": list(report.results)}


def summary(outcomes: Iterable[str]) -> str:
    """Return how many there are of each outcome, the worst first, in words."""
    counts = Counter(outcomes)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])


def spent(result: Result) -> str:
    """Return the time that a result took; empty if it did not run."""
    return seconds(result.seconds) if count_ran([result]) else ""


def seconds(value: float) -> str:
    """Return a time with two significant digits, or in whole milliseconds."""
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def how(divergence: Divergence) -> str:
    """Return the sentence on how what a divergence declares fails."""
    return "Another answer, with no error." if divergence.outcome == DECLARED_WRONG else "An error."


def spans(markdown: str) -> str:
    """Return as HTML the spans of code of an author's Markdown as such, and the rest as it is written."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(markdown))


def blocks(markdown: str) -> Iterator[tuple[str, str]]:
    """Yield ("prose", text) and ("code", text) of the Markdown of a divergence, without the comments for its tests."""
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
