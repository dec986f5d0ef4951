"""The runner: a case under a time limit, and its outcome.

Nothing that a harness, a plugin or a scenario does is raised: it is reported, and the
next case can run.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
import time
import traceback
from typing import TYPE_CHECKING

from adprotocol.conformance import nesting
from adprotocol.conformance._run import declared, result
from adprotocol.conformance._run.backend import UsageError
from adprotocol.conformance._run.clock import TimeLimit
from adprotocol.conformance._run.repro import repro
from adprotocol.conformance._run.result import Result
from adprotocol.conformance._run.survey import Survey, detail_of
from adprotocol.conformance.checks import Absent, Checked, HarnessFault, NoError, WrongAnswer
from adprotocol.divergence import ERROR, WRONG
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from adprotocol.conformance._run.backend import Backend
    from adprotocol.conformance._run.case import Case

SECONDS = 60.0
# The longest that a lock can wait.
LONGEST = threading.TIMEOUT_MAX


class NotRun(Exception):  # noqa: N818
    """A case cannot run for a fault of the harness, which is a problem of its own."""


class LeftBroken(Exception):  # noqa: N818
    """The system does no longer what it did before a case."""


class Runner:
    """Run cases on one backend, after a survey of it. Only an interrupt by the user is raised."""

    def __init__(self, backend: Backend, seconds: float = SECONDS) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST:
            raise UsageError(f"the time limit is {seconds!r:.60}; it is a positive number of seconds")
        self.backend = backend
        self.survey = Survey(backend, seconds)

    def run(self, case: Case) -> Result:
        """Run one case and return its result."""
        self.survey.make()
        made = functools.partial(Result.of, case.scenario, id=case.id)
        try:
            self._can_run(case)
        except NotRun as fault:
            return made(outcome=result.FAIL, cause=result.HARNESS, message=str(fault), ran=False)
        except Absent as reason:
            return made(outcome=result.NOT_APPLICABLE, message=str(reason))
        h = Checked(self.backend.harness, self.survey.functions(case.variant))
        begin = time.perf_counter()
        error = self.survey.error(lambda: case.scenario.function(h))
        made = functools.partial(made, seconds=round(time.perf_counter() - begin, 4))
        if error is not None and not isinstance(error, (Absent, TimeLimit)):
            error = self._natively(case, error)
        if isinstance(error, Absent):
            return made(outcome=result.NOT_APPLICABLE, message=str(error))
        return self._judged(case, error, functools.partial(made, staged=bool(h.staged)))

    def _can_run(self, case: Case) -> None:
        """Raise `NotRun` if the harness breaks a capability that a case needs, and `Absent` if it lacks one."""
        survey, hook = self.survey, case.scenario.hook
        states = {name: survey.capabilities[name] for name in ("array", "to_numpy", *case.scenario.needs)}
        reasons = {name: state.partition(": ")[2] for name, state in states.items()}
        for name, state in states.items():
            if state.startswith(result.BROKEN):
                raise NotRun(f"not run: {name} of the harness is broken: {reasons[name]}")
        lacking = [f"{name} ({reasons[name]})" for name, state in states.items() if state != result.THERE]
        if hook == "value_and_grad" and hook not in self.backend.hooks:
            lacking.append("value_and_grad (the plugin does not have this optional hook)")
        native = case.scenario.native
        lacking += [f"{name} ({why})" for name, why in survey.nestings.items() if nesting.contains(native, name)]
        if lacking:
            raise Absent(f"it needs {', '.join(lacking)}")
        if case.variant in survey.broken_variants:
            raise NotRun(f"not run: the variant of the harness is broken: {survey.broken_variants[case.variant]}")

    def _natively(self, case: Case, error: BaseException) -> BaseException:
        """Return the error of a case, or what the system itself does without adprotocol, if that explains it."""
        transforms = nesting.native(case.scenario.native)
        native = self.survey.native(transforms, case.variant) if transforms else None
        if isinstance(native, Absent) and not isinstance(error, WrongAnswer):  # which no refusal explains
            return native
        if isinstance(native, HarnessFault) and declared.of(self.survey.divergences, case.id) is None:
            return native
        return error

    def blamed(self, case: Case, found: Result, fault: str) -> Result:
        """Return the result of a case that has left the system broken, which no pass does."""
        message = f"it leaves the system in a broken state: {fault}"
        if found.outcome == result.PASS or found.cause == result.DIVERGENCES:
            known = {"id": case.id, "seconds": found.seconds, "staged": found.staged}
            return self._judged(case, LeftBroken(message), functools.partial(Result.of, case.scenario, **known))
        return dataclasses.replace(found, message=f"{found.message}; {message}")

    def _judged(self, case: Case, error: BaseException | None, made: functools.partial[Result]) -> Result:
        known = declared.of(self.survey.divergences, case.id)
        if error is None:
            if known is None:
                return made(outcome=result.PASS)
            message = f"it passes, although the divergence {known.name!r} declares that it fails; remove that"
            return made(outcome=result.FAIL, cause=result.DIVERGENCES, message=message)
        silent = isinstance(error, WrongAnswer)
        message = str(error) if isinstance(error, (WrongAnswer, NoError, LeftBroken)) else one_line(error)
        made = functools.partial(made, detail=detail_of(error))
        # A time limit or a fault of the harness is not the error that a divergence declares.
        found = "" if isinstance(error, (TimeLimit, HarnessFault)) else ERROR
        if silent or isinstance(error, NoError):
            found = WRONG
        if known is not None and known.outcome == found:
            return made(outcome=result.EXPECTED, message=message, divergence=known.name)
        if known is not None:
            message += f" (the divergence {known.name!r} declares {known.outcome!r}, which this is not)"
        return made(
            outcome=result.WRONG if silent else result.FAIL,
            cause=result.PLUGIN if silent else self._cause(error),
            message=message,
            repro=repro(case.scenario, self.backend.expression, case.variant),
        )

    def _cause(self, error: BaseException) -> str:
        if isinstance(error, TimeLimit):
            return result.TIME
        frames = list(traceback.walk_tb(error.__traceback__))
        own = tuple(f"{cls.__qualname__}." for cls in type(self.backend.harness).__mro__)
        in_harness = frames and frames[-1][0].f_code.co_qualname.startswith(own)
        return result.HARNESS if in_harness or isinstance(error, HarnessFault) else result.PLUGIN
