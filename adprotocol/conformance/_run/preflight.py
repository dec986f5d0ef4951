"""Checks of the harness itself, before any scenario: does each capability do what `Harness` documents?

They run on functions with a closed form, with the AD system alone, without adprotocol.
A scenario that fails later therefore points at the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance._run.probe import CHECKS, Probe, array, equal
from adprotocol.conformance.checks import HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, HIGHER_ORDER, PROMOTION, REQUIRED
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.harness import Harness

THERE, ABSENT, BROKEN = "there", "absent", "broken"
# What the system itself may do under a nesting of its own transformations.
REFUSES, WRONG = "refuses", "wrong"

# Capabilities that a check uses besides `array` and `to_numpy`, if the harness has them.
BASIS = {
    "custom_rule": ("grad",),
    "counter": ("grad",),
    "stop_gradient": ("grad",),
    "sum": ("grad",),
    "where": ("grad",),
    "cast": ("dtypes",),
    "parameter_grad": ("parameter",),
}

_VARIANT = re.compile(r"[A-Za-z0-9_]+")


def reasons(harness: Harness) -> dict[str, str]:
    """Return the attribute `absent` as a dict; raises HarnessFault if it is not a mapping."""
    given = harness.absent
    if not isinstance(given, Mapping):
        msg = f"absent is {given!r:.60}; it maps capabilities to reasons"
        raise HarnessFault(msg)
    return {str(name): " ".join(str(reason).split()) for name, reason in given.items()}


def variants(harness: Harness) -> dict[str, dict[str, Callable[..., Any]]]:
    """Return the property `variants` as dicts; raises HarnessFault if it is anything else."""
    given = harness.variants
    if not isinstance(given, Mapping) or not all(isinstance(named, Mapping) for named in given.values()):
        msg = f"variants is {given!r:.60}; it maps capabilities to functions by name"
        raise HarnessFault(msg)
    unknown = [str(capability) for capability in given if capability not in ("grad", *CAPABILITIES)]
    if unknown:
        msg = f"variants names {', '.join(unknown)}, unknown; there are {', '.join(('grad', *CAPABILITIES))}"
        raise HarnessFault(msg)
    for capability, named in given.items():
        for name, function in named.items():
            if not isinstance(name, str) or not _VARIANT.fullmatch(name):
                msg = f"variants has the name {name!r} for {capability}; write letters, digits and underscores"
                raise HarnessFault(msg)
            if not callable(function):
                msg = f"the variant {capability}={name} is {function!r:.60}; it is a function"
                raise HarnessFault(msg)
    return {capability: dict(named) for capability, named in given.items()}


def missing(harness: Harness, capability: str, given: Mapping[str, str]) -> str:
    """Return why a harness lacks a capability, or an empty text if it defines it.

    Raises HarnessFault for `array` and `to_numpy`, and for `grad` if no reason is given.
    """
    if harness.defines(capability):
        return ""
    reason = given.get(capability, "")
    if capability in REQUIRED and not (capability == "grad" and reason):
        msg = f"{type(harness).__qualname__} does not define {capability}(), which every harness must"
        if capability == "grad":
            msg += '; if the system does not differentiate, say so: absent = {"grad": "why"}'
        raise HarnessFault(msg)
    return reason or "the harness does not define it"


def check(harness: Harness, capability: str, variant: Mapping[str, Callable[..., Any]] | None = None) -> None:
    """Check one capability, or a variant of it; raises if it is wrong."""
    h = Probe(harness, variant)
    x = array(h, 3.0)
    try:
        CHECKS[capability](h, x)
    except HarnessFault:
        if capability not in ("array", "to_numpy"):
            # A change in place is the cause, a wrong result its effect.
            _check_unchanged(h, capability)
        raise
    _check_unchanged(h, capability)


def higher_order(h: Probe) -> str:
    """Return why the system does not differentiate its own gradients, or an empty text; raises if they are wrong."""
    x = array(h, 3.0)
    for what, call, want in (
        ("grad of grad of x ** 3 at 3", h.grad(h.grad(lambda x: x * x * x)), 18.0),
        ("the gradient in x of that of x y y in y, at 3", h.grad(lambda x: h.grad(lambda y: x * y * y)(1.0 * x)), 12.0),
    ):
        try:
            got = call(x)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
            return f"the system itself refuses it: {one_line(error, 160)}"
        equal(h, got, want, f"{what}, without adprotocol,")
    return ""


def promotion(h: Probe) -> str:
    """Return why floating-point arrays do not mix with integer and boolean ones, or an empty text; raises if wrong."""
    x = array(h, 1.5)
    for what, other, want in (("array(1.5) * array(2)", 2, 3.0), ("array(1.5) * array(True)", True, 1.5)):
        try:
            got = x * array(h, other)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
            return f"the system itself refuses {what}: {one_line(error, 160)}"
        equal(h, got, want, what)
    return ""


# From what the suite tries itself to the capability it needs, and the function that tries.
TRY: dict[str, tuple[str, Callable[[Probe], str]]] = {
    HIGHER_ORDER: ("grad", higher_order),
    PROMOTION: ("array", promotion),
}


def native(harness: Harness, transforms: str, variant: Mapping[str, Callable[..., Any]]) -> tuple[str, str]:
    """Return how the system itself, without adprotocol, fails at a nesting: what it does and how; else empty texts."""
    h = Probe(harness, variant)
    at = 2.5
    want = nesting.expected(transforms, lambda x: [x**4, 4 * x**3, 12 * x**2, 24 * x, 24.0])(at)[0]
    try:
        found = h.nest(transforms, lambda x: x * x * x * x)(h.harness.array(at))
    except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
        return REFUSES, f"the system itself refuses {transforms}: {one_line(error, 160)}"
    try:
        equal(h, found, want, f"x ** 4 under {transforms}, without adprotocol,")
    except HarnessFault as fault:
        return WRONG, f"{fault}; if it is the system that is wrong, say so: absent = {{{transforms!r}: 'why'}}"
    return "", ""


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
TRACKED = (
    "within_gradient(array(3.0)) is True although nothing is differentiated: either array() returns a tracked array "
    "(it must be untracked, in PyTorch requires_grad=False) or the plugin is wrong; most scenarios fail because of it"
)
STILL_TRACKED = (
    "within_gradient is True for what {} of the harness returned although nothing is differentiated any more: either "
    "the harness returns a tracked array or the plugin is wrong"
)


def _check_unchanged(h: Probe, capability: str) -> None:
    import numpy as np  # noqa: PLC0415  (--list does without)

    tolerance = h.harness.tolerance
    for made, value in h.made:
        found = h.numpy(made)
        if not np.allclose(found, value, rtol=tolerance, atol=tolerance):
            msg = f"{capability} changed its input in place, from {value} to {found}; it must leave it as it is"
            raise HarnessFault(msg)
