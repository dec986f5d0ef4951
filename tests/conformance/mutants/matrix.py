"""The kill matrix: every mutant under every scenario."""

import contextlib
import threading
import warnings
from unittest import mock

import toyad
import toyad_harness

from adprotocol.conformance import Absent, all_scenarios, checked
from adprotocol.conformance.clock import Worker
from mutants.mutant import active

SECONDS = 3.0


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


def failures(mutant=None, scenarios=None):
    """Return what scenarios say of a mutant, or for None of the plugin as it should be: an error for each that fails."""
    found = {}
    worker = Worker()
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        harness = stack.enter_context(fresh_harness())
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # What a mutant raises in a thread of a scenario's is no news.
        stack.enter_context(mock.patch.object(threading, "excepthook", lambda _: None))
        stack.enter_context(active(mutant))
        for scenario in all_scenarios().values() if scenarios is None else scenarios:
            h = checked(harness)
            error = worker.run(lambda scenario=scenario, h=h: scenario.function(h), SECONDS)
            if error is not None and not isinstance(error, Absent):
                found[scenario.id] = error
    return found
