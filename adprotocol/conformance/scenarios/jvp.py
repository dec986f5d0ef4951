"""`jvp`: tangents pushed forward through a function."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable, errors
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.arrays import dtypes_of_numpy
from adprotocol.messages import one_line

if TYPE_CHECKING:
    from collections.abc import Callable

_FILTERED = "Equinox: jvp of what is no array: https://docs.kidger.site/equinox/api/transformations/"
_DUALS = "PyTorch: forward mode: https://docs.pytorch.org/tutorials/intermediate/forward_ad_usage.html"
_SWITCH = "PyTorch: no_grad does not stop forward mode: https://github.com/pytorch/pytorch/issues/128600"
_CONFUSED = "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005"
_MISSING = "autograd: operations without a jvp: https://github.com/HIPS/autograd/blob/master/docs/tutorial.md"

scenario: Decorator = defaults("jvp", rule="J9", level=SHOULD, needs=("grad",), source=_FILTERED)


def push(h: Checked, *given: Any, **chosen: Any) -> Any:
    """Return what `adprotocol.jvp` does; a plugin without its hook needs functions and a second level."""
    h.require_hook("jvp", *["array_functions"] * h.has(HIGHER_ORDER))
    return adprotocol.jvp(*given, backend=h.name, **chosen)


@scenario(rule="J1", source=_DUALS)
def closed_form(h: Checked) -> None:
    """Value and tangent are those of the function, the tangent None for what is constant, the auxiliary output third.

    Expect of {cube: x ** 3, n: 3} at (1, 2) along (1, 10): the tangent {cube: (3, 120), n: None}, and x / 2 as it is;
    behind the call nothing of it is tracked.
    """
    x, along = h.array([1.0, 2.0]), h.array([1.0, 10.0])
    value, tangent, aux = push(h, lambda x: ({"cube": x * x * x, "n": 3}, x / 2.0), (x,), (along,), has_aux=True)
    h.assert_equal(value["cube"], [1.0, 8.0], "the value")
    h.assert_is(value["n"], 3, "the number in the value")
    h.assert_gradients(tangent, {"cube": [3.0, 120.0], "n": None}, "the tangent")
    h.assert_equal(aux, [0.5, 1.0], "the auxiliary output")
    h.assert_equal(along, [1.0, 10.0], "the tangent that was given")
    for found, what in ((value, "the value"), (tangent, "the tangent"), (aux, "the auxiliary output")):
        h.assert_untracked(adprotocol.within_gradient(found), f"{what} behind the call")


@scenario()
def moves_what_has_a_tangent(h: Checked) -> None:
    """Leaves with a tangent move, whatever declarations say; the others are constants.

    Expect 3 a times 11 b + c at (1, 2, 4) along 2 for a: the value 70, the tangent 132; and along 2 for a label's c, 2.
    """
    m = {"a": h.array(1.0), "b": h.array(2.0), "c": NonDifferentiable(h.array(4.0)), "n": 3}

    def fun(m: dict[str, Any]) -> Any:
        return h.probe(m["a"]) * h.scale(m["b"], 7.0, 11.0) + m["c"]

    value, tangent = push(h, fun, (m,), ({"a": h.array(2.0), "b": None, "c": None, "n": None},))
    h.assert_equal(value, 70.0, "the value")
    h.assert_equal(tangent, 132.0, "the tangent")
    by_position = push(h, lambda a, m: a * m["b"], (m["a"], m), (None, dict.fromkeys(m) | {"b": 5.0}))
    h.assert_equal(by_position[1], 5.0, "the tangent by the second primal")


@scenario(needs=("grad", "parameter"))
def parameter_read_elsewhere(h: Checked) -> None:
    """A parameter that moves does so wherever the function reads it, or the call is refused; it never stands still.

    Expect of p p of the model times p read by another name, at 2 along 1, the tangent 12, or an error.
    """
    p, found = h.parameter(2.0, trains=True), None
    with contextlib.suppress(adprotocol.ADProtocolError):
        found = push(h, lambda m: m["p"] * m["p"] * p, ({"p": p},), ({"p": h.array(1.0)},))[1]
    if found is not None:
        h.assert_equal(found, 12.0, "the tangent")


@scenario()
def output_that_does_not_move(h: Checked) -> None:
    """An output that does not move has zeros, and each has its own tangent, also beside one that it is computed from.

    Expect of (2 x, c, y, 4 x x) at x = (1, 2) along (1, 10): (2, 20), zeros for c, which is closed over, and for y, and
    (8, 160).
    """
    x, c = h.array([1.0, 2.0]), h.array([7.0, 8.0])
    _, tangent = push(h, lambda x, y: (z := 2.0 * x, c, y, z * z), (x, h.array(3.0)), (h.array([1.0, 10.0]), None))
    for found, want in zip(tangent, ([2.0, 20.0], [0.0, 0.0], 0.0, [8.0, 160.0]), strict=True):
        h.assert_equal(found, want, "the tangent")


@scenario(rule="J8")
def wrong(h: Checked) -> None:
    """Tangents of another shape, structure or number, and tangents None alone, are errors.

    Expect ArgumentError for each, naming the argument where there is one, and (2, 40) of (1, 10) behind them.
    """
    x, n = h.array([1.0, 2.0]), h.array([1, 2])
    for tangents in ((h.array([1.0, 1.0, 1.0]), None), ([x], None), (x, x), (x,), (None, None), x):
        with h.raises(errors.ArgumentError):
            push(h, lambda x, n: x * x, (x, n), tangents)
    tangent = push(h, lambda x, n: x * x, (x, n), (h.array([1.0, 10.0]), None))[1]
    h.assert_equal(tangent, [2.0, 40.0], "the tangent behind the errors")


@scenario(rule="J8", needs=("grad", "dtypes", "cast"), source=_DUALS)
def tangent_of_another_dtype(h: Checked) -> None:
    """A tangent has the dtype of its output, whatever the dtypes of the leaf and of the tangent that was given.

    Expect of x ** 2, and of x in each dtype, at 3 along 2 in each dtype: 12 and 2, each in the dtype of its output.
    """
    for dtype, other in itertools.product(dtypes_of_numpy(h), repeat=2):
        x, along = h.cast(h.array(3.0), dtype), h.cast(h.array(2.0), other)
        value, tangent = push(h, lambda x, other=other: (x * x, h.cast(x, other)), (x,), (along,))
        for output, found, want in zip(value, tangent, (12.0, 2.0), strict=True):
            h.assert_equal(found, want, f"the tangent of {dtype} along {other}")
            due, kind = h.numpy(output).dtype, h.numpy(found).dtype
            h.check(kind == due, f"the tangent of {dtype} along {other} has dtype {kind}; {due} was expected")


def _derivatives(h: Checked, fun: Callable[[Any], Any], x: Any) -> list[Any]:
    """Return the derivative by a push and by the system's gradient, without one that a system of one level refuses."""
    ways: list[Callable[[Any], Any]] = [lambda x: push(h, fun, (x,), (h.array(1.0),))[1]]
    if h.has("grad"):
        ways.append(h.grad(fun))
    found = list[Any]()
    for derivative in ways:
        with contextlib.suppress(Exception):
            found.append(derivative(x))
    return found


@scenario(rule="J6", source=_CONFUSED)
def levels_stay_apart(h: Checked) -> None:
    """A tangent in another derivative is that of its own call, also of a function that closes over the outer variable.

    Expect of x D(y -> x + y) and x D(y -> x y y), at x = 3, y = 1, the derivatives 1 and 12, or an error; not 2.
    """
    one = h.array(1.0)
    for inner, want in ((lambda x, y: x + y, 1.0), (lambda x, y: x * y * y, 12.0)):

        def outer(x: Any, inner: Any = inner) -> Any:
            return x * push(h, lambda y: inner(x, y), (one,), (one,))[1]

        for found in _derivatives(h, outer, h.array(3.0)):
            h.assert_equal(found, want, "the derivative around the call")


@scenario(rule="J6", source=_DUALS)
def value_differentiated_outside(h: Checked) -> None:
    """A derivative around the call follows the value and the auxiliary output, or the system refuses it.

    Expect of c x ** 2 at x = 2, c = 5, beside c x: 7 times the value and 11 times the output have the derivative 195 by
    x and 50 by c.
    """
    one = h.array(1.0)

    def both(x: Any, c: Any) -> Any:
        value, _, aux = push(h, lambda x: (c * x * x, c * x), (x,), (one,), has_aux=True)
        return 7.0 * value + 11.0 * aux

    x, c = h.array(2.0), h.array(5.0)
    for by, fun, at, want in (("x", lambda x: both(x, c), x, 195.0), ("c", lambda c: both(x, c), c, 50.0)):
        for found in _derivatives(h, fun, at):
            h.assert_equal(found, want, f"the derivative by {by}")


@scenario(rule="J6", transform="jvp of grad", needs=("grad", HIGHER_ORDER), source=_DUALS)
def of_a_gradient(h: Checked) -> None:
    """The derivative of a gradient along a vector is the product with the Hessian, which is differentiated again.

    Expect of x0 x0 x1 at (3, 5) along (1, 10): (2 x1 + 20 x0, 2 x0) = (70, 6), whose first has the gradient (20, 2).
    """
    x, along = h.array([3.0, 5.0]), h.array([1.0, 10.0])
    gradient = adprotocol.grad(lambda x: x[0] * x[0] * x[1], backend=h.name)
    h.assert_equal(push(h, gradient, (x,), (along,))[1], [70.0, 6.0], "the product with the Hessian")
    again = h.grad(lambda x: push(h, gradient, (x,), (along,))[1][0])
    h.assert_equal(again(x), [20.0, 2.0], "the gradient of the product")
    by_tangent = h.grad(lambda t: push(h, lambda x: x[0] * x[1], (x,), (t,))[1])
    h.assert_equal(by_tangent(along), [5.0, 3.0], "the gradient by the tangent")


@scenario(rule="J10", needs=("grad", "operations", "sum"), source=_MISSING)
def each_operation(h: Checked) -> None:
    """The tangent behind each operation is that of its gradient, or an error, and never a silent zero.

    Expect for each operation at (2, 3) along (1, 10) what the system's gradient of the sum gives along it.
    """
    x, along, moved = h.array([2.0, 3.0]), h.array([1.0, 10.0]), 0
    refused: list[Exception] = []
    for name, operation in h.operations().items():
        if h.numpy(operation(x)).dtype.kind == "f":
            total = lambda x, operation=operation: h.sum(operation(x))  # noqa: E731
            slope = h.numpy(h.grad(total)(x))
            try:
                tangent = push(h, total, (x,), (along,))[1]
            except Absent:
                raise
            except Exception as error:  # noqa: BLE001  (the system's own)
                refused.append(error)
                continue
            h.assert_equal(tangent, slope[0] + 10.0 * slope[1], f"the tangent behind {name}")
            moved += 1
    if refused and not moved:
        raise refused[0]


@scenario(rule="J10", needs=("grad", "custom_rule"), varies=True, source=_MISSING)
def rule_of_the_system(h: Checked) -> None:
    """The tangent behind a rule of the system's own is that rule's, be it for reverse mode alone, or an error of ours.

    Expect of x ** 2 with the rule 5 x, times x, at (1, 2) along (1, 10): (6, 240).
    """
    rule = h.custom_rule(lambda x: x * x, lambda x: 5.0 * x)
    try:
        tangent = push(h, lambda x: x * rule(x), (h.array([1.0, 2.0]),), (h.array([1.0, 10.0]),))[1]
    except errors.UndecidableError as error:
        msg = f"the plugin refuses it: {one_line(error, 160)}"
        raise Absent(msg) from error
    h.assert_equal(tangent, [6.0, 240.0], "the tangent")


@scenario(rule="J11", needs=("grad", "no_grad"), source=_SWITCH)
def under_the_switch(h: Checked) -> None:
    """The system's own switch makes a part of the function constant; around the call it does not concern forward mode.

    Expect of x ** 3 at (1, 2) along (1, 10), with one factor made under the switch: (2, 80), and the same for the call
    under the switch.
    """
    x, along = h.array([1.0, 2.0]), h.array([1.0, 10.0])
    part = lambda x: h.no_grad(lambda: 1.0 * x)() * x * x  # noqa: E731
    given: Any = lambda: push(h, part, (x,), (along,))  # noqa: E731
    for found, where in ((given(), "a part"), (h.no_grad(given)(), "a part and the call")):
        h.assert_equal(found[0], [1.0, 8.0], f"the value with {where} under the switch")
        h.assert_equal(found[1], [2.0, 80.0], f"the tangent with {where} under the switch")
