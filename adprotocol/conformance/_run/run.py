"""A run on one backend: the state of each capability, and the result of each case.

Nothing that a harness, a plugin or a scenario does is raised: it is reported.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
import sys
import textwrap
import time
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol._dispatch.shape import sizes
from adprotocol.conformance import nesting
from adprotocol.conformance._run import declared, harness_checks
from adprotocol.conformance._run import result as results
from adprotocol.conformance._run.case import cases
from adprotocol.conformance._run.result import ABSENT, BROKEN, THERE, Problem, Report, Result
from adprotocol.conformance.checks import Absent, Checked, HarnessFault, NoError, WrongAnswer
from adprotocol.conformance.harness import CAPABILITIES, KINDS, KNOWN, REQUIRED, TRIED, Harness
from adprotocol.divergence import CORE, ERROR, WRONG
from adprotocol.errors import PluginError, RuleError
from adprotocol.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from adprotocol.conformance._run.backend import Backend
    from adprotocol.conformance._run.case import Case
    from adprotocol.conformance.scenario import Scenario

# What is checked before any scenario.
CHECKS = ("attributes", "divergences", *REQUIRED, *CAPABILITIES, *TRIED, *KINDS)
# For each hook that differentiates structures the optional hooks of a plugin of which it needs one.
_NEEDS = {"value_and_grad": ("vjp",), "vjp": ("vjp",), "jvp": ("jvp", "vjp"), "jacobian": ("jvp", "vjp")}
_WITHOUT = "(the plugin does not have this optional hook)"
# What is said of an array that should have shape (), in a system that has matrices alone.
_OF_MATRIX = "has shape (1, 1); () was"
# How many frames of a failure are shown.
FRAMES = 20
# What is tried again after each case.
_CANARIES = ("array", "grad", "jvp")


class LeftBroken(Exception):  # noqa: N818
    """The system does no longer what it did before a case."""


class Run:
    """Check a harness, and judge cases on it.

    Attributes:
        capabilities: of those checked so far, each with "there", "absent: why" or "broken: why".
        problems: the faults of the harness and of the divergences.
        fault: in which way a case has left the system broken: what follows would show that, and nothing of its own.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend, self.harness = backend, backend.harness
        self.capabilities: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.fault = ""
        self.native = functools.cache(self._native)
        self.check = functools.cache(self._check)

    def report(self, **known: Any) -> Report:
        """Return what is known but the results."""
        backend = self.backend
        return Report(
            backend=backend.name,
            framework_version=backend.framework_version,
            plugin=backend.plugin,
            plugin_version=backend.plugin_version,
            files=backend.files,
            device=self.harness.device,
            total=len(self.cases),
            capabilities={name: self.capabilities[name] for name in KNOWN if name in self.capabilities},
            divergences=(*self.divergences, *CORE),
            problems=tuple(self.problems),
            **known,
        )

    @functools.cached_property
    def reasons(self) -> Mapping[str, str]:
        """Return why the harness says that a capability or a nesting is absent, each reason on one line."""
        read = self._read("harness", "absent", lambda: dict(self.harness.absent.items())) or {}
        return {name: " ".join(str(reason).split()) for name, reason in read.items()}

    @functools.cached_property
    def variants(self) -> Mapping[str, Mapping[str, Callable[..., Any]]]:
        """Return the variants of the harness by capability and name."""
        harness = self.harness
        return self._read("harness", "variants", lambda: {key: {**v} for key, v in harness.variants.items()}) or {}

    @functools.cached_property
    def divergences(self) -> tuple[Any, ...]:
        """Return what the plugin declares."""
        return self._read("divergences", "divergences", lambda: tuple(self.backend.divergences())) or ()

    @functools.cached_property
    def cases(self) -> list[Case]:
        """Return every case of the harness."""
        return cases(self.variants)

    def _read(self, where: str, what: str, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (Exception, SystemExit) as error:  # noqa: BLE001  (somebody else's code may raise anything)
            message = str(error) if isinstance(error, HarnessFault) else f"{what}: {one_line(error)}"
            self.problems.append(Problem(where=where, message=message, detail=detail_of(error)))
            return None

    @functools.cached_property
    def faulty(self) -> bool:
        """Return whether the harness has a fault: all of them are found first, and no scenario runs."""
        return [found for name in CHECKS for found in self.check(name) if found.where == "harness"] != []

    def _check(self, name: str) -> list[Problem]:
        """Make one of `CHECKS`, and return the problems."""
        if name == "attributes":
            self.problems += [Problem(where="harness", message=message) for message in self._wrong_names()]
            return self.problems
        if name == "divergences":
            wrong = list(declared.problems(self.divergences, [case.id for case in self.cases]))
            self.problems += [Problem(where=name, message=message) for message in wrong]
            return [problem for problem in self.problems if problem.where == name]
        for variant in ("", *self.variants.get(name, {})):
            self.state(f"{name}={variant}" if variant else name)
        own = (f"{name}: ", f"variant {name}=")
        return [problem for problem in self.problems if problem.message.startswith(own)]

    def _wrong_names(self) -> Iterator[str]:
        """Yield what is wrong with the names of functions, and with those in `variants` and `absent`."""
        # Not those that begin with the name of a capability, as grad_by_tape.
        for name in sorted({*dir(type(self.harness))} - {*dir(Harness)}):
            near = difflib.get_close_matches(name, (*REQUIRED, *CAPABILITIES), 1, 0.75)
            if near and not name.startswith(("_", f"{near[0]}_")):
                yield f"{name} is no capability; {near[0]} is. The names of your own functions begin with an underscore"
        yield from (f"variants names {name}, no capability" for name in self.variants if name not in KNOWN)
        for name in self.reasons:
            if name in KNOWN:
                continue
            if not nesting.native(name):
                yield f"absent names {name!r}, no capability and no nesting of {', '.join(nesting.TRANSFORMS)}"
            elif all(self.state(part) == THERE for part in nesting.parse(name)) and self.native(name) is None:
                yield f"absent names {name!r}, which the system does, and rightly; take it out"

    def state(self, name: str) -> str:
        """Return the state of a capability, or of a variant of one, checked once; what is broken is a problem."""
        if name not in self.capabilities:
            self.capabilities[name] = self._state(name)
        return self.capabilities[name]

    def _state(self, name: str) -> str:
        capability, _, variant = name.partition("=")
        reason, defined = self.reasons.get(capability), self.harness.defines(capability)
        if not defined and (reason or capability in CAPABILITIES):
            return f"{ABSENT}: {reason or 'the harness does not define it'}"
        # What is broken in the basis of all checks is reported once.
        for basis in REQUIRED[: REQUIRED.index(capability)] if capability in REQUIRED else REQUIRED:
            fault = self._fault([basis]) if self.state(basis).startswith(BROKEN) else ""
            if fault and not (_OF_MATRIX in fault and capability in KINDS[:3]):
                return f"{BROKEN}: not checked, for {basis} is broken"
        where = "harness"
        try:
            with isolated():
                harness_checks.check(self.harness, capability, self.functions(name) if variant else None)
                where = "harness or plugin"
                self._check_untracked(capability)
        except Absent as reason:
            return f"{ABSENT}: {reason}"
        except (Exception, SystemExit) as error:  # noqa: BLE001  (somebody else's code may raise anything)
            message = str(error) if isinstance(error, HarnessFault) else one_line(error)
            kind = "vectors" if _OF_MATRIX in message else capability
            message += f"; if the system has no {kind}, say so: absent = {{{kind!r}: 'why'}}" * (kind in KINDS)
            what = f"variant {name}" if variant else name
            self.problems.append(Problem(where=where, message=f"{what}: {message}", detail=detail_of(error)))
            return f"{BROKEN}: {message}"
        return THERE

    def _check_untracked(self, capability: str) -> None:
        """Report once, rather than in every scenario, that arrays or results of the harness are tracked."""
        call, _ = next(iter(harness_checks.PROBES[capability].values()))
        h, x = Checked(self.harness), self.harness.array(3.0)
        if capability == "array" and "vectors" in self.reasons and self.backend.hooks and sizes(x):
            msg = "array(3.0) has two axes, and is a number: the plugin's array_functions needs shape(array), () for it"
            raise HarnessFault(msg)
        if capability in harness_checks.UNTRACKED and adprotocol.within_gradient(call(h, x)) is True:
            raise HarnessFault(
                f"within_gradient is True for what {capability} of the harness returned although nothing is "
                "differentiated: either the harness returns a tracked array (in PyTorch, requires_grad=True) or the "
                "plugin is wrong"
            )

    def functions(self, variant: str) -> dict[str, Callable[..., Any]]:
        """Return the function of a variant by its capability; empty without a variant."""
        capability, _, name = variant.partition("=")
        return {capability: self.variants[capability][name]} if variant else {}

    def _native(self, transforms: str, variant: str = "") -> Exception | None:
        """Return how the system itself fails at a nesting: `Absent` if it refuses, `HarnessFault` if it is wrong."""
        try:
            with isolated():
                harness_checks.native(self.harness, transforms, self.functions(variant))
        except (HarnessFault, Absent) as error:
            return error.with_traceback(None)
        return None

    def result(self, case: Case) -> Result:
        """Run one case and return its result."""
        made = functools.partial(Result.of, case.scenario, id=case.id)
        if missing := self._missing(case):
            return made(**missing)
        h = Checked(self.harness, self.functions(case.variant))
        h.lacking.update(name for name in TRIED if self.state(name) != THERE)
        sound = [name for name in _CANARIES if self.state(name) == THERE]
        begin = time.perf_counter()
        try:
            with isolated():
                case.scenario.function(h)
        except (Exception, SystemExit) as error:  # noqa: BLE001  (a scenario runs somebody else's code)
            known = self._judged(case, self._natively(case, error))
        else:
            known = self._judged(case, None)
        if fault := self._fault(sound):
            message = f"it leaves the system in a broken state: {fault}"
            self.fault = f"{case.id} left the system broken: {fault}"
            if known["outcome"] == results.PASS or known.get("cause") == results.DIVERGENCES:
                known = self._judged(case, LeftBroken(message))
            else:
                known["message"] += f"; {message}"
        staged = bool(h.staged) and known["outcome"] != results.NOT_APPLICABLE
        return made(seconds=round(time.perf_counter() - begin, 4), staged=staged, **known)

    def _missing(self, case: Case) -> dict[str, Any]:
        """Return the outcome of a case for which the harness lacks or breaks a capability; empty if there is all."""
        names = ["array", "to_numpy", *case.scenario.needs, *filter(None, [case.variant])]
        states = {name: self.state(name).partition(": ") for name in names}
        broken = [f"{name} or the plugin is broken: {why}" for name, (at, _, why) in states.items() if at == BROKEN]
        if self.faulty or broken:
            why = "the harness has faults; mend what stands under Problems, and run again"
            message = f"not run: {why if self.faulty else broken[0]}"
            return {"outcome": results.FAIL, "cause": results.HARNESS, "message": message, "ran": False}
        lacking = [f"{name} ({reason})" for name, (state, _, reason) in states.items() if state == ABSENT]
        hooks = _NEEDS.get(case.scenario.hook, ())
        if hooks and self.backend.hooks.isdisjoint(hooks):
            lacking.append(f"{' or '.join(hooks)} {_WITHOUT}")
        nestings = {name: why for name, why in self.reasons.items() if " of " in name and nesting.native(name)}
        lacking += [f"{name} ({why})" for name, why in nestings.items() if nesting.contains(case.scenario.native, name)]
        return {"outcome": results.NOT_APPLICABLE, "message": f"it needs {', '.join(lacking)}"} if lacking else {}

    def _natively(self, case: Case, error: BaseException) -> BaseException:
        """Return the error of a case, or what the system itself does without adprotocol, if that explains it."""
        if isinstance(error, (PluginError, RuleError)) and "hook vjp" in str(error) and "vjp" not in self.backend.hooks:
            return Absent(f"it needs vjp {_WITHOUT}")
        transforms = nesting.native(case.scenario.native)
        native = self.native(transforms, case.variant) if transforms and not isinstance(error, Absent) else None
        if isinstance(native, Absent) and not isinstance(error, WrongAnswer):  # which no refusal explains
            return native
        if isinstance(native, HarnessFault) and declared.divergence_of(self.divergences, case.id) is None:
            return native
        return error

    def _judged(self, case: Case, error: BaseException | None) -> dict[str, Any]:
        """Return the outcome of a case that ran, with its message."""
        known = declared.divergence_of(self.divergences, case.id)
        if isinstance(error, Absent):
            return {"outcome": results.NOT_APPLICABLE, "message": str(error)}
        if error is None:
            if known is None:
                return {"outcome": results.PASS}
            message = f"it passes, although the divergence {known.name!r} declares that it fails; remove that"
            return {"outcome": results.FAIL, "cause": results.DIVERGENCES, "message": message}
        silent, harness = isinstance(error, WrongAnswer), self._in_harness(error)
        message = str(error) if isinstance(error, (WrongAnswer, NoError, LeftBroken)) else one_line(error)
        detail = detail_of(error)
        # A fault of the harness is not the error that a divergence declares, unless the divergence names it.
        declarable = not isinstance(error, HarnessFault) and (not harness or (known is not None and known.errors != ()))
        manner = WRONG if silent or isinstance(error, NoError) else ERROR * declarable
        if known is not None and known.outcome == manner and (manner == WRONG or declared.expects(known, error)):
            return {"outcome": results.EXPECTED, "message": message, "divergence": known.name, "detail": detail}
        if known is not None:
            due = " or ".join((known.outcome, *known.errors)[known.errors != () :])
            message += f" (the divergence {known.name!r} declares {due!r}, which this is not)"
        if manner == WRONG:
            said = f" said {error.said}" if isinstance(error, WrongAnswer) and error.said is not None else ""
            under = case.scenario.transform and f" under {case.scenario.transform}"
            message = f"{case.scenario.hook}{said}{under}: {message}"
        return {
            "outcome": results.WRONG if silent else results.FAIL,
            "cause": results.HARNESS if not silent and harness else results.PLUGIN,
            "message": message,
            "detail": detail,
            "repro": repro(case.scenario, self.backend.expression, case.variant),
        }

    def _in_harness(self, error: BaseException) -> bool:
        frames = list(traceback.walk_tb(error.__traceback__))
        own = tuple(f"{cls.__qualname__}." for cls in type(self.harness).__mro__)
        return isinstance(error, HarnessFault) or bool(frames and frames[-1][0].f_code.co_qualname.startswith(own))

    def _fault(self, sound: list[str]) -> str:
        """Return in which way the system no longer does what it did when the harness was checked, in words."""
        for name in sound:
            try:
                with isolated():
                    harness_checks.check(self.harness, name, probes=1)
                    self._check_untracked(name)
            except (Exception, SystemExit) as error:  # noqa: BLE001  (a broken system may raise anything)
                return str(error) if isinstance(error, HarnessFault) else f"trying {name}: {one_line(error)}"
        return ""


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Ignore warnings, of experimental features and of divisions by zero, and let nothing of an error stay active."""
    import numpy as np

    with warnings.catch_warnings(), np.errstate():
        warnings.simplefilter("ignore")
        try:
            yield
        except BaseException as error:
            _release(error)
            raise


def _release(error: BaseException | None) -> None:
    """Clear the frames of an exception and of those that it is chained to.

    A context that a framework entered in a generator, as a checkpoint of PyTorch before 2.13 does, would stay entered
    as long as the frames are held, and every later call would run in it: what the system itself does is tried next.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def detail_of(error: BaseException) -> str:
    """Return the traceback of an error and its causes, without the frames of this module and this machine's folders."""
    shown = traceback.TracebackException.from_exception(error, limit=-FRAMES, compact=True)
    shown.stack[:] = [frame for frame in shown.stack if frame.filename != __file__]
    text = "".join(shown.format())
    for folder in sorted({*sys.path, str(Path.cwd())}, key=len, reverse=True):
        text = text.replace(f'File "{folder}/', 'File "') if folder else text
    return text


def repro(scenario: Scenario, harness: str, variant: str = "") -> str:
    """Return a script that runs a scenario, whose source follows; `harness` is the Python that makes the harness."""
    function = getattr(scenario.function, "func", scenario.function)
    try:
        source = textwrap.dedent(inspect.getsource(function))
    except OSError:  # typed into a prompt
        source = ""
    checked = f"checked({harness}, {variant!r})" if variant else f"checked({harness})"
    lines = [
        f"# {scenario.id}: {' '.join(scenario.summary.split())}",
        "from adprotocol.conformance import all_scenarios, checked, harness_of",
        "",
        f"all_scenarios()[{scenario.id!r}].function({checked})",
        *(f"# {line}".rstrip() for line in source.splitlines()),
    ]
    return "\n".join(lines) + "\n"
