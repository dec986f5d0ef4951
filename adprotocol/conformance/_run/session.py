"""A session: the cases of a run one after another, told as events, and the log that keeps what is told.

`suite` runs a session where it is called; `supervisor` runs it in a process of its own,
and one more behind whatever ends that process, or several that share the cases.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from adprotocol.conformance._run import declared
from adprotocol.conformance._run.backend import UsageError
from adprotocol.conformance._run.canary import Canary
from adprotocol.conformance._run.case import select
from adprotocol.conformance._run.result import RUN, Problem, Report, Result
from adprotocol.conformance._run.runner import SECONDS, Runner
from adprotocol.conformance.scenario import MAY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from adprotocol.conformance._run.backend import Backend
    from adprotocol.conformance._run.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Hold which cases run, how long each may take, and the plugin that the harness has to be for, if one is named.

    A session runs every case, or every second one, of two that run beside each other: ``part`` of ``parts``.
    """

    keywords: Sequence[str] = ()
    level: str = MAY
    seconds: float = SECONDS
    plugin: str = ""
    part: int = 0
    parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Hold what earlier sessions of a run have found.

    Attributes:
        done: the ids of the cases that have a result.
        suspects: how many of the cases to come are followed by a check each, since one of them breaks the system.
        crashed: what ended the process, for each check of the harness that did.
    """

    done: frozenset[str] = frozenset()
    suspects: int = 0
    crashed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Checking:
    """A check of the harness begins."""

    name: str


@dataclass(frozen=True, slots=True)
class Begun:
    """All is known but the results; `ids` are those of the selected cases, None before the survey."""

    report: Report
    ids: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Running:
    """A case begins."""

    id: str


@dataclass(frozen=True, slots=True)
class Finished:
    """A case has a result; `fault` says in which way the system is broken behind it, None if that was not tried."""

    result: Result
    fault: str | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Every case has a result."""


Event = Checking | Begun | Running | Finished | Ended


class Session:
    """Run the cases of a backend, until they end or the system is broken."""

    def __init__(self, backend: Backend, selection: Selection, resume: Resume | None = None) -> None:
        select((), selection.keywords, selection.level)  # a wrong selection is refused before anything runs
        if selection.plugin not in ("", backend.name):
            raise UsageError(f"the harness is for {backend.name!r}, and {selection.plugin!r} was named; leave that out")
        self.backend, self.selection, self.resume = backend, selection, resume or Resume()
        self.runner = Runner(backend, selection.seconds)
        self.survey = self.runner.survey
        self.survey.crashed = self.resume.crashed

    def run(self, tell: Callable[[Event], None]) -> None:
        """Run the cases, and tell each event."""
        self.survey.announce = lambda name: tell(Checking(name))
        try:
            tell(Begun(self._report(0)))
            self.survey.make()
            every = self.survey.cases()
            chosen = select(every, self.selection.keywords, self.selection.level)
            tell(Begun(self._report(len(every)), tuple(case.id for case in chosen)))
            own = chosen[self.selection.part :: self.selection.parts]
            if self._sound([case for case in own if case.id not in self.resume.done], tell):
                tell(Ended())
        finally:
            self.survey.close()

    def _sound(self, cases: Sequence[Case], tell: Callable[[Event], None]) -> bool:
        """Run cases while the system is sound, and return whether it still is."""
        canary = Canary(self.survey)
        for place, case in enumerate(cases, 1):
            tell(Running(case.id))
            result = self.runner.run(case)
            fault = canary.behind(result, now=place <= self.resume.suspects or place == len(cases))
            if fault and canary.suspects == 1:
                result = self.runner.blamed(case, result, fault)
            tell(Finished(result, fault))
            if fault:
                return False
        return True

    def _report(self, total: int) -> Report:
        found, survey, selection = self.backend, self.survey, self.selection
        return Report(
            backend=found.name,
            framework_version=found.framework_version,
            plugin=found.plugin,
            plugin_version=found.plugin_version,
            device=found.harness.device,
            level=selection.level,
            keywords=tuple(selection.keywords),
            total=total,
            results=(),
            capabilities=dict(survey.capabilities),
            divergences=declared.reported(survey.divergences),
            problems=tuple(survey.problems),
        )


class Log:
    """Keep what sessions have told that share the cases of a run.

    Attributes:
        head: the report without results, None before the first session has begun.
        ids: those of the selected cases, None before a session has told them.
        results: those behind which the system was sound, and any behind which it is known to be broken.
    """

    def __init__(self, on_start: Callable[[int], None], on_result: Callable[[Result], None]) -> None:
        self._on_start, self._on_result = on_start, on_result
        self._begin = time.perf_counter()
        self._lock = threading.Lock()
        self._strands: list[Strand] = []
        self.head: Report | None = None
        self.ids: tuple[str, ...] | None = None
        self.results: list[Result] = []
        self.problems: list[Problem] = []

    def strand(self) -> Strand:
        """Return a new strand of this log."""
        self._strands.append(Strand(self))
        return self._strands[-1]

    def begin(self, report: Report, ids: tuple[str, ...] | None) -> None:
        """Keep what is known before the first result."""
        with self._lock:
            if ids is not None or self.head is None:
                self.head = report
            if ids is not None and self.ids is None:
                self.ids = ids
                self._on_start(len(ids))

    def keep(self, results: Iterable[Result]) -> None:
        """Keep results."""
        with self._lock:
            for result in results:
                self.results.append(result)
                self._on_result(result)

    def note(self, message: str) -> None:
        """Note a problem of the run itself."""
        self.problems.append(Problem(where=RUN, message=message))

    def report(self) -> Report:
        """Return the report of what is kept."""
        assert self.head is not None  # noqa: S101  (a session tells it first)
        order = {identifier: place for place, identifier in enumerate(self.ids or ())}
        return dataclasses.replace(
            self.head,
            results=tuple(sorted(self.results, key=lambda result: order[result.id])),
            problems=(*self.head.problems, *self.problems),
            seconds=round(time.perf_counter() - self._begin, 2),
        )

    def interrupted(self) -> Report:
        """Return the report of what ran until an interrupt by the user."""
        for strand in self._strands:
            strand.keep()
        self.note(f"interrupted after {len(self.results)} of {len(self.ids or ())} scenarios")
        return self.report()


class Strand:
    """Follow one session after another; results behind which the system turns out to be broken are not kept.

    Attributes:
        unsure: the results since the last check.
        checking: the check of the harness that is under way.
        running: the id of the case that is under way.
        fault: in which way the system is broken.
        has_begun: whether a session has told its cases.
        ended: whether every case of the session has a result.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.unsure: list[Result] = []
        self.has_begun: bool = False
        self.open()

    def open(self) -> None:
        """Forget what the last session was about to do."""
        self.checking, self.running, self.fault, self.ended = "", "", "", False
        self.unsure.clear()

    def take(self, event: Event) -> None:
        """Keep an event."""
        match event:
            case Checking(name):
                self.checking = name
            case Begun(report, ids):
                self.log.begin(report, ids)
                self.has_begun |= ids is not None
                self.checking = ""
            case Running(identifier):
                self.running = identifier
            case Finished(result, fault):
                self.running, self.fault = "", fault or ""
                self.unsure.append(result)
                # Of several, one of which has broken the system, none is known to be right.
                if fault == "" or (fault and len(self.unsure) == 1):
                    self.keep()
            case Ended():
                self.ended = True

    def keep(self) -> None:
        """Keep the results since the last check."""
        told, self.unsure = self.unsure, []
        self.log.keep(told)

    def broken(self) -> None:
        """Note that the run stopped because the system is broken, and behind which cases."""
        results = self.log.results
        names = [result.id for result in self.unsure] or [results[-1].id]
        one_of = "one of " * (len(names) > 1)
        left = len(self.log.ids or ()) - len(results)
        self.log.note(f"stopped behind {one_of}{', '.join(names)}: {self.fault}; {left} scenarios have no result")
