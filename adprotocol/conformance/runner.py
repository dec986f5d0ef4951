"""The runner: every selected scenario under a time limit, and what came of it.

Nothing that a harness, a plugin or a scenario does ends the run: each is reported
as what it is, and the next one runs.
"""

from __future__ import annotations

import threading
import time
import traceback
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from adprotocol.conformance import clock, manifest, preflight
from adprotocol.conformance.backend import UsageError
from adprotocol.conformance.case import Case, cases, select
from adprotocol.conformance.checked import Absent, Checked, HarnessFault, WrongAnswer
from adprotocol.conformance.clock import FRAMES, TimeLimit, Worker
from adprotocol.conformance.harness import CAPABILITIES, REQUIRED
from adprotocol.conformance.repro import repro
from adprotocol.conformance.result import (
    EXPECTED,
    FAIL,
    HARNESS,
    MANIFEST,
    NOT_APPLICABLE,
    PASS,
    PLUGIN,
    TIME,
    WRONG,
    Problem,
    Report,
    Result,
    one_line,
)
from adprotocol.conformance.scenario import MAY

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from adprotocol.conformance.backend import Backend
    from adprotocol.conformance.harness import Harness

SECONDS = 60.0
# What a lock can wait for.
LONGEST = threading.TIMEOUT_MAX


class Interrupted(KeyboardInterrupt):
    """The user interrupted a run; `report` holds what ran until then, and a problem that says so."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.problems[-1].message)
        self.report = report


class Runner:
    """Run cases on one backend.

    `prepare` checks the harness and reads the manifest; `run` runs one case. Both
    never raise, except for an interrupt by the user.
    """

    def __init__(self, backend: Backend, seconds: float = SECONDS) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds <= LONGEST:
            msg = f"the time limit is {seconds!r:.60}; it is a positive number of seconds"
            raise UsageError(msg)
        self.backend = backend
        self.seconds = seconds
        self.problems: list[Problem] = []
        self.capabilities: dict[str, str] = {}
        self.divergences: tuple[Any, ...] = ()
        self._worker = Worker()
        self._prepared = False
        self._variants: dict[str, dict[str, Callable[..., Any]]] | None = None
        self._broken_variants: dict[str, str] = {}

    @property
    def harness(self) -> Harness:
        """Return the harness of the backend."""
        return self.backend.harness

    def cases(self) -> list[Case]:
        """Return every case that the harness gives rise to."""
        if self._variants is None:
            self._variants = self._read(lambda: preflight.variants(self.harness), "harness", "variants") or {}
        return cases(self._variants)

    def prepare(self) -> None:
        """Check each capability of the harness and each entry of the manifest, once."""
        if self._prepared:
            return
        self._prepared = True
        reasons = self._read(lambda: preflight.reasons(self.harness), "harness", "absent") or {}
        for name in reasons:
            if name not in (*REQUIRED, *CAPABILITIES):
                self.note("harness", f"absent names the unknown capability {name!r}")
        for capability in (*REQUIRED, *CAPABILITIES):
            self.capabilities[capability] = self._check(capability, reasons)
        every = self.cases()
        for capability, named in (self._variants or {}).items():
            for name, function in named.items():
                self._check_variant(capability, name, function)
        self.divergences = self._read(lambda: tuple(self.backend.divergences()), "manifest", "divergences") or ()
        self.problems.extend(manifest.problems(self.divergences, [case.id for case in every]))

    def _read(self, get: Callable[[], Any], where: str, what: str) -> Any:
        """Return what `get` returns, or None and a problem if it does not."""
        found: list[Any] = []
        error = self._error(lambda: found.append(get()))
        if error is None:
            return found[0]
        message = str(error) if isinstance(error, HarnessFault) else f"{what}: {one_line(error)}"
        self.note(where, message, _detail(error))
        return None

    def _check(self, capability: str, reasons: Mapping[str, str]) -> str:
        try:
            reason = preflight.missing(self.harness, capability, reasons)
        except HarnessFault as fault:
            self.note("harness", str(fault))
            return f"{preflight.BROKEN}: {fault}"
        if reason:
            return f"{preflight.ABSENT}: {reason}"
        # A fault of what every check takes is reported once, and what hangs is waited for once.
        for basis in ("array", "to_numpy", *preflight.BASIS.get(capability, ())):
            if self.capabilities.get(basis, "").startswith(preflight.BROKEN):
                return f"{preflight.BROKEN}: not checked, for {basis} is broken"
        error = self._error(lambda: preflight.check(self.harness, capability))
        if error is None:
            return preflight.THERE
        message = _fault(error)
        self.note("harness", f"{capability}: {message}", _detail(error))
        return f"{preflight.BROKEN}: {message}"

    def _check_variant(self, capability: str, name: str, function: Callable[..., Any]) -> None:
        if self.capabilities[capability] != preflight.THERE:
            return
        error = self._error(lambda: preflight.check(self.harness, capability, {capability: function}))
        if error is not None:
            key = f"{capability}={name}"
            self._broken_variants[key] = _fault(error)
            self.note("harness", f"variant {key}: {_fault(error)}", _detail(error))

    def note(self, where: str, message: str, detail: str = "") -> None:
        """Note a problem of the harness or the manifest, or of the run itself."""
        self.problems.append(Problem(where=where, message=message, detail=detail))

    def run(self, case: Case) -> Result:
        """Run one case and return its result."""
        self.prepare()
        blocked = self._blocked(case)
        if blocked is not None:
            return blocked
        h = Checked(self.harness, self._variant(case))
        begin = time.perf_counter()
        error = self._error(lambda: case.scenario.function(h))
        seconds = round(time.perf_counter() - begin, 4)
        staged = bool(h.staged)
        if isinstance(error, Absent):
            return self._result(case, NOT_APPLICABLE, message=str(error), seconds=seconds)
        return self._judged(case, error, seconds=seconds, staged=staged)

    def _variant(self, case: Case) -> dict[str, Callable[..., Any]]:
        capability, _, name = case.variant.partition("=")
        return {capability: (self._variants or {})[capability][name]} if capability else {}

    def _blocked(self, case: Case) -> Result | None:
        """Return the result of a case that cannot run, because of what the harness lacks or does wrong."""
        wanted = ("array", "to_numpy", *case.scenario.needs)
        states = {name: self.capabilities[name] for name in wanted}
        for name, state in states.items():
            if state.startswith(preflight.BROKEN):
                message = f"not run: {name} of the harness is broken: {state.partition(': ')[2]}"
                return self._result(case, FAIL, cause=HARNESS, message=message)
        lacking = [f"{name} ({state.partition(': ')[2]})" for name, state in states.items() if state != preflight.THERE]
        if case.scenario.hook == "value_and_grad" and "value_and_grad" not in self.backend.hooks:
            lacking.append("value_and_grad (the plugin does not have this optional hook)")
        if lacking:
            return self._result(case, NOT_APPLICABLE, message=f"it takes {', '.join(lacking)}")
        if case.variant in self._broken_variants:
            message = f"not run: the variant of the harness is broken: {self._broken_variants[case.variant]}"
            return self._result(case, FAIL, cause=HARNESS, message=message)
        return None

    def _error(self, call: Callable[[], object]) -> BaseException | None:
        """Return what comes of a call, whose settings of warnings and of NumPy's errors end with it."""

        def isolated() -> None:
            with np.errstate():
                call()

        with warnings.catch_warnings():
            # Frameworks warn of divisions by zero and of what is experimental; neither is a result.
            warnings.simplefilter("ignore")
            return self._worker.run(isolated, self.seconds)

    def _judged(self, case: Case, error: BaseException | None, **known: Any) -> Result:
        declared = manifest.declared(self.divergences, case.id)
        if error is None:
            if declared is None:
                return self._result(case, PASS, **known)
            message = f"it passes, although the divergence {declared.name!r} declares that it fails; take it out"
            return self._result(case, FAIL, cause=MANIFEST, message=message, **known)
        silent = isinstance(error, WrongAnswer)
        known.update(message=str(error) if silent else one_line(error), detail=_detail(error))
        # What hangs, and a fault of the harness, is not what a manifest declares as an error.
        found = manifest.WRONG if silent else "" if isinstance(error, (TimeLimit, HarnessFault)) else manifest.ERROR
        if declared is not None and declared.outcome == found:
            return self._result(case, EXPECTED, divergence=declared.name, **known)
        if declared is not None:
            known["message"] += f" (the divergence {declared.name!r} declares {declared.outcome!r}, which this is not)"
        known["repro"] = repro(case.scenario, self.backend.expression, case.variant)
        if silent:
            return self._result(case, WRONG, cause=PLUGIN, **known)
        return self._result(case, FAIL, cause=self._cause(error), **known)

    def _cause(self, error: BaseException) -> str:
        if isinstance(error, TimeLimit):
            return TIME
        if isinstance(error, HarnessFault):
            return HARNESS
        frames = list(traceback.walk_tb(error.__traceback__))
        own = tuple(f"{cls.__qualname__}." for cls in type(self.harness).__mro__)
        return HARNESS if frames and frames[-1][0].f_code.co_qualname.startswith(own) else PLUGIN

    def _result(self, case: Case, outcome: str, **known: Any) -> Result:
        scenario = case.scenario
        return Result(
            id=case.id,
            hook=scenario.hook,
            level=scenario.level,
            rule=scenario.rule,
            transform=scenario.transform,
            needs=scenario.needs,
            since=scenario.since,
            source=scenario.source,
            summary=scenario.summary,
            expects=scenario.expects,
            outcome=outcome,
            **known,
        )

    def close(self) -> None:
        """End the thread that cases run in."""
        self._worker.close()


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
    Raises `UsageError` for an unknown level or time limit, `Interrupted` if the user interrupts it.
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
            capabilities=runner.capabilities,
            divergences=manifest.reported(runner.divergences),
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
        runner.note("run", f"interrupted after {len(results)} of {len(chosen)} scenarios")
        raise Interrupted(report()) from error
    finally:
        runner.close()
    return report()


def _fault(error: BaseException) -> str:
    """Return what is wrong with the harness, in words."""
    if isinstance(error, TimeLimit):
        return f"its check did not return: {error}"
    return str(error) if isinstance(error, HarnessFault) else one_line(error)


def _detail(error: BaseException) -> str:
    """Return the traceback of an error and its causes, without the frames of the suite's own machinery."""
    if isinstance(error, TimeLimit):
        return error.detail
    shown = traceback.TracebackException.from_exception(error, limit=-FRAMES, compact=True)
    shown.stack[:] = [frame for frame in shown.stack if frame.filename not in (__file__, clock.__file__)]
    return "".join(shown.format())
