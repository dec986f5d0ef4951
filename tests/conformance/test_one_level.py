"""A system that differentiates once: what it refuses is asked of no scenario, inside of one either."""

import toyad
from small import ToyHarness, toy

from adprotocol.conformance import run


class OneLevel(ToyHarness):
    """toyad with all but a second derivative, which it leaves to the suite to try."""

    absent = {}  # noqa: RUF012  (as maintainers write it)

    def __init__(self, device=None):
        super().__init__(device)
        toyad.MOST = 1


def test_a_system_of_one_level_is_green(monkeypatch):
    monkeypatch.setattr(toyad, "MOST", 1)
    with toy():
        report = run(OneLevel)
    assert [(result.id, result.message) for result in report.results if result.bad] == []
    assert report.problems == ()
    assert report.ran > 300
