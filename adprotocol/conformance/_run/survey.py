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
from adprotocol.conformance._run import clock, declared, preflight
from adprotocol.conformance._run.case import Case, cases
from adprotocol.conformance._run.clock import FRAMES, TimeLimit, Worker
from adprotocol.conformance._run.result import ABSENT, BROKEN, THERE, Problem
from adprotocol.conformance.checks import Absent, HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, HIGHER_ORDER, KNOWN, REQUIRED, TRIED
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from adprotocol.conformance._run.backend import Backend

# Files whose frames a traceback leaves out.
MACHINERY = (__file__, clock.__file__, str(Path(__file__).with_name("runner.py")))

_TRACKED = (
    "within_gradient(array(3.0)) is True although nothing is differentiated: either array() returns a tracked array "
    "(it must be untracked, in PyTorch requires_grad=False) or the plugin is wrong; most scenarios fail because of it"
)
_STILL_TRACKED = (
    "within_gradient is True for what {} of the harness returned although nothing is differentiated any more: either "
    "the harness returns a tracked array or the plugin is wrong"
)


class Survey:
    """Examine the harness and the divergences of a backend; nothing that they do is raised.

    Attributes:
        capabilities: for each capability "there", "absent: why" or "broken: why".
        broken_variants: the fault of each broken variant, by "capability=name".
        divergences: what the plugin declares.
        problems: the faults found.
        nestings: why the system lacks a nesting, by nesting, as the harness says.
        announce: called with the name of each check of a capability or variant before it runs.
        crashed: what ended the process, for each check that did in an earlier session.
    """

    def __init__(self, backend: Backend, seconds: float) -> None:
        self.harness = backend.harness
        self.seconds = seconds
        self.capabilities: dict[str, str] = {}
        self.broken_variants: dict[str, str] = {}
        self.divergences: tuple[Any, ...] = ()
        self.problems: list[Problem] = []
        self.nestings: dict[str, str] = {}
        self.announce: Callable[[str], None] = lambda _: None
        self.crashed: Mapping[str, str] = {}
        self._declared = backend.divergences
        self._worker = Worker()
        self._made = False
        self._native: dict[tuple[str, str], Exception | None] = {}

    @functools.cached_property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the variants of the harness by capability and name; none, and a problem, if they cannot be read."""
        return self._read(lambda: preflight.variants(self.harness), "harness", "variants") or {}

    def functions(self, variant: str) -> dict[str, Callable[..., Any]]:
        """Return the function of a variant by its capability; empty without a variant."""
        capability, _, name = variant.partition("=")
        return {capability: self.variants[capability][name]} if variant else {}

    def cases(self) -> list[Case]:
        """Return every case of the harness."""
        return cases(self.variants)

    def make(self) -> None:
        """Check each capability of the harness and each divergence, once."""
        if self._made:
            return
        self._made = True
        reasons = self._read(lambda: preflight.reasons(self.harness), "harness", "absent") or {}
        variants = self.variants
        unknown = self._read(lambda: list(preflight.unknown(self.harness, variants)), "harness", "attributes")
        for fault in unknown or ():
            self.note("harness", fault)
        for capability in (*REQUIRED, *CAPABILITIES, *TRIED):
            self.capabilities[capability] = self._state(capability, reasons)
        self._nestings(reasons)
        self._untracked()
        self._enclosed()
        for capability in filter(self._has, self.variants):
            for name, function in self.variants[capability].items():
                self._variant(capability, name, function)
        self.divergences = self._read(lambda: tuple(self._declared()), "divergences", "divergences") or ()
        for message in declared.problems(self.divergences, [case.id for case in self.cases()]):
            self.note("divergences", message)

    def _has(self, capability: str) -> bool:
        return self.capabilities[capability] == THERE

    def _read(self, get: Callable[[], Any], where: str, what: str) -> Any:
        """Return what `get` returns, or None and a problem if it does not."""
        found: list[Any] = []
        error = self.error(lambda: found.append(get()))
        if error is None:
            return found[0]
        message = str(error) if isinstance(error, HarnessFault) else f"{what}: {one_line(error)}"
        self.note(where, message, detail_of(error))
        return None

    def _state(self, capability: str, reasons: Mapping[str, str]) -> str:
        """Return the state of a capability; what is broken is a problem."""
        error = self.error(lambda: preflight.find(self.harness, capability, reasons))
        if error is None:
            # A broken basis of many checks is reported once, and one that hangs is waited for once.
            for basis in ("array", "to_numpy", *preflight.BASIS.get(capability, ())):
                if self.capabilities.get(basis, "").startswith(BROKEN):
                    return f"{BROKEN}: not checked, for {basis} is broken"
            error = self._check(capability, lambda: preflight.check(self.harness, capability))
        if error is None:
            return THERE
        if isinstance(error, Absent):
            return f"{ABSENT}: {error}"
        self.note("harness", f"{capability}: {_fault(error)}", detail_of(error))
        return f"{BROKEN}: {_fault(error)}"

    def _check(self, name: str, check: Callable[[], object]) -> BaseException | None:
        """Return the error of a check; one that has ended a process is not made again."""
        if name in self.crashed:
            return HarnessFault(f"its check crashed: {self.crashed[name]}")
        self.announce(name)
        return self.error(check)

    def _nestings(self, reasons: Mapping[str, str]) -> None:
        """Note the nestings that the harness says the system lacks; one that the system does right is a problem."""
        for name, reason in reasons.items():
            if name in KNOWN:
                continue
            if not nesting.native(name):
                words = ", ".join(nesting.TRANSFORMS)
                self.note("harness", f"absent names {name!r}, no capability and no nesting of {words}")
            elif all(map(self._has, nesting.parse(name))):
                if self.native(name) is None:
                    self.note("harness", f"absent names {name!r}, which the system does, and rightly; take it out")
                self.nestings[name] = reason

    def native(self, transforms: str, variant: str = "") -> Exception | None:
        """Return how the system itself fails at a nesting: `Absent` if it refuses, `HarnessFault` if it is wrong."""
        known = transforms, variant
        if known not in self._native:
            error = self.error(lambda: preflight.native(self.harness, transforms, self.functions(variant)))
            kind = HarnessFault if isinstance(error, HarnessFault) else Absent
            self._native[known] = None if error is None else kind(_fault(error))
        return self._native[known]

    def _untracked(self) -> None:
        """Report once, rather than in every scenario, that arrays or results of the harness are tracked."""
        if not self._has("array"):
            return
        if self._tracked(lambda: self.harness.array(3.0)):
            self.note("harness", _TRACKED)
            return
        for capability, call in preflight.RESULTS.items():
            self.announce(capability)
            if self._has(capability) and self._tracked(functools.partial(call, self.harness)):
                fault = _STILL_TRACKED.format(capability)
                self.note("harness", f"{capability}: {fault}")
                self.capabilities[capability] = f"{BROKEN}: {fault}"

    def _enclosed(self) -> None:
        """Report once that `grad` of the harness gives constants to a gradient of the plugin's around it."""
        if not (self._has("grad") and self._has(HIGHER_ORDER)):
            return
        fault = preflight.enclosed(self.harness, self.error)
        if fault:
            self.note("harness", f"grad: {fault}")
            self.capabilities["grad"] = f"{BROKEN}: {fault}"

    def _tracked(self, make: Callable[[], Any]) -> bool:
        """Return whether the plugin says of a value that it is tracked."""
        answers: list[Any] = []
        error = self.error(lambda: answers.append(adprotocol.within_gradient(make())))
        return error is None and answers[0] is True

    def _variant(self, capability: str, name: str, function: Callable[..., Any]) -> None:
        variant = f"{capability}={name}"
        error = self._check(variant, lambda: preflight.check(self.harness, capability, {capability: function}))
        if error is not None:
            fault = self.broken_variants[variant] = _fault(error)
            self.note("harness", f"variant {variant}: {fault}", detail_of(error))

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
    return str(error) if isinstance(error, (HarnessFault, Absent)) else one_line(error)


def detail_of(error: BaseException) -> str:
    """Return the traceback of an error and its causes, without the frames of the suite's own machinery."""
    if isinstance(error, TimeLimit):
        return error.detail
    shown = traceback.TracebackException.from_exception(error, limit=-FRAMES, compact=True)
    shown.stack[:] = [frame for frame in shown.stack if frame.filename not in MACHINERY]
    return without_folders("".join(shown.format()))


def without_folders(text: str) -> str:
    """Return a traceback without the folders of this machine: a report may be published."""
    for folder in sorted({*sys.path, str(Path.cwd())}, key=len, reverse=True):
        text = text.replace(f'File "{folder}/', 'File "') if folder else text
    return text
