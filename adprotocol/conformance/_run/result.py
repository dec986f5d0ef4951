"""Results: the outcome of each case, the report of a run, and both as JSON, from which every report is written."""

from __future__ import annotations

import json
import platform
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import adprotocol
from adprotocol.conformance._run.backend import UsageError
from adprotocol.conformance.scenario import LEVELS, MAY
from adprotocol.divergence import WRONG as DECLARED_WRONG
from adprotocol.divergence import Divergence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from adprotocol.conformance.scenario import Scenario

# Changes only when readers of the JSON have to.
SCHEMA = 2

# An answer that is wrong with no error: the first of the failures in every report.
WRONG = "silently wrong"
# The process ended, by a signal for example.
CRASHED = "crashed"
FAIL = "fail"
EXPECTED = "expected failure"
PASS = "pass"  # noqa: S105  (an outcome)
NOT_APPLICABLE = "n/a"
OUTCOMES = (WRONG, CRASHED, FAIL, EXPECTED, PASS, NOT_APPLICABLE)

# Who is at fault for a failure.
PLUGIN, HARNESS, DIVERGENCES, TIME = "plugin", "harness", "divergences", "time limit"

# The states of a capability.
THERE, ABSENT, BROKEN = "there", "absent", "broken"

# Where a problem is if neither the harness nor a divergence is at fault: the run did not come to its end.
RUN = "run"

_OF_SCENARIO = ("id", "hook", "level", "rule", "transform", "needs", "since", "source", "summary", "description")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """Hold the outcome of one case: a scenario, or a variant of it.

    Attributes:
        id: the scenario's, followed by ``@capability=variant`` for a variant.
        outcome: one of `OUTCOMES`.
        ran: False if a fault of the harness kept the scenario from running.
        staged: an answer of `within_gradient` stayed open until the transformation was applied.
        cause: who is at fault for a failure (`PLUGIN`, `HARNESS`, `DIVERGENCES`, `TIME`); empty without one.
        message: what went wrong, or why it does not apply, in one line.
        detail: the traceback of a failure, without the frames of the suite.
        divergence: the name of the declared divergence that an expected failure belongs to.
        repro: Python to paste that fails in the same way; empty unless it failed.
        seconds: how long it took.
    """

    id: str
    hook: str
    level: str
    rule: str
    transform: str
    needs: tuple[str, ...]
    since: str
    source: str
    summary: str
    description: str
    outcome: str
    ran: bool = True
    staged: bool = False
    cause: str = ""
    message: str = ""
    detail: str = ""
    divergence: str = ""
    repro: str = ""
    seconds: float = 0.0

    @classmethod
    def of(cls, scenario: Scenario, **known: Any) -> Self:
        """Return the result of a scenario with its data; `known` has the other fields, and the id of a variant."""
        data = {name: getattr(scenario, name) for name in _OF_SCENARIO}
        return cls(**(data | known))

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the result that the JSON has."""
        return cls(**{**data, "needs": tuple(data["needs"])})

    @property
    def applied(self) -> bool:
        """Return whether it applied and ran."""
        return self.ran and self.outcome != NOT_APPLICABLE

    @property
    def bad(self) -> bool:
        """Return whether it fails the suite: silently wrong or crashed at any level, a failure above MAY."""
        if self.outcome == FAIL:
            return self.level != MAY or self.cause != PLUGIN
        return self.outcome in (WRONG, CRASHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Hold what is wrong apart from any scenario: with the harness, the divergences or, if cut short, the run."""

    where: str
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Hold the results of one run of the suite, and what was run.

    `total` counts the cases that there are without a selection. `capabilities` maps
    each to "there", "absent: why" or "broken: why". `files` maps the root modules of
    adprotocol, the plugin and the framework to the files that ran. `changes` has an
    id, the outcome of the run `since`, and that of now.
    """

    backend: str
    framework_version: str | None = None
    plugin: str | None = None
    plugin_version: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    level: str = MAY
    keywords: tuple[str, ...] = ()
    total: int = 0
    results: tuple[Result, ...] = ()
    capabilities: Mapping[str, str] = field(default_factory=dict)
    divergences: tuple[Divergence, ...] = ()
    since: str = ""
    changes: tuple[tuple[str, str, str], ...] = ()
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    adprotocol: str = adprotocol.__version__
    python: str = field(default_factory=platform.python_version)
    platform: str = field(default_factory=platform.platform)

    @property
    def title(self) -> str:
        """Return the backend with the version of its framework."""
        return " ".join(filter(None, [self.backend, self.framework_version]))

    @property
    def tested(self) -> list[str]:
        """Return what ran, a line each: the plugin with its version, and the files."""
        plugin = " ".join(filter(None, ["plugin", self.plugin, self.plugin_version]))
        return [f"{plugin}, adprotocol {self.adprotocol}", *(f"{name}: {file}" for name, file in self.files.items())]

    @property
    def ok(self) -> bool:
        """Return whether nothing is wrong: no bad result, no problem, and something ran."""
        return not self.problems and not any(result.bad for result in self.results) and self.ran > 0

    @property
    def ran(self) -> int:
        """Count the results that applied and ran."""
        return sum(result.applied for result in self.results)

    @property
    def blocked(self) -> int:
        """Count the results that applied and could not run."""
        return sum(not result.ran for result in self.results)

    @property
    def declared_wrong(self) -> int:
        """Count the expected failures that are wrong answers with no error."""
        wrong = {divergence.name for divergence in self.divergences if divergence.outcome == DECLARED_WRONG}
        return sum(result.outcome == EXPECTED and result.divergence in wrong for result in self.results)

    def divergence_of(self, result: Result) -> Divergence | None:
        """Return the declared divergence that an expected failure belongs to, if the report has it."""
        return next((entry for entry in self.divergences if entry.name == result.divergence), None)

    def reason(self, result: Result) -> str:
        """Return why a result is not a pass: what went wrong, or the title and the remedy of its divergence."""
        declared = self.divergence_of(result) if result.outcome == EXPECTED else None
        if declared is None:
            return result.message
        return f"{declared.title}; remedy: {declared.remedy}" if declared.remedy else declared.title

    def sentence(self) -> str:
        """Return how many of how many ran, and the count of each outcome, in words."""
        silent = f" ({self.declared_wrong} of them silently wrong)" if self.declared_wrong else ""
        words = ", ".join(
            f"{count} {outcome}{silent if outcome == EXPECTED else ''}"
            for outcome, count in counts(self.results).items()
            if count
        )
        blocked = f", {self.blocked} could not for a fault of the harness" if self.blocked else ""
        of_all = f" (selected from {self.total})" if len(self.results) != self.total else ""
        problems = f"; {len(self.problems)} problem(s)" if self.problems else ""
        return f"{self.ran} of {len(self.results)} scenarios ran{blocked}{of_all}: {words or 'nothing'}{problems}"

    def data(self) -> dict[str, Any]:
        """Return the content of the JSON file."""
        return {
            "schema": SCHEMA,
            **asdict(self),
            "ok": self.ok,
            "summary": {
                "selected": len(self.results),
                "ran": self.ran,
                "blocked": self.blocked,
                **counts(self.results),
                "levels": {level: counts(each for each in self.results if each.level == level) for level in LEVELS},
                "sentence": self.sentence(),
            },
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Return the report that the JSON has."""
        kept = {key: value for key, value in data.items() if key not in ("schema", "ok", "summary")}
        kept["keywords"] = tuple(kept["keywords"])
        kept["results"] = tuple(map(Result.from_data, kept["results"]))
        kept["divergences"] = tuple(
            Divergence(**{**entry, **{key: tuple(entry.get(key, ())) for key in ("scenarios", "errors")}})
            for entry in kept["divergences"]
        )
        kept["changes"] = tuple(map(tuple, kept.get("changes", ())))
        kept["problems"] = tuple(Problem(**problem) for problem in kept["problems"])
        return cls(**kept)


def to_json(report: Report) -> str:
    """Return the JSON text of a report, which ends with a newline."""
    return json.dumps(report.data(), indent=1) + "\n"


def from_json(text: str) -> Report:
    """Return the report that a JSON text holds.

    Raises ValueError unless it is a report of schema `SCHEMA`.
    """
    data = json.loads(text)
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise ValueError(
            f"this is not a conformance report of schema {SCHEMA}: its schema is {schema!r}; run the suite again"
        )
    return Report.from_data(data)


def read(path: str) -> Report:
    """Return the report in a JSON file; raises `UsageError` if it holds none."""
    try:
        return from_json(Path(path).read_text("utf-8"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"{path} holds no report that --json wrote: {error}") from error


def compared(report: Report, earlier: Report) -> Report:
    """Return a report with what has changed since an earlier run, what is worst now first.

    A new scenario counts if it does not pass, one that is gone if none was left out.
    """
    then, now = ({each.id: each.outcome for each in one.results} for one in (earlier, report))
    gone = dict.fromkeys(then.keys() - now.keys(), "gone") if len(now) == report.total else {}
    changes = [
        (name, then.get(name, "new"), outcome)
        for name, outcome in {**now, **gone}.items()
        if outcome != then.get(name) and (name in then or outcome not in (PASS, NOT_APPLICABLE))
    ]
    worst = sorted(changes, key=lambda change: (*OUTCOMES, "gone").index(change[2]))
    return replace(report, since=", ".join([earlier.title, earlier.tested[0]]), changes=tuple(worst))


def counts(results: Iterable[Result]) -> dict[str, int]:
    """Count the results of each outcome, the worst outcome first."""
    counted = Counter(result.outcome for result in results)
    return {outcome: counted[outcome] for outcome in OUTCOMES}
