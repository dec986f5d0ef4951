"""The runner: every selected scenario under a time limit, and what came of it.

Nothing that a harness, a plugin or a scenario does ends the run: each is reported
as what it is, and the next one runs.
"""

from __future__ import annotations

import fnmatch
import time
import traceback
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import manifest, preflight
from adprotocol.conformance.checked import Absent, Checked, HarnessFault, WrongAnswer
from adprotocol.conformance.clock import TimeLimit, Worker
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
from adprotocol.conformance.scenario import LEVELS, MAY, Scenario, all_scenarios

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from adprotocol.conformance.backend import Backend
    from adprotocol.conformance.harness import Harness

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """Hold one scenario, and the variant of a capability it is run with: "grad=vjp", or nothing."""

    scenario: Scenario
    variant: str = ""

    @property
    def id(self) -> str:
        """Return the id of the result."""
        return f"{self.scenario.id}@{self.variant}" if self.variant else self.scenario.id


def cases(harness: Harness) -> list[Case]:
    """Return every case that a harness gives rise to: each scenario, and those that vary with each variant."""
    found: list[Case] = []
    variants = _variants(harness)
    for scenario in all_scenarios().values():
        found.append(Case(scenario))
        if scenario.varies:
            found.extend(
                Case(scenario, f"{capability}={name}")
                for capability, names in variants.items()
                if capability in scenario.needs
                for name in names
            )
    return found


def _variants(harness: Harness) -> dict[str, list[str]]:
    try:
        return {str(capability): [str(name) for name in names] for capability, names in harness.variants.items()}
    except Exception:  # noqa: BLE001  (reported by `Runner.prepare`)
        return {}


def select(found: Iterable[Case], keywords: Sequence[str] = (), level: str = MAY) -> list[Case]:
    """Return the cases up to a level, whose id or transform has one of the keywords; a keyword may be a glob."""
    levels = LEVELS[: LEVELS.index(level) + 1]
    return [case for case in found if case.scenario.level in levels and _matches(case, keywords)]


def _matches(case: Case, keywords: Sequence[str]) -> bool:
    if not keywords:
        return True
    texts = (case.id, case.scenario.transform, case.scenario.rule)
    return any(
        fnmatch.fnmatchcase(text, word if any(c in word for c in "*?[") else f"*{word}*")
        for word in keywords
        for text in texts
    )


class Runner:
    """Run cases on one backend.

    `prepare` checks the harness and reads the manifest; `run` runs one case. Both
    never raise, except for an interrupt by the user.
    """

    def __init__(self, backend: Backend, seconds: float = SECONDS) -> None:
        self.backend = backend
        self.seconds = seconds
        self.problems: list[Problem] = []
        self.capabilities: dict[str, str] = {}
        self.divergences: tuple[Any, ...] = ()
        self._worker = Worker()
        self._prepared = False
        self._broken_variants: dict[str, str] = {}

    @property
    def harness(self) -> Harness:
        """Return the harness of the backend."""
        return self.backend.harness

    def prepare(self) -> None:
        """Check each capability of the harness and each entry of the manifest, once."""
        if self._prepared:
            return
        self._prepared = True
        for capability in (*REQUIRED, *CAPABILITIES):
            self.capabilities[capability] = self._check(capability)
        self._check_variants()
        for name in self.harness.absent:
            if name not in (*REQUIRED, *CAPABILITIES):
                self._problem("harness", f"absent names the unknown capability {name!r}")
        self.divergences, problems = manifest.of(self.backend, [case.id for case in cases(self.harness)])
        self.problems.extend(problems)

    def _check(self, capability: str) -> str:
        try:
            reason = preflight.missing(self.harness, capability)
            if reason:
                return f"{preflight.ABSENT}: {reason}"
            self._worker.run(lambda: preflight.check(self.harness, capability), self.seconds)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it is, it is what the harness does)
            message = str(error) if isinstance(error, HarnessFault) else one_line(error)
            if isinstance(error, TimeLimit):
                message = f"its check did not return within {self.seconds:g} s"
            self._problem("harness", f"{capability}: {message}", _detail(error))
            return f"{preflight.BROKEN}: {message}"
        return preflight.THERE

    def _check_variants(self) -> None:
        try:
            found = {key: dict(value) for key, value in self.harness.variants.items()}
        except Exception as error:  # noqa: BLE001  (as above)
            self._problem("harness", f"variants: {one_line(error)}", _detail(error))
            return
        for capability, names in found.items():
            for name in names:
                try:
                    self._worker.run(
                        lambda capability=capability, name=name: preflight.variant(self.harness, capability, name),
                        self.seconds,
                    )
                except (Exception, SystemExit) as error:  # noqa: BLE001  (as above)
                    self._broken_variants[f"{capability}={name}"] = one_line(error)
                    self._problem("harness", f"variant {capability}={name}: {one_line(error)}", _detail(error))

    def _problem(self, where: str, message: str, detail: str = "") -> None:
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
        return {capability: self.harness.variants[capability][name]} if capability else {}

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

    def _error(self, call: Callable[[], None]) -> BaseException | None:
        try:
            self._worker.run(call, self.seconds)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (whatever it is, it is the result)
            return error
        return None

    def _judged(self, case: Case, error: BaseException | None, **known: Any) -> Result:
        declared = manifest.declared(self.divergences, case.id)
        if error is None and declared is None:
            return self._result(case, PASS, **known)
        if error is None:
            assert declared is not None
            message = f"it passes, although the divergence {declared.name!r} declares that it fails; take it out"
            return self._result(case, FAIL, cause=MANIFEST, message=message, **known)
        silent = isinstance(error, WrongAnswer)
        known.update(message=str(error) if silent else one_line(error), detail=_detail(error))
        if declared is not None and declared.outcome == (manifest.WRONG if silent else manifest.ERROR):
            return self._result(case, EXPECTED, divergence=declared.name, **known)
        if declared is not None:
            how = "silently wrong" if silent else "an error"
            known["message"] += f" (the divergence {declared.name!r} declares {declared.outcome!r}, and this is {how})"
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
        own = f"{type(self.harness).__qualname__}."
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


def run(
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
    """
    begin = time.perf_counter()
    runner = Runner(backend, seconds)
    results: list[Result] = []
    with warnings.catch_warnings():
        # Frameworks warn of divisions by zero and of what is experimental; neither is a result.
        warnings.simplefilter("ignore")
        try:
            runner.prepare()
            every = cases(backend.harness)
            chosen = select(every, keywords, level)
            on_start(len(chosen))
            for case in chosen:
                results.append(runner.run(case))
                on_result(results[-1])
        finally:
            runner.close()
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


def _detail(error: BaseException) -> str:
    if isinstance(error, TimeLimit):
        return error.detail
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if not frame.filename.endswith(("clock.py", "runner.py"))]
    return "".join([*traceback.format_list(inside), *traceback.format_exception_only(error)])
