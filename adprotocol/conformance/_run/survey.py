"""The survey: what a harness has, whether it does what it documents, and which divergences the plugin declares.

It comes before any scenario, and reports once what would otherwise show in many.
"""

from __future__ import annotations

import functools
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance._run import clock, expected, preflight
from adprotocol.conformance._run.case import Case, cases
from adprotocol.conformance._run.clock import FRAMES, TimeLimit, Worker
from adprotocol.conformance._run.probe import Probe
from adprotocol.conformance._run.result import Problem
from adprotocol.conformance.checks import HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, KNOWN, REQUIRED, TRIED
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
        nestings: why the system lacks a nesting, by nesting, as the harness says.
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
        self.nestings: dict[str, str] = {}
        self._native: dict[tuple[str, str], tuple[str, str]] = {}

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
        for capability in (*REQUIRED, *CAPABILITIES):
            self.capabilities[capability] = self._capability(capability, reasons)
        for capability in TRIED:
            self.capabilities[capability] = self._tried(capability, reasons)
        self._nestings(reasons)
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

    def _tried(self, capability: str, reasons: Mapping[str, str]) -> str:
        """Return the state of a capability that no function of the harness tells."""
        basis, attempt = preflight.TRY[capability]
        if self.capabilities[basis] != preflight.THERE:
            return f"{preflight.ABSENT}: it needs {basis}"
        if capability in reasons:
            return f"{preflight.ABSENT}: {reasons[capability]}"
        refused: list[str] = []
        state = self._state(capability, lambda: refused.append(attempt(Probe(self.harness))))
        return f"{preflight.ABSENT}: {refused[0]}" if refused and refused[0] else state

    def _nestings(self, reasons: Mapping[str, str]) -> None:
        """Note the nestings that the harness says the system lacks; one that the system does right is a problem."""
        for name, reason in reasons.items():
            if name in KNOWN:
                continue
            if not nesting.native(name):
                words = ", ".join(nesting.TRANSFORMS)
                self.note("harness", f"absent names {name!r}, no capability and no nesting of {words}")
            elif all(self.capabilities[part] == preflight.THERE for part in nesting.parse(name)):
                if self.native(name)[0] == "":
                    self.note("harness", f"absent names {name!r}, which the system does, and rightly; take it out")
                self.nestings[name] = reason

    def native(self, transforms: str, variant: str = "") -> tuple[str, str]:
        """Return how the system itself fails at a nesting, what it does and how; empty texts if it does not."""
        known = transforms, variant
        if known not in self._native:
            capability, _, name = variant.partition("=")
            functions = {capability: self.variants[capability][name]} if capability else {}
            found = ("", "")

            def attempt() -> None:
                nonlocal found
                found = preflight.native(self.harness, transforms, functions)

            error = self.error(attempt)
            self._native[known] = found if error is None else (preflight.REFUSES, _fault(error))
        return self._native[known]

    def _untracked(self) -> None:
        """Report once, rather than in every scenario, that arrays or results of the harness are tracked."""
        if self.capabilities["array"] != preflight.THERE:
            return
        if self._tracked(lambda: self.harness.array(3.0)):
            self.note("harness", preflight.TRACKED)
            return
        for capability, call in preflight.RESULTS.items():
            made = functools.partial(call, self.harness)
            if self.capabilities[capability] == preflight.THERE and self._tracked(made):
                fault = preflight.STILL_TRACKED.format(capability)
                self.note("harness", f"{capability}: {fault}")
                self.capabilities[capability] = f"{preflight.BROKEN}: {fault}"

    def _tracked(self, make: Callable[[], Any]) -> bool:
        """Return whether the plugin says of a value that it is tracked."""
        answers: list[Any] = []
        error = self.error(lambda: answers.append(adprotocol.within_gradient(make())))
        return error is None and answers[0] is True

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
    text = "".join(shown.format())
    # A report may be published: no folders of this machine.
    for folder in sorted({*sys.path, str(Path.cwd())}, key=len, reverse=True):
        text = text.replace(f'File "{folder}/', 'File "') if folder else text
    return text
