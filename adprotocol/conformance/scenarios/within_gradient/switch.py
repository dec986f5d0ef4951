"""Parameters and results under the system's own switch, where nothing is recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import WAYS, defaults
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "within_gradient",
    rule="W2",
    needs=(*NEEDS, "no_grad"),
    source="PyTorch: the switch counts: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)


def switched_parameter(h: Checked) -> Any:
    """Return a parameter of the value 2; a system whose switch does not concern parameters has none of it."""
    p = h.parameter(2.0, trains=True)
    h.require_native(lambda: h.parameter_grad(lambda: p * h.no_grad(lambda: p * p)(), p), 4.0)
    return p


@scenario()
def parameter_under_the_switch(h: Checked) -> None:
    """A parameter is not tracked where the switch is off, and is again where it is on.

    Expect 5 p under the switch, a constant, times 7 p outside: at 2 the value 140 and the gradient 70.
    """
    p, values = switched_parameter(h), []

    def f() -> Any:
        value = h.no_grad(lambda: h.scale(p, 3.0, 5.0))() * h.scale(p, 7.0, 11.0)
        values.append(adprotocol.non_differentiable(value))
        return value

    h.assert_equal(h.parameter_grad(f, p), 70.0, "the gradient")
    h.assert_equal(values[0], 140.0, "the value under the gradient")


@scenario()
def results_under_the_switch(h: Checked) -> None:
    """What was computed from a parameter is not tracked under the switch, and is behind it.

    Expect under the switch False for p p, for 2 p and for a dict with p, then True for each; False for what a compiled
    p c gave under the switch.
    """
    p, one = switched_parameter(h), h.array(1.0)
    programs = [h.trace(way, lambda c: p * c) for way in WAYS if h.has(way)]

    def f() -> Any:
        asked = (p * p, {"p": p})
        inside = h.no_grad(lambda: [h.digit(value) for value in (*asked, 2.0 * p)])()
        made = h.no_grad(lambda: [program(one) for program in programs])()
        after = [h.digit(value) for value in (*made, *asked, 2.0 * p)]
        return sum(10.0**i * found for i, found in enumerate(reversed([*inside, *after]))) * p

    h.assert_equal(h.parameter_grad(f, p), 111.0, "the gradient, whose digits are the answers,")


@scenario(needs=("grad", "parameter", "no_grad"))
def parameter_of_no_gradient(h: Checked) -> None:
    """A switch under two gradients, neither in the parameter, leaves it untracked.

    Expect 5 p under the switch, where no gradient is one in p: 10 x y at 2, the gradient 10 x in y, and 10 in x.
    """
    p, y = h.parameter(2.0, trains=True), h.array(4.0)

    def slope(x: Any) -> Any:
        return x * adprotocol.grad(lambda y: y * h.no_grad(lambda: h.probe(p))(), backend=h.name)(y)

    h.assert_equal(h.grad(slope)(h.array(3.0)), 10.0, "the gradient")


@scenario(
    "parameter-under-the-switch", transform="{way}", needs=None, native="grad of {way}", also_needs=(*NEEDS, "no_grad")
)
def parameter_under_the_switch_compiled(h: Checked, way: str) -> None:
    """A compiled function that runs under the switch asks about a parameter that is not tracked there.

    Expect a compiled 5 p c under the switch, a constant, times 7 p: at 2 the gradient 70, twice.
    """
    p, one = switched_parameter(h), h.array(1.0)
    traced = h.trace(way, lambda c: h.scale(p, 3.0, 5.0) * c)
    for _ in range(2):
        found = h.parameter_grad(lambda: h.no_grad(lambda: traced(one))() * h.scale(p, 7.0, 11.0), p)
        h.assert_equal(found, 70.0, "the gradient")
