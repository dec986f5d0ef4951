"""Checks of the harness itself, before any scenario: does each capability do what `Harness` documents?

They run with the AD system alone, without adprotocol. A scenario that fails later
therefore points at the plugin.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance._run.probe import CHECKS, TRY, Probe, tried
from adprotocol.conformance._run.result import UNDEFINED
from adprotocol.conformance.checks import Absent, HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, HIGHER_ORDER, REQUIRED, Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Capabilities that a check uses besides `array` and `to_numpy`, if the harness has them.
BASIS = {
    "custom_rule": ("grad",),
    "counter": ("grad",),
    "stop_gradient": ("grad",),
    "sum": ("grad",),
    "where": ("grad",),
    "cast": ("dtypes",),
    "parameter_grad": ("parameter",),
    "assign": ("parameter",),
    "set_flag": ("parameter",),
    HIGHER_ORDER: ("grad",),
}

_VARIANT = re.compile(r"[A-Za-z0-9_]+")


def reasons(harness: Harness) -> dict[str, str]:
    """Return the attribute `absent` as a dict; raises HarnessFault if it is not a mapping."""
    given = harness.absent
    if not isinstance(given, Mapping):
        raise HarnessFault(f"absent is {given!r:.60}; it maps capabilities to reasons")
    return {str(name): " ".join(str(reason).split()) for name, reason in given.items()}


def unknown(harness: Harness, variants: Mapping[str, Mapping[str, Callable[..., Any]]]) -> Iterator[str]:
    """Yield what is wrong with each public attribute of a harness that the suite does not know: a name misspelt."""
    known = {name for name in dir(Harness) if not name.startswith("_")}
    helpers = {getattr(function, "__name__", "") for named in variants.values() for function in named.values()}
    own = [
        name for cls in type(harness).__mro__ if issubclass(cls, Harness) and cls is not Harness for name in vars(cls)
    ]
    for name in dict.fromkeys([*own, *vars(harness)]):
        if not name.startswith("_") and name not in known | helpers:
            near = difflib.get_close_matches(name, known, 1, 0.5)
            meant = f"did you mean {near[0]}? " if near else ""
            yield f"{name} is no attribute of a harness; {meant}a helper's name begins with an underscore"


def variants(harness: Harness) -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the property `variants` as dicts; raises HarnessFault if it is anything else."""
    given = harness.variants
    if not isinstance(given, Mapping) or not all(isinstance(named, Mapping) for named in given.values()):
        raise HarnessFault(f"variants is {given!r:.60}; it maps capabilities to functions by name")
    known = ("grad", *CAPABILITIES)
    unknown = [str(capability) for capability in given if capability not in known]
    if unknown:
        raise HarnessFault(f"variants names {', '.join(unknown)}, unknown; there are {', '.join(known)}")
    for capability, named in given.items():
        for name, function in named.items():
            if not isinstance(name, str) or not _VARIANT.fullmatch(name):
                remedy = "write letters, digits and underscores"
                raise HarnessFault(f"variants has the name {name!r} for {capability}; {remedy}")
            if not callable(function):
                raise HarnessFault(f"the variant {capability}={name} is {function!r:.60}; it is a function")
    return {capability: dict(named) for capability, named in given.items()}


def find(harness: Harness, capability: str, reasons: Mapping[str, str]) -> None:
    """Raise `Absent` with the reason if a harness lacks a capability, and `HarnessFault` if it must have it."""
    if capability in TRY:
        if capability in reasons:
            raise Absent(reasons[capability])
        return
    if harness.defines(capability):
        return
    reason = reasons.get(capability, "")
    if capability in REQUIRED and not (capability == "grad" and reason):
        remedy = '; if the system does not differentiate, say so: absent = {"grad": "why"}' * (capability == "grad")
        name = type(harness).__qualname__
        raise HarnessFault(f"{name} does not define {capability}(), which every harness must{remedy}")
    raise Absent(reason or UNDEFINED)


def check(harness: Harness, capability: str, variant: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Check one capability, or a variant of it; raises if it is wrong, and `Absent` if the system refuses it."""
    h = Probe(harness, variant)
    x = h.array(3.0)
    try:
        (CHECKS | TRY)[capability](h, x)
    except HarnessFault:
        if capability not in ("array", "to_numpy"):
            # A change in place is the cause, a wrong result its effect.
            h.unchanged(capability)
        raise
    h.unchanged(capability)


def native(harness: Harness, transforms: str, variant: Mapping[str, Callable[..., Any]]) -> None:
    """Try the system itself under a nesting: raises `Absent` if it refuses it, `HarnessFault` if it is wrong."""
    h, at = Probe(harness, variant), 2.5
    found = tried(transforms, lambda: h.nest(transforms, lambda x: x * x * x * x)(harness.array(at)))
    want = nesting.expected(transforms, lambda x: [x**4, 4 * x**3, 12 * x**2, 24 * x, 24.0])(at)[0]
    try:
        h.assert_equal(found, want, f"x ** 4 under {transforms}, without adprotocol,")
    except HarnessFault as fault:
        remedy = f"if it is the system that is wrong, say so: absent = {{{transforms!r}: 'why'}}"
        raise HarnessFault(f"{fault}; {remedy}") from fault


def enclosed(harness: Harness, error_of: Callable[[Callable[[], object]], BaseException | None]) -> str:
    """Return the fault of a `grad` that gives constants to `adprotocol.grad` around it; empty if there is none.

    Such a gradient counts levels of its own, and takes itself for the outermost. The plugin is at fault if its gradient
    of its own gradient is wrong.
    """
    h = Probe(harness)
    ours: Callable[..., Any] = functools.partial(adprotocol.grad, backend=harness.name)

    def mixed(inner: Callable[..., Any]) -> BaseException | None:
        # The gradient in x of that of x y y in y, at y = x: 4 x.
        outer = ours(lambda x: inner(lambda y: x * y * y)(1.0 * x))
        return error_of(lambda: h.assert_equal(outer(h.array(3.0)), 12.0, _MIXED))

    fault = mixed(h.grad)
    return str(fault) if isinstance(fault, HarnessFault) and mixed(ours) is None else ""


_MIXED = (
    "adprotocol.grad in x of grad(fun) of the harness, of x y y in y, at y = x = 3 (count no levels, for "
    "adprotocol.grad may enclose you)"
)


# For each capability a result that nothing differentiates any more. A gradient is none: that of a tape may be
# differentiated again.
RESULTS: dict[str, Callable[[Harness], Any]] = {
    "jvp": lambda h: h.jvp(lambda x: x * x, h.array(3.0), h.array(1.0)),
    "jit": lambda h: h.jit(lambda x: x * x)(h.array(3.0)),
    "compile": lambda h: h.compile(lambda x: x * x)(h.array(3.0)),
    "checkpoint": lambda h: h.checkpoint(lambda x: x * x)(h.array(3.0)),
    "stop_gradient": lambda h: h.stop_gradient(h.array(3.0)),
    "no_grad": lambda h: h.no_grad(lambda x: x * x)(h.array(3.0)),
}
