"""The suite in Python: a function that returns a report, and a class for maintainers' own tests."""

from __future__ import annotations

import os
import sys
import unittest
from typing import TYPE_CHECKING, Any, ClassVar

from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run.canary import Canary
from adprotocol.conformance._run.case import select
from adprotocol.conformance._run.result import EXPECTED, NOT_APPLICABLE, PASS, Report
from adprotocol.conformance._run.runner import SECONDS, Runner
from adprotocol.conformance._run.session import Log, Selection, Session
from adprotocol.conformance.checks import Checked
from adprotocol.conformance.scenario import MAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance._run.case import Case
    from adprotocol.conformance._run.result import Result
    from adprotocol.conformance.harness import Harness


def harness_of(name: str, device: str | None = None) -> Harness:
    """Return the harness of a backend: its plugin's, or that of a path "module:class".

    >>> from adprotocol.conformance import harness_of
    >>> harness_of("numpy").name
    'numpy'

    Raises `UsageError` if there is none.
    """
    return backends.of(name, device).harness


def checked(harness: Harness, variant: str = "") -> Checked:
    """Return the argument of a scenario, a harness with checks; `variant` is "capability=name".

    >>> from adprotocol.conformance import all_scenarios, checked, harness_of
    >>> all_scenarios()["within_gradient/vmap"].function(checked(harness_of("numpy")))
    """
    if not variant:
        return Checked(harness)
    capability, _, name = variant.partition("=")
    try:
        return Checked(harness, {capability: harness.variants[capability][name]})
    except KeyError:
        known = [f"{key}={word}" for key, named in harness.variants.items() for word in named]
        msg = f"{harness.name} has no variant {variant!r}; there are {', '.join(known) or 'none'}"
        raise backends.UsageError(msg) from None


class Interrupted(KeyboardInterrupt):
    """The user interrupted a run; `report` has what ran until then, and a problem that says so."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.problems[-1].message)
        self.report = report


def run(  # noqa: PLR0913  (the options of the command line)
    backend: str | Harness | type[Harness],
    *,
    keywords: Sequence[str] = (),
    level: str = MAY,
    device: str | None = None,
    seconds: float = SECONDS,
    on_start: Callable[[int], None] = lambda _: None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Run the suite and return its report.

    >>> from adprotocol import conformance
    >>> conformance.run("numpy", keywords=["within_gradient/vmap"]).ok
    True

    Args:
        backend: the name of a plugin or "numpy", a path "module:class", or a harness.
        keywords: run only scenarios with one of these words, or globs, in their id, transform or rule.
        level: leave out scenarios less binding than "MUST", "SHOULD" or "MAY".
        device: the device of the arrays, one that the harness names.
        seconds: the time limit for each scenario.
        on_start: called with the number of scenarios selected.
        on_result: called with each `Result`.

    Raises:
        UsageError: for an unknown backend, harness, device or level, or a time limit that is not a positive number.
        BrokenBackend: if the plugin, its framework or the making of the harness fails.
        KeyboardInterrupt: after an interrupt by the user; its attribute `report` has what ran until then.
    """
    log = Log(on_start, on_result)
    strand = log.strand()
    session = Session(backends.of(backend, device), Selection(keywords=keywords, level=level, seconds=seconds))
    try:
        session.run(strand.take)
    except KeyboardInterrupt as error:
        raise Interrupted(log.interrupted()) from error
    if not strand.ended:
        strand.broken()
    return log.report()


class ConformanceTests:
    """Run every scenario as a test of your own suite, under pytest or unittest.

    Subclass it under a name that your test runner collects, and set the harness:

    .. code-block:: python

        from adprotocol.conformance import ConformanceTests
        from mysystem.testing import MyHarness

        class TestConformance(ConformanceTests):
            harness = MyHarness

    With unittest, derive from ``unittest.TestCase`` as well. Each scenario is a
    test method. One that does not apply is skipped and an expected failure is an
    expected failure of the test run, both with their reason. `test_harness_and_divergences` fails
    for a capability that does not do what `Harness` documents, and for a
    divergence that names an unknown scenario.

    Attributes:
        harness: a `Harness`, its class, or the name of a backend.
        keywords: as those of `run`.
        level: as that of `run`.
        seconds: the time limit for each scenario.
    """

    harness: ClassVar[Any] = None
    keywords: ClassVar[Sequence[str]] = ()
    level: ClassVar[str] = MAY
    seconds: ClassVar[float] = SECONDS
    # For pytest where it collects more than Test*: this class is not a test, its subclasses are.
    __test__: ClassVar[bool] = False
    _runner: ClassVar[Runner | None] = None
    _canary: ClassVar[Canary | None] = None
    # In which way a scenario has left the system broken: what follows would show that, and nothing of its own.
    _fault: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._runner, cls._canary, cls._fault = None, None, ""
        if "__test__" not in vars(cls):
            cls.__test__ = True
        if cls.harness is None:
            return
        runner = Runner(backends.of(cls.harness), cls.seconds)
        chosen = {_name(case): case for case in select(runner.survey.cases(), cls.keywords, cls.level)}
        for name, case in chosen.items():
            # A method that the class itself defines takes precedence.
            if name not in vars(cls):
                setattr(cls, name, _method(name, case))
        for name in dir(cls):
            # Selected by a base class and not by this one.
            if name not in chosen and hasattr(getattr(cls, name), "case"):
                setattr(cls, name, None)
        cls._runner = runner

    def test_harness_and_divergences(self) -> None:
        """Check the harness and the divergences themselves."""
        problems = self._prepared().survey.problems
        if problems:
            raise AssertionError("\n".join(f"{problem.where}: {problem.message}" for problem in problems))

    @classmethod
    def _result(cls, case: Case) -> Result:
        runner = cls._prepared()
        if cls._fault:
            raise unittest.SkipTest(f"not run: {cls._fault}")
        if cls._canary is None:
            cls._canary = Canary(runner.survey)
        result = runner.run(case)
        if fault := cls._canary.behind(result):
            cls._fault = f"behind {case.id}, or one of the few scenarios before it, the system is broken: {fault}"
            raise AssertionError(cls._fault)
        return result

    @classmethod
    def _prepared(cls) -> Runner:
        if cls._runner is None:
            raise backends.UsageError(f"{cls.__qualname__} has no harness; set the attribute harness")
        cls._runner.survey.make()
        return cls._runner


def _name(case: Case) -> str:
    """Return the name of a test method."""
    return f"test_{case.id.translate(str.maketrans('/-@=', '____'))}"


def _method(name: str, case: Case) -> Callable[[ConformanceTests], None]:
    def test(self: ConformanceTests) -> None:
        result = self._result(case)
        if result.outcome == NOT_APPLICABLE:
            raise unittest.SkipTest(result.message)
        if result.outcome == EXPECTED:
            _expected_failure(f"{result.divergence}: {result.message}")
        if result.bad:
            raise AssertionError(_explained(result))
        if result.outcome != PASS:
            _expected_failure(f"it MAY fail: {result.message}")

    test.__name__ = test.__qualname__ = name
    test.__doc__ = f"{case.scenario.level} {case.scenario.rule}: {case.scenario.summary}"
    test.case = case  # type: ignore[attr-defined]
    return test


def _expected_failure(reason: str) -> None:
    # unittest has no expected failure that is decided while a test runs; pytest may be imported there all the same.
    pytest = sys.modules.get("pytest")
    if pytest is not None and "PYTEST_CURRENT_TEST" in os.environ:
        pytest.xfail(reason)
    raise unittest.SkipTest(f"expected failure: {reason}")


def _explained(result: Result) -> str:
    lines = [
        f"{result.outcome}: {result.id} ({result.level}, rule {result.rule})",
        result.description,
        f"found:   {result.message}",
        f"source:  {result.source}",
        result.detail,
        result.repro and f"To reproduce:\n\n{result.repro}",
    ]
    return "\n".join(line for line in lines if line)
