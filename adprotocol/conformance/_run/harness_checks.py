"""The checks of a harness: does each capability do what `Harness` documents, by the AD system alone?

A scenario that fails after these points at the plugin.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent, Checked, HarnessFault
from adprotocol.conformance.harness import HIGHER_ORDER, PROMOTION, TRIED, Harness
from adprotocol.messages import kind_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Beyond this tolerance a wrong answer could pass; half precision needs 1e-3.
LOOSEST = 0.01
# Capabilities whose results nothing differentiates any more. A gradient is none: that of a tape may be again.
UNTRACKED = ("array", "jvp", "jit", "compile", "checkpoint", "no_grad", "stop_gradient")
# Capabilities whose results a harness may have turned into something that is not an array of the system.
MADE = ("grad", "parameter_grad", "evaluate")
SQUARE = [[1.0, 2.0], [3.0, 4.0]]
_KINDS = {"f": "floating-point", "i": "integer", "u": "integer", "b": "boolean"}


def check(harness: Harness, capability: str, variant: Mapping[str, Any] | None = None, *, probes: int = 99) -> None:
    """Check one capability, or a variant of it; raises if it is wrong, `Absent` if the system refuses what is tried."""
    h, x = Probe(harness, variant), harness.array(3.0)
    faults: list[Exception] = []
    if capability == "array" and not 0 <= harness.tolerance <= LOOSEST:
        faults += [HarnessFault(f"tolerance is {harness.tolerance!r:.60}; it is a number from 0 to {LOOSEST:g}")]
    for place, what in enumerate(list(PROBES[capability])[:probes]):
        try:
            _probe(h, x, capability, what)
        except Exception as error:  # noqa: BLE001  (somebody else's code may raise anything)
            # A call that needs what the system lacks tells nothing of a capability that is there.
            faults += [error] * (capability in TRIED or not isinstance(error, Absent))
            if place == 0:  # of what is not there at all the rest says nothing
                break
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise HarnessFault("; ".join(str(e) if isinstance(e, HarnessFault) else one_line(e) for e in faults))


def _probe(h: Probe, x: Any, capability: str, what: str) -> None:
    """Make one call, and compare its result."""
    call, want = PROBES[capability][what]
    if capability == "array":
        h.check(not isinstance(x, (type(None), bool, int, float, list)), f"array(3.0) returned {x!r:.60}, {kind_of(x)}")
    try:
        got = call(h, x)
    except Exception as error:
        if capability not in TRIED or isinstance(error, Absent):
            raise
        raise Absent(f"the system itself refuses {what}: {one_line(error, 160)}") from error
    h.compare(got, want, what)
    packages = {base.__module__.partition(".")[0] for base in type(x).__mro__}
    if capability in MADE and type(got).__module__.partition(".")[0] not in packages:
        wanted = f"an array of the system, as array() does, here {kind_of(x)}"
        raise HarnessFault(f"{what} is {kind_of(got)}; it returns {wanted}")


def native(harness: Harness, transforms: str, variant: Mapping[str, Any]) -> None:
    """Try the system itself under a nesting: raises `Absent` if it refuses it, `HarnessFault` if it is wrong."""
    h, at = Probe(harness, variant), 2.5
    try:
        got = h.nest(transforms, lambda x: x * x * x * x)(harness.array(at))
        harness.to_numpy(got)  # a lazy system refuses here
    except Exception as error:
        raise Absent(f"the system itself refuses {transforms}: {one_line(error, 160)}") from error
    want = nesting.expected(transforms, lambda x: [x**4, 4 * x**3, 12 * x**2, 24 * x, 24.0])(at)[0]
    remedy = f"if it is the system that is wrong, say so: absent = {{{transforms!r}: 'why'}}"
    h.compare(got, want, f"x ** 4 under {transforms}, without adprotocol ({remedy}),")


class Probe(Checked):
    """The functions of a harness, where a result that differs is a fault of the harness."""

    wrong = HarnessFault

    def compare(self, got: Any, want: Any, what: str) -> None:
        """Compare a result, or each of several, with a text, a number or nested lists; with None it may be anything."""
        if isinstance(want, tuple):
            several = isinstance(got, (tuple, list)) and len(got) == len(want)
            self.check(several, f"{what} returned {got!r:.80}; it returns {len(want)} things")
            for place, pair in enumerate(zip(got, want, strict=True)):
                self.compare(*pair, f"{what}, result {place},")
        elif isinstance(want, str):
            self.check(got == want, f"{what} is {got!r:.60}; {want!r} was expected")
        elif want is not None:
            self.assert_equal(got, want, what)


def _twice(name: str) -> dict[str, tuple[Callable[[Any, Any], Any], Any]]:
    def call(h: Any, x: Any) -> Any:
        fun, y = getattr(h, name)(lambda x, y: x * x + y), h.array(1.0)
        return fun(x, y), fun(x, y)

    return {f"{name} of x * x + y at 3, 1, twice": (call, (10.0, 10.0))}


def _counter(h: Any, x: Any) -> Any:
    identity, count = h.counter()
    value, before = identity(x), count()
    return value, h.grad(lambda x: identity(x) * x)(x), count() > before


def _backward(h: Any, _: Any) -> Any:
    v = h.variable(3.0)
    before = 0.0 if v.grad is None else 1.0 * v.grad
    h.backward(2.0 * v * v, h.array(0.5))
    return before, h.array(1.0) * v.grad, h.backward(v * v, h.array(1.0)) or 1.0 * v.grad


def _abstract(h: Any, x: Any) -> bool:
    ran: list[Any] = []
    h.abstract(lambda x: ran.append(x) or x * x, x)  # type: ignore[func-returns-value]
    return bool(ran)


def _cast(h: Any, x: Any) -> bool:
    slope = h.grad(lambda x, name: h.cast(h.cast(x, name), h.dtypes()[0])) if h.defines("grad") else lambda *_: x / x
    # NumPy lacks some dtypes, such as bfloat16.
    return all(h.numpy(h.cast(x, n)).dtype.name in (n, "float32") and h.numpy(slope(x, n)) == 1.0 for n in h.dtypes())


def _operations(h: Any, _: Any) -> str:
    # V: floats that NumPy lacks
    dtypes = {name: h.numpy(function(h.array([2.0, 3.0]))).dtype for name, function in h.operations().items()}
    return ", ".join(name for name, dtype in dtypes.items() if dtype.kind not in "fcV")


def _kind(h: Any, value: Any) -> str | None:
    return _KINDS.get(h.numpy(h.array(value)).dtype.kind)


def _module(h: Any, _: Any) -> Any:
    inner = h.module({"w": 3.0})
    made = h.module({"p": 2.0, "q": 4.0, "inner": inner}, frozen=["q"])
    return made.inner is inner, made.p * made.q * made.inner.w


# For each capability what is called, in words and as a function of the harness and the array 3, and what is due.
PROBES: dict[str, dict[str, tuple[Callable[[Any, Any], Any], Any]]] = {
    "array": {
        "to_numpy(2 * array(1.5))": (lambda h, _: 2.0 * h.array(1.5), 3.0),
        f"to_numpy(array({SQUARE}))": (lambda h, _: h.array(SQUARE), SQUARE),
        "the kind of array(2.0)": (lambda h, _: _kind(h, 2.0), "floating-point"),
    },
    "integer arrays": {"the kind of array(2)": (lambda h, _: _kind(h, 2), "integer")},
    "boolean arrays": {"the kind of array(True)": (lambda h, _: _kind(h, True), "boolean")},  # noqa: FBT003
    "signed zeros": {"the sign of array(-0.0)": (lambda h, _: math.copysign(1.0, h.numpy(h.array(-0.0)).item()), -1.0)},
    "vectors": {"whether array([1.0, 2.0]) has one axis": (lambda h, _: h.numpy(h.array([1.0, 2.0])).ndim == 1, True)},
    "to_numpy": {
        "to_numpy(array(3.0))": (lambda h, x: h.harness.to_numpy(x), 3.0),
        "2 * array(3.0)": (lambda _, x: 2 * x, 6.0),
        "(2 * array(3.0) + array([1.0, 2.0])[1] - 1) / 2 - array([1.0, 2.0])": (
            lambda h, x: (2.0 * x + h.array([1.0, 2.0])[1] - 1.0) / 2.0 - h.array([1.0, 2.0]),
            [2.5, 1.5],
        ),
        "array(3.0) > array([1.0, 2.0])[1]": (lambda h, x: x > h.array([1.0, 2.0])[1], True),
    },
    "grad": {
        "grad of x * x * y at 3, 2": (lambda h, x: h.grad(lambda x, y: x * x * y)(x, h.array(2.0)), 12.0),
        "grad of v[0] * v[1] at [3, 4]": (lambda h, _: h.grad(lambda v: v[0] * v[1])(h.array([3.0, 4.0])), [4.0, 3.0]),
        "grad of (1 - x / 2) ** 2 - -x at 3": (lambda h, x: h.grad(lambda x: (1.0 - x / 2.0) ** 2 - -x)(x), 1.5),
        "grad of x, compared": (lambda h, x: h.grad(lambda x: (x > 2.0, x >= 2.0, x < 2.0, x <= 2.0, x)[-1])(x), 1.0),  # noqa: PLR2004
        "grad of v[0][0][0] at [[[5]]]": (lambda h, _: h.grad(lambda v: v[0][0][0])(h.array([[[5.0]]])), [[[1.0]]]),
        "the gradient in x of y * y": (lambda h, x: h.grad(lambda x, y: y * y)(x, h.array(2.0)), 0.0),  # noqa: ARG005
    },
    "value_and_grad": {
        "value_and_grad of x * x * y at 3, 2": (
            lambda h, x: h.value_and_grad(lambda x, y: x * x * y)(x, h.array(2.0)),
            (18.0, 12.0),
        ),
    },
    "jvp": {"jvp of x * x at 3 along 2": (lambda h, x: h.jvp(lambda x: x * x, x, h.array(2.0)), (9.0, 12.0))},
    **{name: _twice(name) for name in ("jit", "compile", "checkpoint", "no_grad")},
    "vmap": {
        "vmap of a * b + 1": (
            lambda h, _: h.vmap(lambda a, b: a * b + 1.0)(h.array([1.0, 2.0]), h.array([[1.0, 1.0], [2.0, 3.0]])),
            [[2.0, 2.0], [5.0, 7.0]],
        ),
        "vmap of a * x, which closes over x": (lambda h, x: h.vmap(lambda a: a * x)(h.array([1.0, 2.0])), [3.0, 6.0]),
    },
    "scan": {
        "scan with a carry of two": (
            lambda h, x: h.scan(lambda c, a: ((c[0] * a, c[1] + a), c[0]), (x, 0.0 * x), h.array([2.0, 4.0])),
            ((24.0, 6.0), [3.0, 6.0]),
        ),
    },
    "while_loop": {
        "while_loop that counts down from 3 and doubles 3": (
            lambda h, x: h.while_loop(lambda s: s[0] > 0.5, lambda s: (s[0] - 1.0, s[1] * 2.0), (x, x)),  # noqa: PLR2004
            (0.0, 24.0),
        ),
    },
    "custom_rule": {
        "a function with a rule of its own": (lambda h, x: h.custom_rule(lambda x: x * x, lambda _: 7.0)(x), 9.0),
        "its gradient": (lambda h, x: h.grad(h.custom_rule(lambda x: x * x, lambda _: 7.0))(x), 7.0),
    },
    "counter": {"identity(3), the gradient of identity(x) * x, whether that was counted": (_counter, (3.0, 6.0, True))},
    "stop_gradient": {
        "stop_gradient of 3": (lambda h, x: h.stop_gradient(x), 3.0),
        "the gradient of stop_gradient(x) * x at 3": (lambda h, x: h.grad(lambda x: h.stop_gradient(x) * x)(x), 3.0),
    },
    "abstract": {"whether abstract(fun, x) runs the function": (_abstract, True)},
    "sum": {"sum of [[1, 2], [3, 4]]": (lambda h, _: h.sum(h.array(SQUARE)), 10.0)},
    "where": {
        "where([1, 5] > 3, [1, 5], [7, 8])": (
            lambda h, x: h.where(h.array([1.0, 5.0]) > x, h.array([1.0, 5.0]), h.array([7.0, 8.0])),
            [7.0, 5.0],
        ),
    },
    "dtypes": {
        "whether array() is of the first of dtypes()": (lambda h, x: h.numpy(x).dtype.name == h.dtypes()[0], True)
    },
    "devices": {
        "whether devices() names some": (lambda h, _: bool(h.devices()) and h.devices() != str(h.devices()), True)
    },
    "cast": {"whether cast to each of dtypes() has it, and a derivative of 1 there and back": (_cast, True)},
    "operations": {"the list of operations() whose result is neither real nor complex": (_operations, "")},
    "variable": {"2 * variable(3.0)": (lambda h, _: 2.0 * h.variable(3.0), 6.0)},
    "backward": {"2 v v at 3 by 0.5, then v v: grad before (None is 0), after each": (_backward, (0.0, 6.0, 12.0))},
    "parameter": {
        "whether parameter(2.0, trains=True) is a new parameter each time": (
            lambda h, _: h.parameter(2.0, trains=True) is not h.parameter(2.0, trains=True),
            True,
        ),
    },
    "parameter_grad": {
        "parameter_grad of p * p * 3 at p = 2": (
            lambda h, x: h.parameter_grad(lambda: p * p * x, p := h.parameter(2.0, trains=True)),
            12.0,
        ),
    },
    "assign": {
        "a parameter of 2 after assign(parameter, 5.0)": (
            lambda h, _: (h.assign(p := h.parameter(2.0, trains=True), 5.0), 1.0 * p)[1],
            5.0,
        ),
    },
    "set_flag": {"set_flag": (lambda h, _: h.set_flag(h.parameter(2.0, trains=True), trains=False), None)},
    "module": {"module: whether it keeps a module, and the product of its parts": (_module, (True, 24.0))},
    "evaluate": {"evaluate(2 * array(3.0))": (lambda h, x: h.evaluate(2.0 * x), 6.0)},
    "node": {"which children of node([x, 2]) are x": (lambda h, x: [y is x for y in h.node([x, 2])], (True, False))},
    "threads": {"the type of threads()": (lambda h, _: type(h.threads()).__name__, "bool")},
    HIGHER_ORDER: {
        "grad of grad of x ** 3 at 3": (lambda h, x: h.grad(h.grad(lambda x: x * x * x))(x), 18.0),
        "grad in x of that of x y y in y": (
            lambda h, x: h.grad(lambda x: h.grad(lambda y: x * y * y)(1.0 * x))(x),
            12.0,
        ),
    },
    PROMOTION: {
        "array(3.0) * array(2)": (lambda h, x: x * h.array(2), 6.0),
        "array(3.0) * array(True)": (lambda h, x: x * h.array(True), 3.0),  # noqa: FBT003
    },
}
