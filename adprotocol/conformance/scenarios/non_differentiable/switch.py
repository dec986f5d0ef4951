"""Constants made under the system's own switch: they are constants behind it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.within_gradient.switch import switched_parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "non_differentiable",
    rule="N1",
    source="PyTorch: the switch and leaves: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


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


@scenario(needs=("parameter", "parameter_grad", "no_grad"))
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


@scenario(rule="N2", needs=("parameter", "parameter_grad", "no_grad"))
def model_under_the_switch(h: Checked) -> None:
    """The constants of a model's parameters that are made under the switch are constants behind it.

    Expect p times the constants of {p, [p]}, made under the switch, 1 and 3 of them: the gradient 8 at 2.
    """
    p = switched_parameter(h)

    def f() -> Any:
        frozen = h.no_grad(lambda: adprotocol.non_differentiable({"p": p, "list": [p]}))()
        return p * frozen["p"] + 3.0 * p * frozen["list"][0]

    h.assert_equal(h.parameter_grad(f, p), 8.0, "the gradient")
