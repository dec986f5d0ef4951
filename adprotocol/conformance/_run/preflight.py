"""Checks of the harness itself, before any scenario: does each capability do what `Harness` documents?

They run on functions with a closed form, with the AD system alone, without adprotocol.
A scenario that fails later therefore points at the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adprotocol.conformance._run.probe import CHECKS, Probe, array, equal
from adprotocol.conformance.checks import HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, REQUIRED
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.harness import Harness

THERE, ABSENT, BROKEN = "there", "absent", "broken"

# Capabilities that a check uses besides `array` and `to_numpy`, if the harness has them.
BASIS = {"custom_rule": ("grad",), "counter": ("grad",), "stop_gradient": ("grad",)}

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


def higher_order(harness: Harness) -> str:
    """Return why the system does not differentiate its own gradients, or an empty text; raises if they are wrong."""
    h = Probe(harness)
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


def _check_unchanged(h: Probe, capability: str) -> None:
    import numpy as np  # noqa: PLC0415  (--list does without)

    tolerance = h.harness.tolerance
    for made, value in h.made:
        found = h.numpy(made)
        if not np.allclose(found, value, rtol=tolerance, atol=tolerance):
            msg = f"{capability} changed its input in place, from {value} to {found}; it must leave it as it is"
            raise HarnessFault(msg)
