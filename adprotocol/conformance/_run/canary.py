"""The canary: what a system did rightly before the first scenario, tried again.

A scenario may leave a framework broken: recording off, a level open. Whatever follows
would then be reported as the plugin's fault, or pass because nothing is differentiated
any more.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance._run.clock import TimeLimit
from adprotocol.conformance._run.probe import Probe
from adprotocol.conformance._run.result import PASS, THERE, count_ran
from adprotocol.conformance.checks import HarnessFault
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance._run.result import Result
    from adprotocol.conformance._run.survey import Survey

# So many scenarios may pass before it is tried again; it is tried at once after one that does not pass.
EVERY = 16


def _gradient(h: Probe, x: Any) -> None:
    h.assert_equal(h.grad(lambda x: x * x)(x), 6.0, "the gradient of x * x at 3")


def _tangent(h: Probe, x: Any) -> None:
    h.assert_equal(h.jvp(lambda x: x * x, x, h.array(1.0))[1], 6.0, "the tangent of x * x at 3")


def _untracked(h: Probe, x: Any) -> None:
    h.check(adprotocol.within_gradient(2.0 * x) is False, "the answer is not False where nothing is differentiated")


def _tracked(h: Probe, x: Any) -> None:
    h.assert_equal(h.grad(h.probe)(x), 3.0, "the gradient of 3 x where the answer is True, and of 5 x elsewhere,")


# Each check with the capability that it needs.
_CHECKS: tuple[tuple[str, Callable[[Probe, Any], None]], ...] = (
    ("grad", _gradient),
    ("jvp", _tangent),
    ("array", _untracked),
    ("grad", _tracked),
)


class Canary:
    """Tell whether a system still does what it did rightly when this object was made."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        there = [check for capability, check in _CHECKS if survey.capabilities.get(capability) == THERE]
        self._checks = [check for check in there if not self._fault(check)]
        # How many cases have run since the check before the last.
        self.suspects = 0
        self._new = True  # a check has been made behind the last case

    def behind(self, result: Result, *, now: bool = False) -> str | None:
        """Return what the system does no longer behind a case, in words; empty if it does all, None if not tried.

        It is tried `now`, behind a case that did not pass, or if it is time.
        """
        ran = result.seconds > 0 or count_ran([result]) > 0  # some find while they run that they do not apply
        self.suspects = self.suspects * (not self._new) + ran
        self._new = now or (ran and result.outcome != PASS) or self.suspects >= EVERY
        return next(filter(None, map(self._fault, self._checks)), "") if self._new else None

    def _fault(self, check: Callable[[Probe, Any], None]) -> str:
        h = Probe(self._survey.harness)
        error = self._survey.error(functools.partial(_tried, check, h))
        if error is None:
            return ""
        return str(error) if isinstance(error, HarnessFault) else f"trying a known gradient: {_words(error)}"


def _tried(check: Callable[[Probe, Any], None], h: Probe) -> None:
    check(h, h.array(3.0))


def _words(error: BaseException) -> str:
    return str(error) if isinstance(error, TimeLimit) else one_line(error)
