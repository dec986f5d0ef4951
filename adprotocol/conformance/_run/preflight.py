"""Checks of the harness itself, before any scenario: does each capability do what `Harness` documents?

They run on functions with a closed form, with the AD system alone, without adprotocol.
A scenario that fails later therefore points at the plugin.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from adprotocol.conformance.checks import Checked, HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, REQUIRED
from adprotocol.errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.harness import Harness

THERE, ABSENT, BROKEN = "there", "absent", "broken"

# Capabilities that a check uses besides `array` and `to_numpy`, if the harness has them.
BASIS = {"custom_rule": ("grad",), "counter": ("grad",), "stop_gradient": ("grad",)}

# Beyond this tolerance a wrong answer could pass; half precision needs 1e-3.
LOOSEST = 0.01

_VARIANT = re.compile(r"[A-Za-z0-9_]+")


class Probe(Checked):
    """Remember the arrays and the values they were made from, to detect changes in place."""

    def __init__(self, harness: Harness, variant: Mapping[str, Callable[..., Any]] | None = None) -> None:
        super().__init__(harness, variant)
        self.made: list[tuple[Any, Any]] = []


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
    x = _array(h, 3.0)
    try:
        _CHECKS[capability](h, x)
    except HarnessFault:
        if capability not in ("array", "to_numpy"):
            # A change in place is the cause, a wrong result its effect.
            _check_unchanged(h, capability)
        raise
    _check_unchanged(h, capability)


def higher_order(harness: Harness) -> str:
    """Return why the system does not differentiate its own gradients, or an empty text; raises if they are wrong."""
    h = Probe(harness)
    x = _array(h, 3.0)
    for what, call, want in (
        ("grad of grad of x ** 3 at 3", h.grad(h.grad(lambda x: x * x * x)), 18.0),
        ("the gradient in x of that of x y y in y, at 3", h.grad(lambda x: h.grad(lambda y: x * y * y)(1.0 * x)), 12.0),
    ):
        try:
            got = call(x)
        except Exception as error:  # noqa: BLE001  (whatever it is, it is how the system refuses)
            return f"the system itself refuses it: {one_line(error, 160)}"
        _equal(h, got, want, f"{what}, without adprotocol,")
    return ""


def _check_unchanged(h: Probe, capability: str) -> None:
    tolerance = h.harness.tolerance
    for made, value in h.made:
        found = h.numpy(made)
        if not np.allclose(found, value, rtol=tolerance, atol=tolerance):
            msg = f"{capability} changed its input in place, from {value} to {found}; it must leave it as it is"
            raise HarnessFault(msg)


def _array(h: Probe, value: Any) -> Any:
    made = h.harness.array(value)
    if made is None or isinstance(made, (bool, int, float, list)):
        msg = f"array({value!r}) returned {made!r:.60}, a {type(made).__name__}; it returns an array of the system"
        raise HarnessFault(msg)
    h.made.append((made, value))
    return made


def _equal(h: Checked, got: Any, want: Any, what: str) -> None:
    try:
        h.equal(got, want, what)
    except AssertionError as error:
        raise HarnessFault(str(error)) from error


def _pair(made: Any, what: str) -> Any:
    if not isinstance(made, (tuple, list)) or len(made) != 2:  # noqa: PLR2004
        msg = f"{what} returned {made!r:.80}; it returns two things"
        raise HarnessFault(msg)
    return made


def _check_array(h: Probe, x: Any) -> None:
    tolerance = h.harness.tolerance
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance <= LOOSEST:
        msg = f"tolerance is {tolerance!r:.60}; it is a number from 0 to {LOOSEST:g}"
        raise HarnessFault(msg)
    _equal(h, x, 3.0, "to_numpy(array(3.0))")
    _equal(
        h, _array(h, [[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]], "to_numpy(array([[1.0, 2.0], [3.0, 4.0]]))"
    )
    for value, kinds, name in ((2.0, "f", "floating-point"), (2, "iu", "integer"), (True, "b", "boolean")):
        made = h.numpy(_array(h, value))
        if made.dtype.kind not in kinds or made.shape != ():
            msg = f"array({value!r}) is of dtype {made.dtype} and shape {made.shape}; a {name} scalar was expected"
            raise HarnessFault(msg)


def _check_operators(h: Probe, x: Any) -> None:
    made = h.harness.to_numpy(x)
    if not isinstance(made, np.ndarray) or made.shape != () or made != 3.0:  # noqa: PLR2004
        msg = f"to_numpy(array(3.0)) returned {made!r:.60}, a {type(made).__name__}; it returns a NumPy array, 3"
        raise HarnessFault(msg)
    y = _array(h, [1.0, 2.0])
    _equal(h, (2.0 * x + y[1] - 1.0) / 2.0 - y, [2.5, 1.5], "(2 * array(3.0) + array([1.0, 2.0])[1] - 1) / 2 - y")
    _equal(h, x > y[1], np.True_, "array(3.0) > array([1.0, 2.0])[1]")


def _check_grad(h: Probe, x: Any) -> None:
    _equal(h, h.grad(lambda x, y: x * x * y)(x, _array(h, 2.0)), 12.0, "grad of x * x * y at 3, 2")
    _equal(h, h.grad(lambda v: v[0] * v[1])(_array(h, [3.0, 4.0])), [4.0, 3.0], "grad of v[0] * v[1] at [3, 4]")
    _equal(h, h.grad(lambda x, y: y * y)(x, _array(h, 2.0)), 0.0, "the gradient in x of y * y, which does not use x,")  # noqa: ARG005


def _check_value_and_grad(h: Probe, x: Any) -> None:
    value, gradient = _pair(h.value_and_grad(lambda x, y: x * x * y)(x, _array(h, 2.0)), "value_and_grad(fun)(x, y)")
    _equal(h, value, 18.0, "the value of value_and_grad")
    _equal(h, gradient, 12.0, "the gradient of value_and_grad")


def _check_jvp(h: Probe, x: Any) -> None:
    value, tangent = _pair(h.jvp(lambda x: x * x, x, _array(h, 2.0)), "jvp(fun, primal, tangent)")
    _equal(h, value, 9.0, "the value of jvp of x * x at 3")
    _equal(h, tangent, 12.0, "the tangent of jvp of x * x at 3 along 2")


def _same_function(name: str) -> Callable[[Probe, Any], None]:
    def check_wrapped(h: Probe, x: Any) -> None:
        made = getattr(h, name)(lambda x, y: x * x + y)
        if not callable(made):
            msg = f"{name}(fun) returned {made!r:.60}; it returns a function"
            raise HarnessFault(msg)
        for _ in range(2):
            _equal(h, made(x, _array(h, 1.0)), 10.0, f"{name} of x * x + y at 3, 1")

    return check_wrapped


def _check_vmap(h: Probe, x: Any) -> None:
    got = h.vmap(lambda a, b: a * b + 1.0)(_array(h, [1.0, 2.0]), _array(h, [[1.0, 1.0], [2.0, 3.0]]))
    _equal(h, got, [[2.0, 2.0], [5.0, 7.0]], "vmap of a * b + 1")
    _equal(h, h.vmap(lambda a: a * x)(_array(h, [1.0, 2.0])), [3.0, 6.0], "vmap of a * x, which closes over x")


def _check_scan(h: Probe, x: Any) -> None:
    carry, ys = _pair(h.scan(lambda c, a: ((c[0] * a, c[1] + a), c[0]), (x, 0.0 * x), _array(h, [2.0, 4.0])), "scan")
    _equal(h, carry[0], 24.0, "the first carry of scan")
    _equal(h, carry[1], 6.0, "the second carry of scan")
    _equal(h, ys, [3.0, 6.0], "the stacked ys of scan")


def _check_custom_rule(h: Probe, x: Any) -> None:
    f = h.custom_rule(lambda x: x * x, lambda _: 7.0)
    _equal(h, f(x), 9.0, "a function with a rule of its own")
    if h.has("grad"):
        _equal(h, h.harness.grad(f)(x), 7.0, "its gradient")


def _check_counter(h: Probe, x: Any) -> None:
    identity, count = _pair(h.counter(), "counter()")
    _equal(h, identity(x), 3.0, "the identity of counter")
    before = count()
    if h.has("grad"):
        _equal(h, h.harness.grad(lambda x: identity(x) * x)(x), 6.0, "the gradient of identity(x) * x")
        if count() <= before:
            msg = f"the counter stayed at {count()} although its identity was differentiated"
            raise HarnessFault(msg)


def _check_stop_gradient(h: Probe, x: Any) -> None:
    _equal(h, h.stop_gradient(x), 3.0, "stop_gradient of 3")
    if h.has("grad"):
        _equal(h, h.harness.grad(lambda x: h.stop_gradient(x) * x)(x), 3.0, "the gradient of stop_gradient(x) * x at 3")


def _check_abstract(h: Probe, x: Any) -> None:
    ran: list[bool] = []

    def square(x: Any) -> Any:
        ran.append(True)
        return x * x

    h.abstract(square, x)
    if not ran:
        msg = "abstract(fun, x) did not run the function"
        raise HarnessFault(msg)


def _check_parameter(h: Probe, x: Any) -> None:  # noqa: ARG001
    made = h.parameter(3.0, trains=False)
    if made is None or made is h.parameter(3.0, trains=False):
        msg = f"parameter(3.0, trains=False) returned {made!r:.60}; it returns a new parameter each time"
        raise HarnessFault(msg)


def _check_node(h: Probe, x: Any) -> None:
    children = list(h.node([x, 2]))
    if len(children) != 2 or children[0] is not x or children[1] != 2:  # noqa: PLR2004
        msg = f"iterating over node([x, 2]) yields {children!r:.80}; it yields the children"
        raise HarnessFault(msg)


def _check_threads(h: Probe, x: Any) -> None:  # noqa: ARG001
    if not isinstance(h.threads(), bool):
        msg = f"threads() returned {h.threads()!r:.60}; it returns a bool"
        raise HarnessFault(msg)


def _check_devices(h: Probe, x: Any) -> None:  # noqa: ARG001
    found = h.devices()
    if isinstance(found, str) or not found or not all(isinstance(name, str) for name in found):
        msg = f"devices() returned {found!r:.60}; it returns the names of the devices, at least one"
        raise HarnessFault(msg)
    if h.device is not None and h.device not in found:
        msg = f"device is {h.device!r}, which is none of {', '.join(found)}"
        raise HarnessFault(msg)


_CHECKS: dict[str, Callable[[Probe, Any], None]] = {
    "array": _check_array,
    "to_numpy": _check_operators,
    "grad": _check_grad,
    "value_and_grad": _check_value_and_grad,
    "jvp": _check_jvp,
    "jit": _same_function("jit"),
    "compile": _same_function("compile"),
    "vmap": _check_vmap,
    "checkpoint": _same_function("checkpoint"),
    "scan": _check_scan,
    "stop_gradient": _check_stop_gradient,
    "no_grad": _same_function("no_grad"),
    "custom_rule": _check_custom_rule,
    "counter": _check_counter,
    "abstract": _check_abstract,
    "parameter": _check_parameter,
    "node": _check_node,
    "threads": _check_threads,
    "devices": _check_devices,
}
