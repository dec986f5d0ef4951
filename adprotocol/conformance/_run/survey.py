"""The survey: what a harness has, whether it does what it documents, and which divergences the plugin declares.

It comes before any scenario, and reports once what would otherwise show in many.
"""

from __future__ import annotations

import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance._run import clock, expected, preflight
from adprotocol.conformance._run.case import Case, cases
from adprotocol.conformance._run.clock import FRAMES, TimeLimit, Worker
from adprotocol.conformance._run.result import Problem
from adprotocol.conformance.checks import HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, HIGHER_ORDER, KNOWN, REQUIRED
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adprotocol.conformance._run.backend import Backend
    from adprotocol.conformance.harness import Harness

# Files whose frames a traceback leaves out.
MACHINERY = (__file__, clock.__file__, str(Path(__file__).with_name("runner.py")))


class Survey:
    """Examine the harness and the divergences of a backend; nothing that they do is raised.

    Attributes:
        capabilities: for each capability "there", "absent: why" or "broken: why".
        broken_variants: the fault of each broken variant, by "capability=name".
        variants: the variants by capability and name.
        divergences: what the plugin declares.
        problems: the faults found.
    """

    def __init__(self, backend: Backend, seconds: float) -> None:
        self.backend = backend
        self.seconds = seconds
        self.capabilities: dict[str, str] = {}
        self.broken_variants: dict[str, str] = {}
        self.divergences: tuple[Any, ...] = ()
        self.problems: list[Problem] = []
        self._worker = Worker()
        self._variants: dict[str, dict[str, Callable[..., Any]]] | None = None
        self._made = False

    @property
    def harness(self) -> Harness:
        """Return the harness of the backend."""
        return self.backend.harness

    @property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the variants of the harness; none, and a problem, if they cannot be read."""
        if self._variants is None:
            self._variants = self._read(lambda: preflight.variants(self.harness), "harness", "variants") or {}
        return self._variants

    def cases(self) -> list[Case]:
        """Return every case of the harness."""
        return cases(self.variants)

    def make(self) -> None:
        """Check each capability of the harness and each divergence, once."""
        if self._made:
            return
        self._made = True
        reasons = self._read(lambda: preflight.reasons(self.harness), "harness", "absent") or {}
        for name in reasons:
            if name not in KNOWN:
                self.note("harness", f"absent names the unknown capability {name!r}")
        for capability in (*REQUIRED, *CAPABILITIES):
            self.capabilities[capability] = self._capability(capability, reasons)
        self.capabilities[HIGHER_ORDER] = self._higher_order(reasons)
        self._untracked()
        for capability, named in self.variants.items():
            for name, function in named.items():
                self._variant(capability, name, function)
        self.divergences = self._read(lambda: tuple(self.backend.divergences()), "divergences", "divergences") or ()
        self.problems.extend(expected.problems(self.divergences, [case.id for case in self.cases()]))

    def _read(self, get: Callable[[], Any], where: str, what: str) -> Any:
        """Return what `get` returns, or None and a problem if it does not."""
        found: list[Any] = []
        error = self.error(lambda: found.append(get()))
        if error is None:
            return found[0]
        message = str(error) if isinstance(error, HarnessFault) else f"{what}: {one_line(error)}"
        self.note(where, message, detail_of(error))
        return None

    def _capability(self, capability: str, reasons: Mapping[str, str]) -> str:
        try:
            reason = preflight.missing(self.harness, capability, reasons)
        except HarnessFault as fault:
            self.note("harness", str(fault))
            return f"{preflight.BROKEN}: {fault}"
        if reason:
            return f"{preflight.ABSENT}: {reason}"
        # A broken basis of many checks is reported once, and one that hangs is waited for once.
        for basis in ("array", "to_numpy", *preflight.BASIS.get(capability, ())):
            if self.capabilities.get(basis, "").startswith(preflight.BROKEN):
                return f"{preflight.BROKEN}: not checked, for {basis} is broken"
        return self._state(capability, lambda: preflight.check(self.harness, capability))

    def _state(self, capability: str, check: Callable[[], object]) -> str:
        error = self.error(check)
        if error is None:
            return preflight.THERE
        message = _fault(error)
        self.note("harness", f"{capability}: {message}", detail_of(error))
        return f"{preflight.BROKEN}: {message}"

    def _higher_order(self, reasons: Mapping[str, str]) -> str:
        """Return the state of differentiating gradients, which no function of the harness tells."""
        if self.capabilities["grad"] != preflight.THERE:
            return f"{preflight.ABSENT}: it needs grad"
        if HIGHER_ORDER in reasons:
            return f"{preflight.ABSENT}: {reasons[HIGHER_ORDER]}"
        refused: list[str] = []
        state = self._state(HIGHER_ORDER, lambda: refused.append(preflight.higher_order(self.harness)))
        return f"{preflight.ABSENT}: {refused[0]}" if refused and refused[0] else state

    def _untracked(self) -> None:
        """Report once, rather than in every scenario, that the arrays of the harness are tracked."""
        if self.capabilities["array"] != preflight.THERE:
            return
        answers: list[Any] = []
        error = self.error(lambda: answers.append(adprotocol.within_gradient(self.harness.array(3.0))))
        if error is None and answers[0] is True:
            self.note(
                "harness",
                "within_gradient(array(3.0)) is True although nothing is differentiated: either array() returns a "
                "tracked array (it must be untracked, in PyTorch requires_grad=False) or the plugin is wrong; most "
                "scenarios fail because of it",
            )

    def _variant(self, capability: str, name: str, function: Callable[..., Any]) -> None:
        if self.capabilities[capability] != preflight.THERE:
            return
        error = self.error(lambda: preflight.check(self.harness, capability, {capability: function}))
        if error is not None:
            key = f"{capability}={name}"
            self.broken_variants[key] = _fault(error)
            self.note("harness", f"variant {key}: {_fault(error)}", detail_of(error))

    def note(self, where: str, message: str, detail: str = "") -> None:
        """Note a problem of the harness, the divergences or the run itself."""
        self.problems.append(Problem(where=where, message=message, detail=detail))

    def error(self, call: Callable[[], object]) -> BaseException | None:
        """Return the exception of a call within the time limit, or None; changed warning filters are restored."""
        import numpy as np  # noqa: PLC0415  (--list does without)

        def isolated() -> None:
            with np.errstate():
                call()

        with warnings.catch_warnings():
            # Warnings of frameworks, of divisions by zero and experimental features, are not results.
            warnings.simplefilter("ignore")
            return self._worker.run(isolated, self.seconds)

    def close(self) -> None:
        """End the thread that runs the calls."""
        self._worker.close()


def _fault(error: BaseException) -> str:
    """Return the fault of the harness in words."""
    if isinstance(error, TimeLimit):
        return f"its check did not return: {error}"
    return str(error) if isinstance(error, HarnessFault) else one_line(error)


def detail_of(error: BaseException) -> str:
    """Return the traceback of an error and its causes, without the frames of the suite's own machinery."""
    if isinstance(error, TimeLimit):
        return error.detail
    shown = traceback.TracebackException.from_exception(error, limit=-FRAMES, compact=True)
    shown.stack[:] = [frame for frame in shown.stack if frame.filename not in MACHINERY]
    return "".join(shown.format())
