"""The suite in Python: as a test function of pytest's, as a function that returns a report, and a scenario alone."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run.case import select
from adprotocol.conformance._run.result import EXPECTED, NOT_APPLICABLE, PASS, RUN, Problem, Report, Result
from adprotocol.conformance._run.run import CHECKS, Run
from adprotocol.conformance.checks import Checked
from adprotocol.conformance.scenario import MAY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance._run.backend import Backend
    from adprotocol.conformance._run.case import Case
    from adprotocol.conformance.harness import Harness


def harness_of(name: str, device: str | None = None) -> Harness:
    """Return the harness of a backend: its plugin's, or that of a path "module:class".

    >>> from adprotocol.conformance import harness_of
    >>> harness_of("numpy").name
    'numpy'

    Raises `UsageError` if there is none.
    """
    return backends.backend_of(name, device).harness


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


def run(
    backend: str | Harness | type[Harness],
    *,
    keywords: Sequence[str] = (),
    level: str = MAY,
    device: str | None = None,
    on_result: Callable[[Result], None] = lambda _: None,
) -> Report:
    """Run the suite in this process and return its report.

    >>> from adprotocol import conformance
    >>> conformance.run("numpy", keywords=["within_gradient/vmap"]).ok
    True

    It stops after a scenario that leaves the framework broken. The command survives scenarios that hang or end the
    process, too.

    Args:
        backend: the name of a plugin or "numpy", a path "module:class", or a harness.
        keywords: run only scenarios with one of these words, or globs, in their id, transform or rule.
        level: leave out scenarios less binding than "MUST", "SHOULD" or "MAY".
        device: the device of the arrays, one that the harness names.
        on_result: called with each `Result`.

    Raises:
        UsageError: for an unknown backend, harness, device or level.
        BrokenBackend: if the plugin, its framework or the making of the harness fails.
    """
    begin = time.perf_counter()
    made = Run(backends.backend_of(backend, device))
    chosen = select(made.cases, keywords, level)
    for name in CHECKS:
        made.check(name)
    results: list[Result] = []
    for case in chosen:
        results.append(made.result(case))
        on_result(results[-1])
        if made.fault:
            made.problems.append(stopped([made.fault], len(chosen) - len(results)))
            break
    report = made.report(level=level, keywords=tuple(keywords), results=tuple(results))
    return replace(report, seconds=round(time.perf_counter() - begin, 2))


def stopped(faults: Sequence[str], left: int) -> Problem:
    """Return the problem of a run that a broken system has ended."""
    return Problem(where=RUN, message=f"{'; '.join(faults)}; {left} scenarios have no result")


class Item:
    """A check of the harness or a case, as a parameter of a test.

    Attributes:
        id: its id, as reports name it.
        data: what it adds to a report, once it has run.
    """

    def __init__(self, made: Run, case: Case | None, name: str = "") -> None:
        self.run, self.case = made, case
        self.id = case.id if case is not None else f"harness/{name.replace(' ', '-')}"
        self.name = name
        self.data: dict[str, Any] = {}

    def __call__(self) -> None:
        """Run it, and tell pytest the outcome."""
        import pytest

        if self.case is None:
            problems = self.run.check(self.name)
            self.data = self.run.report().data()
            if problems:
                pytest.fail("\n".join(f"{problem.where}: {problem.message}" for problem in problems), pytrace=False)
            return
        if self.run.fault:
            pytest.skip(f"not run: {self.run.fault}")
        result = self.run.result(self.case)
        self.data = {"result": asdict(result), "fault": self.run.fault}
        if result.outcome == NOT_APPLICABLE or not result.ran:
            pytest.skip(result.message)
        if result.outcome == EXPECTED:
            pytest.xfail(f"{result.divergence}: {result.message}")
        if result.bad:
            pytest.fail(explained(result), pytrace=False)
        if result.outcome != PASS:
            pytest.xfail(f"it MAY fail: {result.message}")


def explained(result: Result) -> str:
    """Return what a failing test shows."""
    lines = [
        f"{result.outcome}: {result.id} ({result.level}, rule {result.rule})",
        result.description,
        result.message,
        f"source: {result.source}",
        result.detail,
        result.repro and f"To reproduce:\n\n{result.repro}",
    ]
    return "\n".join(line for line in lines if line)


def suite(
    backend: str | Harness | type[Harness],
    *,
    keywords: Sequence[str] = (),
    level: str = MAY,
    device: str | None = None,
) -> Callable[..., None]:
    """Return a test function for pytest, which runs once for each check of the harness and for each scenario.

    .. code-block:: python

        from adprotocol.conformance import suite

        test_conformance = suite("mysystem")

    The arguments are those of `run`. The id of a test is that of its scenario. One that does not apply is skipped; a
    declared divergence, and a failure at the level MAY, is an expected failure, each with its reason. A divergence is
    strict: a scenario that passes although it is declared to fail, fails.

    Raises:
        UsageError: as `run`, and without pytest.
        BrokenBackend: as `run`.
    """
    backends.need("pytest", "the conformance suite runs on pytest")
    return function_of(backends.backend_of(backend, device), keywords, level)


def function_of(backend: Backend, keywords: Sequence[str], level: str) -> Callable[..., None]:
    """Return the test function of a backend."""
    import pytest

    made = Run(backend)
    items = [Item(made, None, name) for name in CHECKS]
    items += [Item(made, case) for case in select(made.cases, keywords, level)]

    @pytest.mark.parametrize("item", [pytest.param(item, id=item.id) for item in items])
    def test(item: Item) -> None:
        item()

    return test
