"""The kill matrix: which scenarios fail for which mutant."""

import contextlib
import functools
import json
import multiprocessing
import operator
import threading
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from unittest import mock

import toyad
import toyad_harness

from adprotocol.conformance import Absent, all_scenarios, checked
from mutants.mutant import MUTANTS, active

# A scenario takes a few milliseconds; one that waits for a thread that a mutant has killed is given up.
SECONDS = 4.0
# For each mutant scenarios that failed for it when this was written (`python -m mutants --record`), to be tried first.
KNOWN = Path(__file__).with_name("known.json")
# How many scenarios run between two looks at whether one has failed.
BATCH = 16


@contextlib.contextmanager
def fresh_harness():
    """Give a harness whose container class no plugin has seen before: adprotocol registers a class once."""

    class Bag(toyad_harness.Bag):
        """A container of this harness."""

    class Harness(toyad_harness.ToyHarness):
        """The harness of toyad, with that container."""

        def node(self, children):
            return Bag(children)

    toyad.CONTAINERS[Bag] = (lambda bag: (bag.children, None), lambda _, children: Bag(children))
    try:
        yield Harness()
    finally:
        del toyad.CONTAINERS[Bag]


def _error(function, h):
    """Return what a scenario raises, or that it does not return."""
    raised = []

    def call():
        try:
            function(h)
        except BaseException as error:  # noqa: BLE001  (a mutant may raise anything)
            raised.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(SECONDS)
    return TimeoutError(f"it did not return within {SECONDS:g} s") if thread.is_alive() else next(iter(raised), None)


def failures(mutant=None, scenarios=None):
    """Return an error for each scenario that fails for a mutant, or for None, the plugin as it should be."""
    found = {}
    with contextlib.ExitStack() as stack:
        harness = stack.enter_context(fresh_harness())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # What a mutant raises in a thread of a scenario's is no news.
        stack.enter_context(mock.patch.object(threading, "excepthook"))
        every = list(all_scenarios().values() if scenarios is None else scenarios)
        for together in [[scenario] for scenario in every] if mutant is not None and mutant.remembers else [every]:
            with active(mutant):
                for scenario in together:
                    h = checked(harness)
                    error = _error(scenario.function, h)
                    if error is not None and not isinstance(error, Absent):
                        found[scenario.id] = error
    return found


def killers(place):
    """Return the ids of the scenarios that fail for the mutant at a place of `MUTANTS`."""
    return list(failures(MUTANTS[place]))


def whole(mutants, jobs=2):
    """Yield each mutant with the ids of all scenarios that fail for it, from several processes."""
    if jobs == 1:
        for mutant in mutants:
            yield mutant, list(failures(mutant))
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        yield from zip(mutants, pool.map(killers, map(MUTANTS.index, mutants)), strict=True)


def make_of(scenario):
    """Return the function that builds the program of a scenario: those that differ by a transformation share it."""
    function = scenario.function
    while isinstance(function, functools.partial):
        function = function.func
    return function


def makes(ids):
    """Return the makes of scenarios, by their ids."""
    scenarios = all_scenarios()
    return {make_of(scenarios[name]) for name in ids}


def by_turns(scenarios):
    """Return scenarios in such an order that the first are each of another make."""
    seen = Counter()
    turns = []
    for scenario in scenarios:
        turns.append(seen[make_of(scenario)])
        seen[make_of(scenario)] += 1
    return [scenario for _, scenario in sorted(zip(turns, scenarios, strict=True), key=operator.itemgetter(0))]


def quick():
    """Return for each mutant scenarios that fail for it, enough to tell survivors, idle scenarios and pairs of makes.

    A scenario that has failed for a mutant runs again only for mutants that are not yet killed by two makes.
    """
    every = all_scenarios()
    scenarios = by_turns(every.values())
    known = json.loads(KNOWN.read_text(encoding="utf-8"))
    tried = {mutant: [every[name] for name in known.get(mutant.id, ()) if name in every] for mutant in MUTANTS}
    found = {mutant: list(failures(mutant, tried[mutant])) for mutant in MUTANTS}
    for mutant in MUTANTS:
        own = [scenario for scenario in scenarios if scenario.hook == mutant.hook]
        waiting = idle(found, own)
        if waiting:
            found[mutant] += failures(mutant, waiting)
        others = [scenario for scenario in scenarios if scenario.hook != mutant.hook and not mutant.alone]
        others.sort(key=lambda scenario: scenario.hook != mutant.beside)
        rest = [scenario for scenario in own if scenario not in waiting] + others
        while rest and len(makes(found[mutant])) <= 1:
            found[mutant] += failures(mutant, rest[:BATCH])
            rest = rest[BATCH:]
    for mutant in MUTANTS:
        waiting = idle(found, scenarios)
        if waiting and not mutant.trivial:
            found[mutant] += failures(mutant, [scenario for scenario in waiting if scenario.hook != mutant.hook])
    return found


def record(found):
    """Write for each mutant a scenario of its hook, one of another make, and those that no mutant before it has."""
    covered = set()
    lines = []
    for mutant, ids in found.items():
        kept = {}
        for name in sorted(ids, key=lambda name: name.partition("/")[0] != mutant.hook):
            kept.setdefault(make_of(all_scenarios()[name]), name)
        chosen = [*kept.values()][:2]
        if not mutant.trivial:
            chosen += [name for name in ids if name not in covered and name not in chosen]
            covered.update(chosen)
        lines.append(f" {json.dumps(mutant.id)}: {json.dumps(chosen)}")
    KNOWN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _quick():
    return list(quick().values())


def quick_alone():
    """Return `quick()` from a process that holds no framework: scenarios collect garbage, which takes long there."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return dict(zip(MUTANTS, pool.submit(_quick).result(), strict=True))


def survivors(found):
    """Return the mutants for which no scenario of their hook fails."""
    return [mutant for mutant, ids in found.items() if not any(name.partition("/")[0] == mutant.hook for name in ids)]


def alone(found):
    """Return the mutants for which scenarios of less than two makes fail, those apart that say why."""
    return [mutant for mutant, ids in found.items() if len(makes(ids)) <= 1 and not mutant.alone]


def idle(found, scenarios):
    """Return the scenarios that fail for no mutant, those apart that fail at everything."""
    killing = {name for mutant, ids in found.items() if not mutant.trivial for name in ids}
    return [scenario for scenario in scenarios if scenario.id not in killing]
