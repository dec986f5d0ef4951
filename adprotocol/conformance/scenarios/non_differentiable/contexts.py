"""Constants of compiled functions and parameters, and those made where recording is off."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.programs import in_both_orders
from adprotocol.conformance.scenarios.within_gradient.flags import switched_parameter
from adprotocol.conformance.scenarios.within_gradient.functions import squares
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

scenario: Decorator = defaults(
    "non_differentiable",
    rule="N1",
    transform="grad of {way}",
    source="PyTorch: the switch and leaves: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


_RECOMPILED = "PyTorch: what torch.compile guards on: https://docs.pytorch.org/docs/stable/torch.compiler_faq.html"


@scenario(source=_RECOMPILED)
def closes_over_constant(h: Checked, way: str) -> None:
    """What a compiled function returns as a constant is one to the functions around it, in both first orders.

    Expect a compiled function returns the constant of x ** 2, by itself and from a branch: times 5 x, as it is
    untracked, 40 at 2 with the gradient 20; times x, 8 with the gradient 4.
    """
    x = h.array(2.0)

    def square(x: Any) -> Any:
        return adprotocol.non_differentiable(x * x)

    def of_a_branch(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, square, lambda x: adprotocol.non_differentiable(-1.0 * x), x)

    def make(fun: Any) -> tuple[Any, Any]:
        constant = h.trace(way, fun)
        return constant, h.trace(way, lambda x: h.probe(constant(x)) * x)

    def plain(made: tuple[Any, Any]) -> None:
        _, outer = made
        h.assert_equal(outer(x), 40.0, "the plain call")

    def differentiated(made: tuple[Any, Any]) -> None:
        constant, outer = made
        h.assert_value_and_grad(outer, (x,), 40.0, 20.0, "compiled in a compiled function")
        h.assert_value_and_grad(lambda x: constant(x) * x, (x,), 8.0, 4.0, "compiled alone")
        h.assert_value_and_grad(lambda x: h.probe(constant(x)) * x, (x,), 40.0, 20.0, "asked outside")

    for fun in (square, of_a_branch):
        in_both_orders(functools.partial(make, fun), plain, differentiated)


@scenario(rule="N3", source=_RECOMPILED)
def decorated_around(h: Checked, way: str) -> None:
    """The constant of a compiled function, and a constant function that is compiled, have no derivative.

    Expect c(x) x with c a compiled constant function, or the constant of a compiled one: 8 at 2, gradient 4.
    """
    x = h.array(2.0)
    for name, f in (
        ("the constant of a compiled function", adprotocol.non_differentiable(h.trace(way, lambda x: x * x))),
        ("a constant function, compiled", h.trace(way, adprotocol.non_differentiable(lambda x: x * x))),
    ):
        h.assert_equal(f(x) * x, 8.0, f"{name}, called plain")
        h.assert_value_and_grad(lambda x, f=f: f(x) * x, (x,), 8.0, 4.0, name)
        h.assert_value_and_grad(h.trace(way, lambda x, f=f: f(x) * x), (x,), 8.0, 4.0, f"{name}, inside of another")
        h.assert_equal(f(x) * x, 8.0, f"{name}, called plain again")


@scenario(source="TensorFlow: stop_gradient: https://www.tensorflow.org/api_docs/python/tf/stop_gradient")
def beside_a_result(h: Checked, way: str) -> None:
    """A constant that a compiled function returns leaves the derivative of its other result alone.

    Expect a compiled function returns x ** 2 twice, once as a constant, behind None: at 2 the gradient of the constant
    is 0, of the other 4, and of their product 16.
    """
    x = h.array(2.0)
    try:
        nothing = h.trace(way, lambda x: (None, x))(x)[:1]
    except Exception:  # noqa: BLE001  (whatever it is, it is how the system refuses None)
        nothing = ()
    for constant in (0, 1):
        pair = h.trace(way, lambda x, constant=constant: (*nothing, *squares(x, constant)))
        for _ in range(2):
            h.assert_value_and_grad(lambda x: pair(x)[-2] * pair(x)[-1], (x,), 16.0, 16.0, "of the product")  # noqa: B023
            h.assert_value_and_grad(lambda x: pair(x)[-1 - constant] * 1.0, (x,), 4.0, 4.0, "of the variable")  # noqa: B023
            h.assert_value_and_grad(lambda x: pair(x)[constant - 2] + 0.0 * x, (x,), 4.0, 0.0, "of the constant")  # noqa: B023


@scenario(
    transform="",
    needs=NEEDS,
    source="TensorFlow: stop_gradient reads a variable: https://www.tensorflow.org/api_docs/python/tf/stop_gradient",
)
def parameter(h: Checked) -> None:
    """The constant of a parameter is its value, and takes no derivative.

    At p = 3 the gradient of constant(p) * p ** 2 is 18, of constant(p) + p it is 1, and of p ** 2 afterwards 6.
    """
    p = h.parameter(3.0, trains=True)
    h.assert_equal(h.parameter_grad(lambda: adprotocol.non_differentiable(p) * p * p, p), 18.0, "the gradient")
    h.assert_equal(h.parameter_grad(lambda: adprotocol.non_differentiable(p) + p, p), 1.0, "the gradient of the sum")
    h.assert_equal(adprotocol.non_differentiable(p), 3.0, "the constant")
    h.assert_equal(h.parameter_grad(lambda: p * p, p), 6.0, "the gradient afterwards")


@scenario(
    "parameter",
    transform="{way}",
    also_needs=NEEDS,
    native="grad of {way}",
    source="TensorFlow: stop_gradient reads a variable: https://www.tensorflow.org/api_docs/python/tf/stop_gradient",
)
def parameter_compiled(h: Checked, way: str) -> None:
    """In a compiled function the constant of a parameter takes no derivative either.

    Expect constant(p) p x compiled, with p = 3, x = 2: plain 18, gradient c x = 6, in both first orders.
    """
    x = h.array(2.0)

    def make() -> tuple[Any, Any]:
        p = h.parameter(3.0, trains=True)
        return p, h.trace(way, lambda x: adprotocol.non_differentiable(p) * p * x)

    def plain(made: tuple[Any, Any]) -> None:
        _, traced = made
        h.assert_equal(adprotocol.non_differentiable(traced(x)), 18.0, "the plain call")

    def differentiated(made: tuple[Any, Any]) -> None:
        p, traced = made
        h.assert_equal(h.parameter_grad(lambda: traced(x), p), 6.0, "the gradient")

    in_both_orders(make, plain, differentiated)


@adprotocol.non_differentiable
def _constant(x: Any) -> Any:
    return x


_MAKES: tuple[Callable[[Any], Any], ...] = (
    adprotocol.non_differentiable,
    lambda x: adprotocol.non_differentiable({"x": x})["x"],
    _constant,
)


@scenario(transform="grad", needs=("grad", "no_grad"), varies=True)
def made_under_the_switch(h: Checked) -> None:
    """The constant of a variable that is made under the switch is one behind it.

    Expect 11 c x with c the constant of x, made under the switch: at 2 the value 44 and the gradient 22, by a call, in
    a dict and by a decorated function.
    """
    for make in _MAKES:

        def f(x: Any, make: Any = make) -> Any:
            return h.scale(h.no_grad(lambda: make(x))(), 7.0, 11.0) * x

        h.assert_value_and_grad(f, (h.array(2.0),), 44.0, 22.0)


@scenario(transform="jvp", needs=("jvp", "no_grad"))
def made_under_the_switch_in_forward_mode(h: Checked) -> None:
    """Under the switch a constant is one for forward mode too, which some switches do not stop.

    Expect c x with c the constant of x, made under the switch: at 2 the value 4 and the tangent 2.
    """
    h.assert_value_and_tangent(
        lambda x: h.no_grad(lambda: adprotocol.non_differentiable(x))() * x, h.array(2.0), h.array(1.0), 4.0, 2.0
    )


@scenario(transform="", needs=("parameter", "parameter_grad", "no_grad"))
def parameter_under_the_switch(h: Checked) -> None:
    """The constant of a parameter that is made under the switch is one behind it.

    Expect 11 c p with c the constant of the parameter p, made under the switch: the gradient 22 at 2, by a call, in a
    dict and by a decorated function; also where it was made before the gradient began.
    """
    p = switched_parameter(h)
    for make in _MAKES:
        before = h.no_grad(lambda: make(p))()  # noqa: B023
        h.assert_equal(h.parameter_grad(lambda: h.scale(before, 7.0, 11.0) * p, p), 22.0, "the gradient, made before,")  # noqa: B023

        def f(make: Any = make) -> Any:
            return h.scale(h.no_grad(lambda: make(p))(), 7.0, 11.0) * p

        h.assert_equal(h.parameter_grad(f, p), 22.0, "the gradient")


@scenario(rule="N2", transform="", needs=("parameter", "parameter_grad", "no_grad"))
def model_under_the_switch(h: Checked) -> None:
    """The constants of a model's parameters that are made under the switch are constants behind it.

    Expect p times the constants of {p, [p]}, made under the switch, 1 and 3 of them: the gradient 8 at 2.
    """
    p = switched_parameter(h)

    def f() -> Any:
        frozen = h.no_grad(lambda: adprotocol.non_differentiable({"p": p, "list": [p]}))()
        return p * frozen["p"] + 3.0 * p * frozen["list"][0]

    h.assert_equal(h.parameter_grad(f, p), 8.0, "the gradient")
