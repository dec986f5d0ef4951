"""A system that differentiates once: what it declares or refuses is asked of no scenario, inside of one either."""

import pytest
import toyad
from small import ToyHarness, toy

from adprotocol.conformance import run


class Flat(ToyHarness):
    """toyad with all but a second derivative."""

    absent = {"grad of grad": "one level", "jvp of grad": "one level"}  # noqa: RUF012  (as maintainers write it)

    def __init__(self, device=None):
        super().__init__(device)
        toyad.MOST = 1


class Undeclared(Flat):
    """The same, which leaves it to the suite to try."""

    absent = {}  # noqa: RUF012  (as above)


@pytest.mark.parametrize("harness", [Flat, Undeclared])
def test_a_system_of_one_level_is_green(harness, monkeypatch):
    monkeypatch.setattr(toyad, "MOST", 1)
    with toy():
        report = run(harness)
    assert [(result.id, result.message) for result in report.results if result.bad] == []
    assert report.problems == ()
    assert report.ran > 300
