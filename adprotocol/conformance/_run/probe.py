"""A check for each capability of a harness, on a function with a closed form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from adprotocol.conformance.checks import Checked, HarnessFault
from adprotocol.errors import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.harness import Harness

# Beyond this tolerance a wrong answer could pass; half precision needs 1e-3.
LOOSEST = 0.01


class Probe(Checked):
    """Remember the arrays and the values they were made from, to detect changes in place."""

    def __init__(self, harness: Harness, variant: Mapping[str, Callable[..., Any]] | None = None) -> None:
        super().__init__(harness, variant)
        self.made: list[tuple[Any, Any]] = []


def array(h: Probe, value: Any) -> Any:
    """Return an array that the harness makes of a value, and remember both."""
    made = h.harness.array(value)
    if made is None or isinstance(made, (bool, int, float, list)):
        msg = f"array({value!r}) returned {made!r:.60}, {kind_of(made)}; it returns an array of the system"
        raise HarnessFault(msg)
    h.made.append((made, value))
    return made


def equal(h: Checked, got: Any, want: Any, what: str) -> None:
    """Compare a result with its closed form; a difference is a fault of the harness."""
    try:
        h.assert_equal(got, want, what)
    except AssertionError as error:
        raise HarnessFault(str(error)) from error


def _pair(made: Any, what: str) -> Any:
    if not isinstance(made, (tuple, list)) or len(made) != 2:  # noqa: PLR2004
        msg = f"{what} returned {made!r:.80}; it returns two things"
        raise HarnessFault(msg)
    return made


def _check_array(h: Probe, x: Any) -> None:
    import numpy as np  # noqa: PLC0415  (--list does without)

    tolerance = h.harness.tolerance
    if isinstance(tolerance, bool) or not isinstance(tolerance, (int, float)) or not 0 <= tolerance <= LOOSEST:
        msg = f"tolerance is {tolerance!r:.60}; it is a number from 0 to {LOOSEST:g}"
        raise HarnessFault(msg)
    equal(h, x, 3.0, "to_numpy(array(3.0))")
    equal(h, array(h, [[1.0, 2.0], [3.0, 4.0]]), [[1.0, 2.0], [3.0, 4.0]], "to_numpy(array([[1.0, 2.0], [3.0, 4.0]]))")
    if not np.signbit(h.numpy(array(h, -0.0))):
        msg = "to_numpy(array(-0.0)) is 0; it keeps the sign"
        raise HarnessFault(msg)
    for value, kinds, name in ((2.0, "f", "floating-point"), (2, "iu", "integer"), (True, "b", "boolean")):
        made = h.numpy(array(h, value))
        if made.dtype.kind not in kinds or made.shape != ():
            msg = f"array({value!r}) is of dtype {made.dtype} and shape {made.shape}; a {name} scalar was expected"
            raise HarnessFault(msg)


def _check_operators(h: Probe, x: Any) -> None:
    import numpy as np  # noqa: PLC0415  (--list does without)

    made = h.harness.to_numpy(x)
    if not isinstance(made, np.ndarray) or made.shape != () or made != 3.0:  # noqa: PLR2004
        msg = f"to_numpy(array(3.0)) returned {made!r:.60}, {kind_of(made)}; it returns a NumPy array, 3"
        raise HarnessFault(msg)
    y = array(h, [1.0, 2.0])
    for made, text in ((2 * x, "2 * array(3.0)"), (x * 2, "array(3.0) * 2")):
        equal(h, made, 6.0, text)
    equal(h, (2.0 * x + y[1] - 1.0) / 2.0 - y, [2.5, 1.5], "(2 * array(3.0) + array([1.0, 2.0])[1] - 1) / 2 - y")
    equal(h, x > y[1], np.True_, "array(3.0) > array([1.0, 2.0])[1]")


def _check_grad(h: Probe, x: Any) -> None:
    equal(h, h.grad(lambda x, y: x * x * y)(x, array(h, 2.0)), 12.0, "grad of x * x * y at 3, 2")
    equal(h, h.grad(lambda v: v[0] * v[1])(array(h, [3.0, 4.0])), [4.0, 3.0], "grad of v[0] * v[1] at [3, 4]")
    equal(h, h.grad(lambda x, y: y * y)(x, array(h, 2.0)), 0.0, "the gradient in x of y * y, which does not use x,")  # noqa: ARG005
    check_is_array(h, h.grad(lambda x: x * x)(x), x, "grad of x * x at 3")


def check_is_array(h: Checked, made: Any, x: Any, what: str) -> None:
    """Check that a result is an array of the system, with which it computes."""
    if type(made).__module__.partition(".")[0] not in {base.__module__.partition(".")[0] for base in type(x).__mro__}:
        msg = f"{what} returned {kind_of(made)}; it returns an array of the system, as array() does, here {kind_of(x)}"
        raise HarnessFault(msg)
    equal(h, 2.0 * made + x, 2.0 * h.numpy(made) + h.numpy(x), f"twice what {what} returned, plus 3,")


def _check_value_and_grad(h: Probe, x: Any) -> None:
    value, gradient = _pair(h.value_and_grad(lambda x, y: x * x * y)(x, array(h, 2.0)), "value_and_grad(fun)(x, y)")
    equal(h, value, 18.0, "the value of value_and_grad")
    equal(h, gradient, 12.0, "the gradient of value_and_grad")


def _check_jvp(h: Probe, x: Any) -> None:
    value, tangent = _pair(h.jvp(lambda x: x * x, x, array(h, 2.0)), "jvp(fun, primal, tangent)")
    equal(h, value, 9.0, "the value of jvp of x * x at 3")
    equal(h, tangent, 12.0, "the tangent of jvp of x * x at 3 along 2")


def _same_function(name: str) -> Callable[[Probe, Any], None]:
    def check_wrapped(h: Probe, x: Any) -> None:
        made = getattr(h, name)(lambda x, y: x * x + y)
        if not callable(made):
            msg = f"{name}(fun) returned {made!r:.60}; it returns a function"
            raise HarnessFault(msg)
        for _ in range(2):
            equal(h, made(x, array(h, 1.0)), 10.0, f"{name} of x * x + y at 3, 1")

    return check_wrapped


def _check_vmap(h: Probe, x: Any) -> None:
    got = h.vmap(lambda a, b: a * b + 1.0)(array(h, [1.0, 2.0]), array(h, [[1.0, 1.0], [2.0, 3.0]]))
    equal(h, got, [[2.0, 2.0], [5.0, 7.0]], "vmap of a * b + 1")
    equal(h, h.vmap(lambda a: a * x)(array(h, [1.0, 2.0])), [3.0, 6.0], "vmap of a * x, which closes over x")


def _check_scan(h: Probe, x: Any) -> None:
    carry, ys = _pair(h.scan(lambda c, a: ((c[0] * a, c[1] + a), c[0]), (x, 0.0 * x), array(h, [2.0, 4.0])), "scan")
    equal(h, carry[0], 24.0, "the first carry of scan")
    equal(h, carry[1], 6.0, "the second carry of scan")
    equal(h, ys, [3.0, 6.0], "the stacked ys of scan")


def _check_while_loop(h: Probe, x: Any) -> None:
    last = h.while_loop(lambda state: state[0] > 0.5, lambda state: (state[0] - 1.0, state[1] * 2.0), (x, x))  # noqa: PLR2004
    found, doubled = _pair(last, "while_loop")
    equal(h, found, 0.0, "the count of while_loop, down from 3")
    equal(h, doubled, 24.0, "3 doubled by while_loop, three times")


def _check_custom_rule(h: Probe, x: Any) -> None:
    f = h.custom_rule(lambda x: x * x, lambda _: 7.0)
    equal(h, f(x), 9.0, "a function with a rule of its own")
    if h.has("grad"):
        equal(h, h.harness.grad(f)(x), 7.0, "its gradient")


def _check_counter(h: Probe, x: Any) -> None:
    identity, count = _pair(h.counter(), "counter()")
    equal(h, identity(x), 3.0, "the identity of counter")
    before = count()
    if h.has("grad"):
        equal(h, h.harness.grad(lambda x: identity(x) * x)(x), 6.0, "the gradient of identity(x) * x")
        if count() <= before:
            msg = f"the counter stayed at {count()} although its identity was differentiated"
            raise HarnessFault(msg)


def _check_stop_gradient(h: Probe, x: Any) -> None:
    equal(h, h.stop_gradient(x), 3.0, "stop_gradient of 3")
    if h.has("grad"):
        equal(h, h.harness.grad(lambda x: h.stop_gradient(x) * x)(x), 3.0, "the gradient of stop_gradient(x) * x at 3")


def _check_abstract(h: Probe, x: Any) -> None:
    ran: list[bool] = []

    def square(x: Any) -> Any:
        ran.append(True)
        return x * x

    h.abstract(square, x)
    if not ran:
        msg = "abstract(fun, x) did not run the function"
        raise HarnessFault(msg)


def _check_sum(h: Probe, x: Any) -> None:
    y = array(h, [[1.0, 2.0], [3.0, 4.0]])
    equal(h, h.sum(y), 10.0, "sum of [[1, 2], [3, 4]]")
    if h.has("grad"):
        equal(h, h.grad(lambda x: h.sum(x * y))(x), 10.0, "the gradient of sum(x * [[1, 2], [3, 4]]) in x")


def _check_where(h: Probe, x: Any) -> None:
    y, z = array(h, [1.0, 5.0]), array(h, [7.0, 8.0])
    equal(h, h.where(y > x, y, z), [7.0, 5.0], "where(y > 3, y, z) of [1, 5] and [7, 8]")
    if h.has("grad"):
        found = h.grad(lambda y: h.where(y > x, y * y, z)[1])(y)
        equal(h, found, [0.0, 10.0], "the gradient of where(y > 3, y * y, z)[1] at [1, 5]")


def _check_dtypes(h: Probe, x: Any) -> None:
    found = h.dtypes()
    if isinstance(found, str) or not found or not all(isinstance(name, str) for name in found):
        msg = f"dtypes() returned {found!r:.60}; it returns the names of the floating-point dtypes, at least one"
        raise HarnessFault(msg)
    if h.numpy(x).dtype.name != found[0]:
        msg = f"dtypes() begins with {found[0]!r}, and to_numpy(array(3.0)) is of dtype {h.numpy(x).dtype}"
        raise HarnessFault(msg)


def _check_cast(h: Probe, x: Any) -> None:
    if not h.has("dtypes"):
        msg = "cast needs dtypes(), which says the names to cast to"
        raise HarnessFault(msg)
    for name in h.dtypes():
        made = h.cast(x, name)
        equal(h, made, 3.0, f"cast(array(3.0), {name!r})")
        if h.numpy(made).dtype.name not in (name, "float32"):  # NumPy lacks some, such as bfloat16
            msg = f"cast(array(3.0), {name!r}) is of dtype {h.numpy(made).dtype}"
            raise HarnessFault(msg)


def _check_operations(h: Probe, x: Any) -> None:  # noqa: ARG001
    found = h.operations()
    if not isinstance(found, Mapping) or not found or not all(callable(one) for one in found.values()):
        msg = f"operations() returned {found!r:.60}; it returns functions by name, at least one"
        raise HarnessFault(msg)
    for name, function in found.items():
        made = h.numpy(function(array(h, [2.0, 3.0])))
        if made.dtype.kind not in "fcV":  # V: floats that NumPy lacks
            msg = f"operations()[{name!r}] returned dtype {made.dtype}; it returns a floating-point or complex array"
            raise HarnessFault(msg)


def _check_parameter_grad(h: Probe, x: Any) -> None:
    parameter = h.parameter(2.0, trains=True)
    found = h.parameter_grad(lambda: parameter * parameter * x, parameter)
    equal(h, found, 12.0, "parameter_grad of p * p * 3 at p = 2")
    check_is_array(h, found, x, "parameter_grad")


def _check_parameter(h: Probe, x: Any) -> None:  # noqa: ARG001
    made = h.parameter(3.0, trains=False)
    if made is None or made is h.parameter(3.0, trains=False):
        msg = f"parameter(3.0, trains=False) returned {made!r:.60}; it returns a new parameter each time"
        raise HarnessFault(msg)


def _check_evaluate(h: Probe, x: Any) -> None:
    y = h.evaluate(2.0 * x)
    equal(h, y, 6.0, "evaluate(2 * array(3.0))")
    check_is_array(h, y, x, "evaluate")


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


CHECKS: dict[str, Callable[[Probe, Any], None]] = {
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
    "while_loop": _check_while_loop,
    "stop_gradient": _check_stop_gradient,
    "no_grad": _same_function("no_grad"),
    "custom_rule": _check_custom_rule,
    "counter": _check_counter,
    "abstract": _check_abstract,
    "sum": _check_sum,
    "where": _check_where,
    "dtypes": _check_dtypes,
    "cast": _check_cast,
    "operations": _check_operations,
    "parameter": _check_parameter,
    "parameter_grad": _check_parameter_grad,
    "evaluate": _check_evaluate,
    "node": _check_node,
    "threads": _check_threads,
    "devices": _check_devices,
}
