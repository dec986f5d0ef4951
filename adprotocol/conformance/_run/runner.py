"""The runner: every selected case under a time limit, and its outcome.

Nothing that a harness, a plugin or a scenario does ends the run: it is reported, and
the next case runs.
"""

from __future__ import annotations

import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance._run import expected, preflight
from adprotocol.conformance._run.backend import UsageError
from adprotocol.conformance._run.case import Case, select
from adprotocol.conformance._run.clock import TimeLimit
from adprotocol.conformance._run.repro import repro
from adprotocol.conformance._run.result import (
    DIVERGENCES,
    EXPECTED,
    FAIL,
    HARNESS,
    NOT_APPLICABLE,
    PASS,
    PLUGIN,
    TIME,
    WRONG,
    Problem,
    Report,
    Result,
)
from adprotocol.conformance._run.survey import Survey, detail_of
from adprotocol.conformance.checks import Absent, Checked, HarnessFault, WrongAnswer
from adprotocol.conformance.scenario import MAY
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance._run.backend import Backend
    from adprotocol.conformance.harness import Harness

SECONDS = 60.0
# The longest that a lock can wait.
LONGEST = threading.TIMEOUT_MAX


class Interrupted(KeyboardInterrupt):
    """The user interrupted a run; `report` has what ran until then, and a problem that says so."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.problems[-1].message)
        self.report = report


class Runner:
    """Run cases on one backend.

    `prepare` checks the harness and the divergences; `run` runs one case. Both
    never raise, except for an interrupt by the user.
    """

    def __init__(self, backend: Backend, seconds: float = SECONDS) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST:
            msg = f"the time limit is {seconds!r:.60}; it is a positive number of seconds"
            raise UsageError(msg)
        self.backend = backend
        self.survey = Survey(backend, seconds)

    @property
    def harness(self) -> Harness:
        """Return the harness of the backend."""
        return self.backend.harness

    @property
    def problems(self) -> list[Problem]:
        """Return the problems of the harness, the divergences and the run."""
        return self.survey.problems

    def cases(self) -> list[Case]:
        """Return every case of the harness."""
        return self.survey.cases()

    def prepare(self) -> None:
        """Check each capability of the harness and each divergence, once."""
        self.survey.make()

    def run(self, case: Case) -> Result:
        """Run one case and return its result."""
        self.prepare()
        blocked = self._blocked(case)
        if blocked is not None:
            return blocked
        h = Checked(self.harness, self._variant(case))
        begin = time.perf_counter()
        error = self.survey.error(lambda: case.scenario.function(h))
        seconds = round(time.perf_counter() - begin, 4)
        staged = bool(h.staged)
        if error is not None and not isinstance(error, (Absent, TimeLimit)):
            error = self._natively(case, error)
        if isinstance(error, Absent):
            return Result.of(case.scenario, id=case.id, outcome=NOT_APPLICABLE, message=str(error), seconds=seconds)
        return self._judged(case, error, seconds=seconds, staged=staged)

    def _natively(self, case: Case, error: BaseException) -> BaseException:
        """Return the error of a case, or what the system itself does without adprotocol, if that explains it."""
        transforms = nesting.native(case.scenario.native)
        did, how = self.survey.native(transforms, case.variant) if transforms else ("", "")
        if did == preflight.REFUSES and not isinstance(error, WrongAnswer):  # which no refusal explains
            return Absent(how)
        if did == preflight.WRONG and expected.declared(self.survey.divergences, case.id) is None:
            return HarnessFault(how)
        return error

    def _variant(self, case: Case) -> dict[str, Callable[..., Any]]:
        capability, _, name = case.variant.partition("=")
        return {capability: self.survey.variants[capability][name]} if capability else {}

    def _blocked(self, case: Case) -> Result | None:
        """Return the result of a case that cannot run, since the harness lacks or breaks a capability; else None."""
        needed = ("array", "to_numpy", *case.scenario.needs)
        states = {name: self.survey.capabilities[name] for name in needed}
        for name, state in states.items():
            if state.startswith(preflight.BROKEN):
                message = f"not run: {name} of the harness is broken: {state.partition(': ')[2]}"
                return Result.of(case.scenario, id=case.id, outcome=FAIL, cause=HARNESS, message=message, ran=False)
        lacking = [f"{name} ({state.partition(': ')[2]})" for name, state in states.items() if state != preflight.THERE]
        if case.scenario.hook == "value_and_grad" and "value_and_grad" not in self.backend.hooks:
            lacking.append("value_and_grad (the plugin does not have this optional hook)")
        lacking += [
            f"{name} ({reason})"
            for name, reason in self.survey.nestings.items()
            if nesting.contains(case.scenario.native, name)
        ]
        if lacking:
            message = f"it needs {', '.join(lacking)}"
            return Result.of(case.scenario, id=case.id, outcome=NOT_APPLICABLE, message=message)
        if case.variant in self.survey.broken_variants:
            message = f"not run: the variant of the harness is broken: {self.survey.broken_variants[case.variant]}"
            return Result.of(case.scenario, id=case.id, outcome=FAIL, cause=HARNESS, message=message, ran=False)
        return None

    def _judged(self, case: Case, error: BaseException | None, **known: Any) -> Result:
        declared = expected.declared(self.survey.divergences, case.id)
        if error is None:
            if declared is None:
                return Result.of(case.scenario, id=case.id, outcome=PASS, **known)
            message = f"it passes, although the divergence {declared.name!r} declares that it fails; remove that"
            return Result.of(case.scenario, id=case.id, outcome=FAIL, cause=DIVERGENCES, message=message, **known)
        silent = isinstance(error, WrongAnswer)
        known.update(message=str(error) if silent else one_line(error), detail=detail_of(error))
        # A time limit or a fault of the harness is not the error that a divergence declares.
        found = expected.WRONG if silent else "" if isinstance(error, (TimeLimit, HarnessFault)) else expected.ERROR
        if declared is not None and declared.outcome == found:
            return Result.of(case.scenario, id=case.id, outcome=EXPECTED, divergence=declared.name, **known)
        if declared is not None:
            known["message"] += f" (the divergence {declared.name!r} declares {declared.outcome!r}, which this is not)"
        known["repro"] = repro(case.scenario, self.backend.expression, case.variant)
        if silent:
            return Result.of(case.scenario, id=case.id, outcome=WRONG, cause=PLUGIN, **known)
        return Result.of(case.scenario, id=case.id, outcome=FAIL, cause=self._cause(error), **known)

    def _cause(self, error: BaseException) -> str:
        if isinstance(error, TimeLimit):
            return TIME
        if isinstance(error, HarnessFault):
            return HARNESS
        frames = list(traceback.walk_tb(error.__traceback__))
        own = tuple(f"{cls.__qualname__}." for cls in type(self.harness).__mro__)
        return HARNESS if frames and frames[-1][0].f_code.co_qualname.startswith(own) else PLUGIN

    def close(self) -> None:
        """End the thread that cases run in."""
        self.survey.close()


def run(  # noqa: PLR0913  (the options of the command line)
    backend: Backend,
    *,
    keywords: Sequence[str] = (),
    level: str = MAY,
    seconds: float = SECONDS,
    on_start: Callable[[int], None] = lambda _: None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Run the suite on a backend and return the report.

    `on_start` is called with the number of cases, `on_result` with each result.
    Raises `UsageError` for an unknown level or a bad time limit, `Interrupted` after an interrupt by the user.
    """
    begin = time.perf_counter()
    runner = Runner(backend, seconds)
    select((), keywords, level)
    every: list[Case] = []
    chosen: list[Case] = []
    results: list[Result] = []

    def report() -> Report:
        return Report(
            backend=backend.name,
            framework_version=backend.framework_version,
            plugin=backend.plugin,
            plugin_version=backend.plugin_version,
            device=backend.harness.device,
            level=level,
            keywords=tuple(keywords),
            total=len(every),
            results=tuple(results),
            capabilities=runner.survey.capabilities,
            divergences=expected.reported(runner.survey.divergences),
            problems=tuple(runner.problems),
            seconds=round(time.perf_counter() - begin, 2),
        )

    try:
        runner.prepare()
        every = runner.cases()
        chosen = select(every, keywords, level)
        on_start(len(chosen))
        for case in chosen:
            results.append(runner.run(case))
            on_result(results[-1])
    except KeyboardInterrupt as error:
        runner.survey.note("run", f"interrupted after {len(results)} of {len(chosen)} scenarios")
        raise Interrupted(report()) from error
    finally:
        runner.close()
    return report()
