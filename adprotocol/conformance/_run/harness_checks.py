"""The checks of a harness: does each capability do what `Harness` documents, by the AD system alone?

A scenario that fails behind these points at the plugin.
"""

from __future__ import annotations

import difflib
import functools
import math
import operator
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent, Checked, HarnessFault
from adprotocol.conformance.harness import CAPABILITIES, HIGHER_ORDER, PROMOTION, REQUIRED, Harness
from adprotocol.errors import kind_of, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Functions = Mapping[str, Callable[..., Any]]

# Beyond this tolerance a wrong answer could pass; half precision needs 1e-3.
LOOSEST = 0.01
# Capabilities that a check uses besides `array` and `to_numpy`, if the harness has them.
BASIS = {
    **dict.fromkeys(("custom_rule", "counter", "stop_gradient", "sum", "where", HIGHER_ORDER), ("grad",)),
    **dict.fromkeys(("parameter_grad", "assign", "set_flag"), ("parameter",)),
    "cast": ("dtypes",),
}


def reasons(harness: Harness) -> dict[str, str]:
    """Return the attribute `absent` as a dict, with each reason on one line."""
    return {str(name): " ".join(str(reason).split()) for name, reason in harness.absent.items()}


def variants(harness: Harness) -> dict[str, Functions]:
    """Return the property `variants` as dicts; raises HarnessFault for an unknown capability or what is no function."""
    variants, known = {name: dict(functions) for name, functions in harness.variants.items()}, ("grad", *CAPABILITIES)
    for capability, functions in variants.items():
        if capability not in known:
            raise HarnessFault(f"variants names {capability}, unknown; there are {', '.join(known)}")
        for name, function in functions.items():
            if not callable(function):
                raise HarnessFault(f"the variant {capability}={name} is {function!r:.60}; it is a function")
    return dict(variants)


def misspelt(harness: Harness, variants: Mapping[str, Functions]) -> Iterator[str]:
    """Yield what is wrong with each public attribute of a harness that the suite does not know."""
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


def require(harness: Harness, capability: str, reasons: Mapping[str, str]) -> None:
    """Raise `Absent` with the reason if a harness lacks a capability, and `HarnessFault` if it must have it."""
    reason = reasons.get(capability, "")
    if capability in (HIGHER_ORDER, PROMOTION):
        if reason:
            raise Absent(reason)
    elif not harness.defines(capability):
        if capability in REQUIRED and not (capability == "grad" and reason):
            remedy = '; if the system does not differentiate, say so: absent = {"grad": "why"}' * (capability == "grad")
            name = type(harness).__qualname__
            raise HarnessFault(f"{name} does not define {capability}(), which every harness must{remedy}")
        raise Absent(reason or "the harness does not define it")


def check(harness: Harness, capability: str, variant: Functions | None = None) -> None:
    """Check one capability, or a variant of it; raises if it is wrong, and `Absent` if the system refuses it."""
    h = Probe(harness, variant)
    x = h.array(3.0)
    try:
        CHECKS[capability](h, x)
    except HarnessFault:
        h.unchanged(capability)  # a change in place is the cause, a wrong result its effect
        raise
    h.unchanged(capability)


def native(harness: Harness, transforms: str, variant: Functions) -> None:
    """Try the system itself under a nesting: raises `Absent` if it refuses it, `HarnessFault` if it is wrong."""
    h, at = Probe(harness, variant), 2.5

    def computed() -> Any:
        result = h.nest(transforms, lambda x: x * x * x * x)(harness.array(at))
        harness.to_numpy(result)  # a lazy system refuses here
        return result

    got = _tried(transforms, computed)
    want = nesting.expected(transforms, lambda x: [x**4, 4 * x**3, 12 * x**2, 24 * x, 24.0])(at)[0]
    try:
        h.assert_equal(got, want, f"x ** 4 under {transforms}, without adprotocol,")
    except HarnessFault as fault:
        remedy = f"if it is the system that is wrong, say so: absent = {{{transforms!r}: 'why'}}"
        raise HarnessFault(f"{fault}; {remedy}") from fault


def check_enclosed(harness: Harness) -> None:
    """Raise `HarnessFault` for a `grad` that gives constants to `adprotocol.grad` around it.

    Such a gradient counts levels of its own, and takes itself for the outermost. The plugin is at fault if its gradient
    of its own gradient is wrong.
    """
    h = Probe(harness)
    ours: Callable[..., Any] = functools.partial(adprotocol.grad, backend=harness.name)

    def mixed(inner: Callable[..., Any]) -> Any:
        # The gradient in x of that of x y y in y, at y = x: 4 x.
        return h.numpy(ours(lambda x: inner(lambda y: x * y * y)(1.0 * x))(h.array(3.0)))

    try:
        theirs, right = mixed(h.grad), mixed(ours)
    except Exception as error:
        raise Absent(one_line(error)) from error
    if abs(right - 12.0) <= 12.0 * harness.tolerance:
        what = "adprotocol.grad in x of grad(fun) of the harness, of x y y in y, at y = x = 3 (count no levels, for "
        h.assert_equal(theirs, 12.0, f"{what}adprotocol.grad may enclose you)")


def _tried(what: str, call: Callable[[], Any]) -> Any:
    """Return what a call of the system returns; `Absent` says how the system refuses it."""
    try:
        return call()
    except Exception as error:
        raise Absent(f"the system itself refuses {what}: {one_line(error, 160)}") from error


class Probe(Checked):
    """The functions of a harness, where a result that differs is a fault of the harness.

    Arrays are remembered with the values that they were made from, to detect changes in place.
    """

    wrong = HarnessFault

    def __init__(self, harness: Harness, variant: Functions | None = None) -> None:
        super().__init__(harness, variant)
        self.made: list[tuple[Any, Any]] = []

    def array(self, value: Any) -> Any:
        """Return an array that the harness makes of a value, and remember both."""
        made = self.harness.array(value)
        if made is None or isinstance(made, (bool, int, float, list)):
            what = f"array({value!r}) returned {made!r:.60}, {kind_of(made)}"
            raise HarnessFault(f"{what}; it returns an array of the system")
        self.made.append((made, value))
        return made

    def unchanged(self, capability: str) -> None:
        """Check that no array has been changed in place."""
        import numpy as np  # noqa: PLC0415  (--list does without)

        tolerance = self.harness.tolerance
        if capability in REQUIRED[:2] or not isinstance(tolerance, (int, float)):
            return
        for made, value in self.made:
            values = self.numpy(made)
            if not np.allclose(values, value, rtol=tolerance, atol=tolerance):
                what = f"{capability} changed its input in place, from {value} to {values}"
                raise HarnessFault(f"{what}; it must leave it as it is")

    def pair(self, made: Any, what: str) -> Any:
        """Return what has to be two things."""
        right = isinstance(made, (tuple, list)) and len(made) == 2  # noqa: PLR2004
        self.check(right, f"{what} returned {made!r:.80}; it returns two things")
        return made

    def of_system(self, made: Any, x: Any, what: str) -> None:
        """Check that a result is an array of the system, with which it computes."""
        packages = {base.__module__.partition(".")[0] for base in type(x).__mro__}
        if type(made).__module__.partition(".")[0] not in packages:
            wanted = f"an array of the system, as array() does, here {kind_of(x)}"
            raise HarnessFault(f"{what} returned {kind_of(made)}; it returns {wanted}")
        want = 2.0 * self.numpy(made) + self.numpy(x)
        self.assert_equal(2.0 * made + x, want, f"twice what {what} returned, plus 3,")

    def slope(self, fun: Callable[[Any], Any], at: Any, want: Any, what: str) -> None:
        """Check the gradient of a function, if the harness has one."""
        if self.has("grad"):
            self.assert_equal(self.grad(fun)(at), want, what)


# The check of each capability, where ``x`` is 3.
CHECKS: dict[str, Callable[[Probe, Any], None]] = {}


def _checks(*capabilities: str) -> Callable[[Any], Any]:
    def enter(function: Any) -> Any:
        for capability in capabilities:
            CHECKS[capability] = functools.partial(function, capability) if len(capabilities) > 1 else function
        return function

    return enter


@_checks("array")
def _array(h: Probe, x: Any) -> None:
    loose = h.harness.tolerance
    known = isinstance(loose, (int, float)) and not isinstance(loose, bool) and 0 <= loose <= LOOSEST
    h.check(known, f"tolerance is {loose!r:.60}; it is a number from 0 to {LOOSEST:g}")
    square = [[1.0, 2.0], [3.0, 4.0]]
    h.assert_equal(x, 3.0, "to_numpy(array(3.0))")
    h.assert_equal(h.array(square), square, f"to_numpy(array({square}))")
    negative = math.copysign(1.0, h.numpy(h.array(-0.0))) < 0
    h.check(negative, "to_numpy(array(-0.0)) is 0; it keeps the sign")
    for value, kinds, name in ((2.0, "f", "floating-point"), (2, "iu", "integer"), (True, "b", "boolean")):
        made = h.numpy(h.array(value))
        what = f"array({value!r}) is of dtype {made.dtype} and shape {made.shape}"
        h.check(made.dtype.kind in kinds and made.shape == (), f"{what}; a {name} scalar was expected")


@_checks("to_numpy")
def _to_numpy(h: Probe, x: Any) -> None:
    import numpy as np  # noqa: PLC0415  (--list does without)

    made = h.harness.to_numpy(x)
    right = isinstance(made, np.ndarray) and made.shape == () and made == 3.0  # noqa: PLR2004
    what = f"to_numpy(array(3.0)) returned {made!r:.60}, {kind_of(made)}"
    h.check(right, f"{what}; it returns a NumPy array, 3")
    y = h.array([1.0, 2.0])
    h.assert_equal(2 * x, 6.0, "2 * array(3.0)")
    text = "(2 * array(3.0) + array([1.0, 2.0])[1] - 1) / 2 - y"
    h.assert_equal((2.0 * x + y[1] - 1.0) / 2.0 - y, [2.5, 1.5], text)
    h.assert_equal(x > y[1], True, "array(3.0) > array([1.0, 2.0])[1]")  # noqa: FBT003


@_checks("grad")
def _grad(h: Probe, x: Any) -> None:
    y, v = h.array(2.0), h.array([3.0, 4.0])
    h.assert_equal(h.grad(lambda x, y: x * x * y)(x, y), 12.0, "grad of x * x * y at 3, 2")
    h.assert_equal(h.grad(lambda v: v[0] * v[1])(v), [4.0, 3.0], "grad of v[0] * v[1] at [3, 4]")
    unused = h.grad(lambda x, y: y * y)(x, y)  # noqa: ARG005
    h.assert_equal(unused, 0.0, "the gradient in x of y * y, which does not use x,")
    h.of_system(h.grad(lambda x: x * x)(x), x, "grad of x * x at 3")


@_checks("value_and_grad")
def _value_and_grad(h: Probe, x: Any) -> None:
    value, gradient = h.pair(h.value_and_grad(lambda x, y: x * x * y)(x, h.array(2.0)), "value_and_grad(fun)(x, y)")
    h.assert_equal(value, 18.0, "the value of value_and_grad")
    h.assert_equal(gradient, 12.0, "the gradient of value_and_grad")


@_checks("jvp")
def _jvp(h: Probe, x: Any) -> None:
    value, tangent = h.pair(h.jvp(lambda x: x * x, x, h.array(2.0)), "jvp(fun, primal, tangent)")
    h.assert_equal(value, 9.0, "the value of jvp of x * x at 3")
    h.assert_equal(tangent, 12.0, "the tangent of jvp of x * x at 3 along 2")


@_checks("jit", "compile", "checkpoint", "no_grad")
def _same_function(name: str, h: Probe, x: Any) -> None:
    made = getattr(h, name)(lambda x, y: x * x + y)
    h.check(callable(made), f"{name}(fun) returned {made!r:.60}; it returns a function")
    for _ in range(2):
        h.assert_equal(made(x, h.array(1.0)), 10.0, f"{name} of x * x + y at 3, 1")


@_checks("vmap")
def _vmap(h: Probe, x: Any) -> None:
    y = h.array([1.0, 2.0])
    got = h.vmap(lambda a, b: a * b + 1.0)(y, h.array([[1.0, 1.0], [2.0, 3.0]]))
    h.assert_equal(got, [[2.0, 2.0], [5.0, 7.0]], "vmap of a * b + 1")
    h.assert_equal(h.vmap(lambda a: a * x)(y), [3.0, 6.0], "vmap of a * x, which closes over x")


@_checks("scan")
def _scan(h: Probe, x: Any) -> None:
    made = h.scan(lambda c, a: ((c[0] * a, c[1] + a), c[0]), (x, 0.0 * x), h.array([2.0, 4.0]))
    carry, ys = h.pair(made, "scan")
    h.assert_equal(carry[0], 24.0, "the first carry of scan")
    h.assert_equal(carry[1], 6.0, "the second carry of scan")
    h.assert_equal(ys, [3.0, 6.0], "the stacked ys of scan")


@_checks("while_loop")
def _while_loop(h: Probe, x: Any) -> None:
    last = h.while_loop(lambda s: s[0] > 0.5, lambda s: (s[0] - 1.0, s[1] * 2.0), (x, x))  # noqa: PLR2004
    count, doubled = h.pair(last, "while_loop")
    h.assert_equal(count, 0.0, "the count of while_loop, down from 3")
    h.assert_equal(doubled, 24.0, "3 doubled by while_loop, three times")


@_checks("custom_rule")
def _custom_rule(h: Probe, x: Any) -> None:
    f = h.custom_rule(lambda x: x * x, lambda _: 7.0)
    h.assert_equal(f(x), 9.0, "a function with a rule of its own")
    h.slope(f, x, 7.0, "its gradient")


@_checks("counter")
def _counter(h: Probe, x: Any) -> None:
    identity, count = h.pair(h.counter(), "counter()")
    h.assert_equal(identity(x), 3.0, "the identity of counter")
    before = count()
    h.slope(lambda x: identity(x) * x, x, 6.0, "the gradient of identity(x) * x")
    counted = not h.has("grad") or count() > before
    h.check(counted, f"the counter stayed at {count()} although its identity was differentiated")


@_checks("stop_gradient")
def _stop_gradient(h: Probe, x: Any) -> None:
    h.assert_equal(h.stop_gradient(x), 3.0, "stop_gradient of 3")
    h.slope(lambda x: h.stop_gradient(x) * x, x, 3.0, "the gradient of stop_gradient(x) * x at 3")


@_checks("abstract")
def _abstract(h: Probe, x: Any) -> None:
    ran: list[Any] = []
    h.abstract(lambda x: ran.append(x) or x * x, x)  # type: ignore[func-returns-value]
    h.check(ran, "abstract(fun, x) did not run the function")


@_checks("sum")
def _sum(h: Probe, x: Any) -> None:
    y = h.array([[1.0, 2.0], [3.0, 4.0]])
    h.assert_equal(h.sum(y), 10.0, "sum of [[1, 2], [3, 4]]")
    h.slope(lambda x: h.sum(x * y), x, 10.0, "the gradient of sum(x * [[1, 2], [3, 4]]) in x")


@_checks("where")
def _where(h: Probe, x: Any) -> None:
    y, z = h.array([1.0, 5.0]), h.array([7.0, 8.0])
    h.assert_equal(h.where(y > x, y, z), [7.0, 5.0], "where(y > 3, y, z) of [1, 5] and [7, 8]")
    what = "the gradient of where(y > 3, y * y, z)[1] at [1, 5]"
    h.slope(lambda y: h.where(y > x, y * y, z)[1], y, [0.0, 10.0], what)


@_checks("dtypes", "devices")
def _names(call: str, h: Probe, x: Any) -> None:
    names = getattr(h, call)()
    named = names and not isinstance(names, str) and all(isinstance(name, str) for name in names)
    h.check(named, f"{call}() returned {names!r:.60}; it returns names, at least one")
    if call == "dtypes":
        dtype = h.numpy(x).dtype
        what = f"dtypes() begins with {names[0]!r}, and to_numpy(array(3.0)) is of dtype {dtype}"
        h.check(dtype.name == names[0], what)


@_checks("cast")
def _cast(h: Probe, x: Any) -> None:
    h.check(h.has("dtypes"), "cast needs dtypes(), which says the names to cast to")
    for name in h.dtypes():
        made = h.cast(x, name)
        h.assert_equal(made, 3.0, f"cast(array(3.0), {name!r})")
        dtype = h.numpy(made).dtype
        # NumPy lacks some, such as bfloat16.
        h.check(dtype.name in (name, "float32"), f"cast(array(3.0), {name!r}) is of dtype {dtype}")


@_checks("operations")
def _operations(h: Probe, x: Any) -> None:  # noqa: ARG001
    operations = h.operations()
    named = isinstance(operations, Mapping) and operations and all(map(callable, operations.values()))
    h.check(named, f"operations() returned {operations!r:.60}; it returns functions by name, at least one")
    for name, function in operations.items():
        dtype = h.numpy(function(h.array([2.0, 3.0]))).dtype
        what = f"operations()[{name!r}] returned dtype {dtype}; it returns a floating-point or complex array"
        h.check(dtype.kind in "fcV", what)  # V: floats that NumPy lacks


@_checks("parameter", "parameter_grad", "assign", "set_flag")
def _parameter(name: str, h: Probe, x: Any) -> None:
    parameter = h.parameter(2.0, trains=True)
    new = parameter is not None and parameter is not h.parameter(2.0, trains=True)
    h.check(new, f"parameter(2.0, trains=True) returned {parameter!r:.60}; it returns a new parameter each time")
    if name == "parameter_grad":
        gradient = h.parameter_grad(lambda: parameter * parameter * x, parameter)
        h.assert_equal(gradient, 12.0, "parameter_grad of p * p * 3 at p = 2")
        h.of_system(gradient, x, "parameter_grad")
    elif name == "assign":
        h.assign(parameter, 5.0)
        h.assert_equal(1.0 * parameter, 5.0, "a parameter of 2 after assign(parameter, 5.0)")
    elif name == "set_flag":
        h.set_flag(parameter, trains=False)


@_checks("module")
def _module(h: Probe, x: Any) -> None:  # noqa: ARG001
    inner = h.module({"w": 3.0})
    made = h.module({"p": 2.0, "q": 4.0, "inner": inner}, frozen=["q"])
    h.check(made.inner is inner, f"an attribute of module(...) is {made.inner!r:.60}; it is the module that was given")
    h.assert_equal(made.p * made.q * made.inner.w, 24.0, "the product of the parts of a module")


@_checks("evaluate")
def _evaluate(h: Probe, x: Any) -> None:
    y = h.evaluate(2.0 * x)
    h.assert_equal(y, 6.0, "evaluate(2 * array(3.0))")
    h.of_system(y, x, "evaluate")


@_checks("node")
def _node(h: Probe, x: Any) -> None:
    children = list(h.node([x, 2]))
    right = len(children) == 2 and children[0] is x and children[1] == 2  # noqa: PLR2004
    h.check(right, f"iterating over node([x, 2]) yields {children!r:.80}; it yields the children")


@_checks("threads")
def _threads(h: Probe, x: Any) -> None:  # noqa: ARG001
    answer = h.threads()
    h.check(isinstance(answer, bool), f"threads() returned {answer!r:.60}; it returns a bool")


@_checks(HIGHER_ORDER)
def _higher_order(h: Probe, x: Any) -> None:
    if not h.has("grad"):
        raise Absent("it needs grad")
    twice = h.grad(h.grad(lambda x: x * x * x))
    h.assert_equal(_tried("it", lambda: twice(x)), 18.0, "grad of grad of x ** 3 at 3, without adprotocol,")
    mixed = h.grad(lambda x: h.grad(lambda y: x * y * y)(1.0 * x))
    what = "the gradient in x of that of x y y in y, at 3, without adprotocol,"
    h.assert_equal(_tried("it", lambda: mixed(x)), 12.0, what)


@_checks(PROMOTION)
def _promotion(h: Probe, x: Any) -> None:
    for other, want in ((2, 6.0), (True, 3.0)):
        what, y = f"array(3.0) * array({other!r})", h.array(other)
        h.assert_equal(_tried(what, functools.partial(operator.mul, x, y)), want, what)


# For each capability a result that nothing differentiates any more. A gradient is none: that of a tape may be
# differentiated again.
RESULTS: dict[str, Callable[[Harness], Any]] = {
    "jvp": lambda h: h.jvp(lambda x: x * x, h.array(3.0), h.array(1.0)),
    **{
        name: lambda h, name=name: getattr(h, name)(lambda x: x * x)(h.array(3.0))  # type: ignore[misc]
        for name in ("jit", "compile", "checkpoint", "no_grad")
    },
    "stop_gradient": lambda h: h.stop_gradient(h.array(3.0)),
}


def check_untracked(harness: Harness, capability: str) -> None:
    """Report once, rather than in every scenario, that arrays or results of the harness are tracked."""
    if capability == "array":
        if adprotocol.within_gradient(harness.array(3.0)) is True:
            raise HarnessFault(
                "within_gradient(array(3.0)) is True although nothing is differentiated: either array() returns a "
                "tracked array (it must be untracked, in PyTorch requires_grad=False) or the plugin is wrong; most "
                "scenarios fail because of it"
            )
    elif capability in RESULTS and adprotocol.within_gradient(RESULTS[capability](harness)) is True:
        raise HarnessFault(
            f"within_gradient is True for what {capability} of the harness returned although nothing is differentiated "
            "any more: either the harness returns a tracked array or the plugin is wrong"
        )
