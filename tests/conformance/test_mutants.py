"""The suite under test: every scenario notices a plugin that is wrong everywhere in what it asks about."""

import contextlib
import re
import threading
import warnings
from unittest import mock

import mutants
import pytest
import toyad
import toyad_harness
from small import OneLevel

from adprotocol.conformance import Absent, all_scenarios, checked
from adprotocol.conformance._run import backend as backends
from adprotocol.conformance._run.result import PASS
from adprotocol.conformance._run.run import Run

# Scenarios that none of these mutants makes fail: why, and which random mutant of the library does (`make mutate`).
_ELSEWHERE = "asks another process, in which nothing is replaced"
UNMOVED = {
    "non_differentiable/decorated-raises": "toyad keeps no flag that errors leave up; fails where no plugin is found",
    "cond/refuses-numbers-under-jit": "toyad refuses them itself; fails on JAX where the core checks no array",
    "cond/refuses-numbers-under-compile": "toyad refuses them itself; fails on PyTorch for that mutant too",
    "plugins/imports-nothing": f"{_ELSEWHERE}; no random mutant adds an import",
    "plugins/imports-no-tree-library": f"{_ELSEWHERE}; fails where no dataclass is flattened",
    "plugins/first-by-choice": "fails for a plugin that stays, and where the registry names the wrong conflicts",
}


# Mutants for which a scenario does not return: two of its threads wait for each other.
HANGS = {"the-other-branch"}


# Mutants that no scenario for a system of one level can notice, and why.
BEYOND_ONE_LEVEL = {
    **dict.fromkeys(
        (
            *("host-functions-refuse-parameters", "constants-of-parameters-are-frozen"),
            *("frozen-leaves-widen", "parameters-move-as-arguments-alone"),
        ),
        "it has no parameters",
    ),
    "recording-is-always-off": "it has no leaf with an identity, which alone would be frozen",
    **dict.fromkeys(("all-is-concrete", "batches-are-concrete"), "nothing hides values"),
    "frozen-leaves-are-none": "it has no leaf with an identity, which alone would be frozen",
    "forward-mode-transposes-the-vjp": "it has no forward mode",
    "rows-are-constant": "it has no second derivative",
    **dict.fromkeys(
        ("several-are-asked-by-their-class", "the-switch-is-turned-on", "pulls-are-zero-under-the-switch"), "no switch"
    ),
    **dict.fromkeys(
        ("values-under-the-switch-are-no-constants", "results-under-the-switch-are-variables"), "no switch"
    ),
}


@contextlib.contextmanager
def harness(base=toyad_harness.ToyHarness):
    """Give a harness whose container class no plugin has seen before: adprotocol registers a class once."""

    class Bag(toyad_harness.Bag):
        """A container of this harness."""

    class Harness(base):
        """The harness of toyad, with that container if it has one."""

        if base.node is not None:

            def node(self, children):
                return Bag(children)

    toyad.CONTAINERS[Bag] = (lambda bag: (bag.children, None), lambda _, children: Bag(children))
    try:
        yield Harness()
    finally:
        del toyad.CONTAINERS[Bag]


def fails(scenario, h, patience):
    """Return whether a scenario raises, or does not return within so many seconds."""
    errors = []

    def call():
        try:
            scenario.function(h)
        except BaseException as error:  # noqa: BLE001  (a mutant may raise anything)
            errors.append(error)

    thread = threading.Thread(target=call, daemon=True, name="conformance")
    thread.start()
    thread.join(patience)
    return thread.is_alive() or (bool(errors) and not isinstance(errors[0], Absent))


def words(text):
    return {word.rstrip("s") for word in re.findall("[a-z]+", text.lower())}


def failures(name, scenarios, base=toyad_harness.ToyHarness):
    """Iterate over the ids of the scenarios that fail for a mutant, or for None, the plugin as it should be."""
    patience = 4.0 if name in HANGS else 600.0
    # Those with its words come first: where one is enough, they take half of the time.
    scenarios = sorted(scenarios, key=lambda one: -len(words(name or "") & words(f"{one.id} {one.description}")))
    with (
        harness(base) as h,
        warnings.catch_warnings(),
        mock.patch.object(threading, "excepthook"),
        mutants.active(name),
    ):
        warnings.simplefilter("ignore")
        yield from (scenario.id for scenario in scenarios if fails(scenario, checked(h), patience))


@pytest.mark.slow
def test_every_scenario_notices_a_mutant_that_breaks_its_hook_and_every_mutant_is_noticed():
    unmoved = list(all_scenarios().values())
    unnoticed = []
    for name, hooks in mutants.BREAKS.items():
        # Those that have failed for a mutant run again only where no other fails.
        asked = [one for one in unmoved if one.hook in hooks]
        failed = set(failures(name, asked))
        again = [one for one in all_scenarios().values() if one.hook in hooks]
        unnoticed += [] if failed or any(failures(name, again)) else [name]
        unmoved = [one for one in unmoved if one.id not in failed]
    assert unnoticed == []
    assert {one.id for one in unmoved} == set(UNMOVED)
    assert list(failures(None, list(all_scenarios().values())[::10])) == []


@pytest.mark.slow
def test_every_mutant_is_noticed_on_a_system_of_one_level(monkeypatch):
    monkeypatch.setattr(toyad, "MOST", 1)
    with mutants.active():
        run = Run(backends.around(OneLevel))
        results = [(case.scenario, run.result(case)) for case in run.cases]
    assert [(result.id, result.message) for _, result in results if result.bad] == []
    asked = [one for one, result in results if result.outcome == PASS]
    unnoticed = set()
    for name, hooks in mutants.BREAKS.items():
        if not any(failures(name, [one for one in asked if one.hook in hooks], OneLevel)):
            unnoticed.add(name)
    assert unnoticed == set(BEYOND_ONE_LEVEL)
