"""Parameters that a function reads and does not take: variables that a tape watches, leaves of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.programs import in_both_orders
from adprotocol.conformance.scenarios.within_gradient.functions import Module

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


_LEAVES = "PyTorch: leaves and their flags: https://docs.pytorch.org/docs/stable/notes/autograd.html"

scenario: Decorator = defaults(
    "within_gradient",
    source="TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff",
)

NEEDS = ("parameter", "parameter_grad")


@scenario(rule="W1", needs=NEEDS)
def parameter_that_is_read(h: Checked) -> None:
    """In its gradient a parameter is tracked, and one whose flag is off and an array are not.

    The parameter p gives 3 p, q with its flag off 11 q, and the array c 17 c: at 2, 3, 4 the product is 13464 and its
    gradient in p 6732.
    """
    p, q, c = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False), h.array(4.0)

    def f() -> Any:
        return h.probe(p) * h.scale(q, 7.0, 11.0) * h.scale(c, 13.0, 17.0)

    values: list[Any] = []

    def keeps() -> Any:
        value = f()
        values.append(adprotocol.non_differentiable(value))
        return value

    h.assert_equal(h.parameter_grad(keeps, p), 6732.0, "the gradient")
    h.assert_equal(values[0], 13464.0, "the value under the gradient")


@scenario(
    rule="W1",
    needs=NEEDS,
    source="Theano, a function of a value and its gradient: https://pytensor.readthedocs.io/en/latest/tutorial/gradients.html",
)
def value_beside_its_gradient(h: Checked) -> None:
    """What is computed together with its own gradient is as that gradient differentiates it.

    Expect 3 p at 2 and its gradient in p, 3, computed together: 9.
    """
    p = h.parameter(2.0, trains=True)
    values: list[Any] = []

    def keeps() -> Any:
        value = h.probe(p)
        values.append(adprotocol.non_differentiable(value))
        return value

    gradient = h.parameter_grad(keeps, p)
    h.assert_equal(values[0] + gradient, 9.0)


@scenario(rule="W1", needs=("grad", *NEEDS, HIGHER_ORDER))
def parameter_under_two_gradients(h: Checked) -> None:
    """A parameter is tracked by an outer gradient inside of one that is of something else.

    Expect 3 p x with the parameter p, inside of a gradient in x that does not select it: its gradient 3 p has the
    gradient 3 in p.
    """
    p, x = h.parameter(2.0, trains=True), h.array(4.0)

    def slope() -> Any:
        return adprotocol.grad(lambda x: h.probe(p) * x, backend=h.name)(x)

    h.assert_equal(h.parameter_grad(slope, p), 3.0, "the gradient")


@scenario(rule="W3", needs=NEEDS, varies=True, source=_LEAVES)
def parameter_and_result(h: Checked) -> None:
    """A parameter, what is computed from it, and a container with it are tracked; its constant is not.

    Expect True for p, for 2 p, for a dict with p and for a module's weight, False for the constant of p.
    """
    p, c = h.parameter(2.0, trains=True), h.array(4.0)

    def f() -> Any:
        asked = (p, 2.0 * p, {"p": p, "c": c}, Module(p).weight, adprotocol.non_differentiable(p))
        digits = [h.digit(value) for value in asked]
        return sum(10.0**i * found for i, found in enumerate(reversed(digits))) * p

    h.assert_equal(h.parameter_grad(f, p), 11110.0, "the gradient, whose digits are the answers")


@scenario(rule="W6", transform="{way}", native="grad of {way}", also_needs=NEEDS)
def closes_over_parameter(h: Checked, way: str) -> None:
    """A compiled function that reads a parameter answers as it does eagerly, in both first orders.

    Expect 3 p c under the gradient in p: the gradient 3 c; plain and under that of c what the eager function gives.
    """
    c = h.array(4.0)

    def function(p: Any) -> Callable[[Any], Any]:
        return lambda x: h.probe(p) * x

    for kind, factor in ((function, 3.0), (Module, 7.0)):

        def make(kind: Any = kind) -> tuple[Any, Any, Any]:
            p = h.parameter(2.0, trains=True)
            eager = kind(p)
            return p, h.trace(way, eager), h.numpy(adprotocol.non_differentiable(eager(c)))

        def plain(made: tuple[Any, Any, Any]) -> None:
            _, traced, want = made
            h.assert_equal(adprotocol.non_differentiable(traced(c)), want, "the plain call")

        def differentiated(made: tuple[Any, Any, Any], factor: float = factor) -> None:
            p, traced, _ = made
            h.assert_equal(h.parameter_grad(lambda: traced(c), p), 4.0 * factor, "the gradient")

        in_both_orders(make, plain, differentiated)


@scenario(rule="W6", transform="{way}", native="grad of {way}", also_needs=NEEDS, source=_LEAVES)
def closes_over_frozen_parameter(h: Checked, way: str) -> None:
    """A compiled function tells a parameter whose flag is on from one whose flag is off.

    Expect 3 p times 11 q, of which q has its flag off: the gradient 33 q in p, twice.
    """
    p, q = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False)
    traced = h.trace(way, lambda c: h.probe(p) * h.scale(q, 7.0, 11.0) * c)
    one = h.array(1.0)
    for _ in range(2):
        h.assert_equal(h.parameter_grad(lambda: traced(one), p), 99.0, "the gradient")


@scenario(
    rule="W1",
    transform="{way}",
    native="{way} of grad",
    also_needs=NEEDS,
    source="TensorFlow, a step of training in tf.function: https://www.tensorflow.org/guide/function",
)
def gradient_taken_inside(h: Checked, way: str) -> None:
    """A compiled function that takes the gradient itself tells parameters whose flag is on from those whose is off.

    Expect 3 p times 11 q, of which q has its flag off, differentiated in p by the compiled function: 33 q.
    """
    p, q = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False)

    def step(loss: Callable[[], Any]) -> Any:
        return h.trace(way, lambda c: h.parameter_grad(lambda: loss() * c, p))(h.array(1.0))

    h.require_native(lambda: step(lambda: p * q), 3.0)
    h.assert_equal(step(lambda: h.probe(p) * h.scale(q, 7.0, 11.0)), 99.0, "the gradient")


_PLACES: dict[str, dict[str, Any]] = {
    "first": {"place": 0, "flags": (False, True, False), "call": lambda f, x, y: f(x, y)},
    "second": {"place": 1, "flags": (True, False, True), "call": lambda f, x, y: f(x, y)},
    "keyword": {"place": 1, "flags": (True, False, True), "call": lambda f, x, y: f(x, y=y)},
    "nested": {"place": 1, "flags": (True, False, True), "call": lambda f, x, y: f({"x": x, "y": y})},
}


@scenario(
    "parameter-as-{name}-argument",
    rule="W6",
    transform="{way}",
    also_needs=NEEDS,
    source=_LEAVES,
    params=_PLACES,
)
def parameter_as_argument(h: Checked, way: str, place: int, flags: tuple[bool, ...], call: Callable[..., Any]) -> None:
    """A compiled function answers about its {name} argument as it does eagerly, whichever parameter that is.

    Expect 3 (x + y) or 5 (x + y), then 7 x or 11 x, whichever the eager function gives, for parameters whose flag is on
    and off; 3, or 10 for x, in its gradient.
    """
    c, parameters = h.array(4.0), {flag: h.parameter(2.0, trains=flag) for flag in flags}

    def total(x: Any, y: Any = None) -> Any:
        return x["x"] + x["y"] if y is None else x + y

    def f(x: Any, y: Any = None) -> Any:
        return h.probe(total(x, y)) + h.scale(x["x"] if y is None else x, 7.0, 11.0)

    def arguments(flag: bool) -> list[Any]:
        return [c] * place + [parameters[flag]] + [c] * (1 - place)

    gradient = h.parameter_grad(lambda: f(*arguments(True)), parameters[True])
    h.assert_equal(gradient, 3.0 if place else 10.0, "the gradient of the eager function")
    h.require_native(lambda: call(h.trace(way, total), c, c), 8.0)
    traced = h.trace(way, f)
    for flag in flags:
        want = h.numpy(adprotocol.non_differentiable(f(*arguments(flag))))
        found = adprotocol.non_differentiable(call(traced, *arguments(flag)))
        h.assert_equal(found, want, f"the call, with the flag {flag}")


_STEPS = "PyTorch: optimisers change parameters in place: https://docs.pytorch.org/docs/stable/optim.html"


@scenario(rule="W1", needs=(*NEEDS, "assign"), source=_STEPS)
def parameter_that_is_assigned_to(h: Checked) -> None:
    """A parameter is what it was after it has been assigned to, with its new value.

    Expect 3 p p at p = 2 and, after p is assigned to, at 5, 7: gradients 12, 30, 42, and the values 12, 75, 147.
    """
    p = h.parameter(2.0, trains=True)
    for value in (2.0, 5.0, 7.0):
        h.assign(p, value)
        h.assert_equal(h.parameter_grad(lambda: h.probe(p) * p, p), 6.0 * value, f"the gradient at {value}")
        found, gradient = adprotocol.value_and_grad(lambda m: h.probe(m["p"]) * m["p"], backend=h.name)({"p": p})
        h.assert_equal(found, 3.0 * value * value, f"the value at {value}")
        h.assert_gradients(gradient, {"p": 6.0 * value}, f"our gradient at {value}")


@scenario(
    "parameter-that-changes",
    rule="W6",
    transform="{way}",
    native="grad of {way}",
    also_needs=(*NEEDS, "assign", "set_flag"),
    source=_STEPS,
)
def parameter_that_changes_compiled(h: Checked, way: str) -> None:
    """A compiled function follows the values and the flags of the parameters that it reads.

    Expect 3 p times 7 q or 11 q, q = 3, whichever the eager function gives, at each value of p and each flag of q; the
    gradient 63 or 99 likewise.
    """
    p, q, one = h.parameter([2.0], trains=True), h.parameter([3.0], trains=True), h.array(1.0)

    def f(x: Any) -> Any:
        return (h.probe(p) * h.scale(q, 7.0, 11.0))[0] * x

    traced = h.trace(way, f)
    for value, flag in ((2.0, True), (5.0, False), (5.0, True)):
        h.assign(p, [value])
        h.set_flag(q, trains=flag)
        plain = h.numpy(adprotocol.non_differentiable(f(one)))
        h.assert_equal(adprotocol.non_differentiable(traced(one)), plain, f"the plain call at {value}, flag {flag}")
        gradient = h.numpy(h.parameter_grad(lambda: f(one), p))
        nearest = min((63.0, 99.0), key=lambda want: abs(want - float(gradient[0])))
        h.assert_equal(gradient, [nearest], f"the gradient without {way} at {value}, flag {flag}")
        h.assert_equal(h.parameter_grad(lambda: traced(one), p), gradient, f"the gradient at {value}, flag {flag}")


def _fails(p: Any) -> Any:
    msg = f"no loss of {type(p).__name__}"
    raise ArithmeticError(msg)


@scenario(rule="W2", needs=("parameter", "parameter_grad"))
def parameter_after_an_error(h: Checked) -> None:
    """An exception in the gradient of a parameter leaves nothing behind.

    After an exception in a gradient the answer about a parameter is what it was before; 3 p inside the next.
    """
    p = h.parameter(2.0, trains=True)

    def answer() -> Any:
        return h.digit(p)

    before = h.numpy(answer())
    with h.raises(ArithmeticError, words=["no loss"]):
        h.parameter_grad(lambda: _fails(p), p)
    h.assert_equal(answer(), before, "the answer after the exception")
    h.assert_equal(h.parameter_grad(lambda: h.probe(p), p), 3.0, "the gradient after the exception")
    h.assert_equal(answer(), before, "the answer after that")


@scenario(
    "parameter-after-an-error",
    rule="W2",
    transform="{way}",
    native="grad of {way}",
    also_needs=("parameter", "parameter_grad"),
)
def parameter_after_an_error_compiled(h: Checked, way: str) -> None:
    """An exception in the gradient of a parameter changes no answer in a compiled function.

    After an exception in a gradient a compiled 3 p or 5 p gives what it gave before; gradient 3 in the next.
    """
    p, one = h.parameter(2.0, trains=True), h.array(1.0)
    traced = h.trace(way, lambda x: h.probe(p) * x)
    before = h.numpy(adprotocol.non_differentiable(traced(one)))

    def fails() -> Any:
        return _fails(traced(one))

    for _ in range(2):
        with h.raises(ArithmeticError, words=["no loss"]):
            h.parameter_grad(fails, p)
        h.assert_equal(adprotocol.non_differentiable(traced(one)), before, "the plain call after the exception")
        h.assert_equal(h.parameter_grad(lambda: traced(one), p), 3.0, "the gradient after the exception")
