"""Calls made under the system's own switch: what is tracked inside, and what they return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.within_gradient.switch import switched_parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


scenario: Decorator = defaults(
    "value_and_grad",
    rule="T9",
    needs=("grad", "parameter", "parameter_grad", "no_grad"),
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)


def _switched(h: Checked, call: Callable[[], Any]) -> Any:
    """Return what a call under the switch returns; a plugin may refuse it."""
    try:
        return h.no_grad(call)()
    except adprotocol.ADProtocolError as error:
        msg = f"the plugin refuses it under the switch: {error}"
        raise Absent(msg) from error


@scenario(rule="T5")
def results_under_the_switch(h: Checked) -> None:
    """Value, gradients and auxiliary output of a call under the switch are constants behind it.

    Of p p q at (2, 3), called under the switch expect 12, 12 and 4; none of it is tracked behind it, so that the
    gradient in p of p times any of these is that number.
    """
    p = switched_parameter(h)
    model = {"p": p, "q": h.array(3.0)}
    run = adprotocol.value_and_grad(lambda m: (m["p"] * m["p"] * m["q"], m["p"] * 5.0), has_aux=True, backend=h.name)
    (value, aux), gradient = _switched(h, lambda: run(model))
    h.assert_gradients(gradient, {"p": 12.0, "q": 4.0})
    for name, part, want in (("value", value, 12.0), ("output", aux, 10.0), ("gradient", gradient["p"], 12.0)):
        h.assert_equal(part, want, f"the {name}")
        h.assert_untracked(adprotocol.within_gradient(part), f"the {name} after the call")
        h.assert_equal(h.parameter_grad(lambda: p * part, p), want, f"the gradient of p times the {name}")  # noqa: B023


@scenario(rule="T14")
def answers_under_the_switch(h: Checked) -> None:
    """In a call under the switch what the call selects is tracked, and a parameter that it freezes is not.

    Expect 3 p times 11 q times 17 r at 2, 3, 5, with where="p" and r in a second argument, under the switch: the
    gradient 3 * 33 * 85 in p and None for q.
    """
    model = {"p": switched_parameter(h), "q": h.parameter(3.0, trains=True)}
    other = [h.parameter(5.0, trains=True)]

    def loss(m: dict[str, Any], other: list[Any]) -> Any:
        return h.probe(m["p"]) * h.scale(m["q"], 7.0, 11.0) * h.scale(other[0], 13.0, 17.0)

    run = adprotocol.value_and_grad(loss, where="p", backend=h.name)
    value, gradient = _switched(h, lambda: run(model, other))
    h.assert_equal(value, 2.0 * 3.0 * 33.0 * 85.0, "the value")
    h.assert_gradients(gradient, {"p": 3.0 * 33.0 * 85.0, "q": None})


@scenario(rule="T5")
def switch_stays_off(h: Checked) -> None:
    """A call under the switch leaves it as it was, also where its function raises.

    Behind a call under the switch that raises, and one that does not, p p is still not recorded there, and is behind
    it: the gradient 4 of p times the constant 4.
    """
    p = switched_parameter(h)

    def fails(m: dict[str, Any]) -> Any:
        return adprotocol.cond(True, h.fail, h.fail, m["p"])  # noqa: FBT003

    def calls() -> Any:
        for fun in (fails, lambda m: m["p"] * m["p"]):
            try:
                adprotocol.grad(fun, backend=h.name)({"p": p})
            except (ArithmeticError, adprotocol.ADProtocolError):
                continue
        h.assert_equal(h.digit(p), 0.0, "the answer for p behind the calls, under the switch,")
        return p * p

    h.assert_equal(h.parameter_grad(lambda: p * h.no_grad(calls)(), p), 4.0, "the gradient")
    h.assert_equal(h.parameter_grad(lambda: h.probe(p) * p, p), 12.0, "the gradient of 3 p p")


@scenario(rule="T5")
def step_under_the_switch(h: Checked) -> None:
    """A step of training under the switch gives constants, of the gradient and of the parameter.

    Expect behind a call that raises, a step of p = 2 by an eighth of the gradient 12 of p p q, under the switch: 0.5; p
    times it, behind the switch, has the gradient 0.5, and so has p times what was computed from p under the switch.
    """
    p = switched_parameter(h)
    model = {"p": p, "q": h.array(3.0)}

    def step() -> Any:
        with h.raises(ZeroDivisionError, adprotocol.ADProtocolError):
            adprotocol.grad(lambda m: h.fail(m["p"]), backend=h.name)(model)
        gradient = adprotocol.grad(lambda m: m["p"] * m["p"] * m["q"], backend=h.name)(model)["p"]
        h.assert_untracked(adprotocol.within_gradient(gradient), "the gradient, under the switch,")
        return p - gradient / 8.0, p * p / 8.0

    h.assert_equal(h.parameter_grad(lambda: p * _switched(h, step)[0], p), 0.5, "the gradient of p times the step")
    h.assert_equal(h.parameter_grad(lambda: p * _switched(h, step)[1], p), 0.5, "the gradient of p times p p / 8")


@scenario(rule="T14")
def frozen_body_under_the_switch(h: Checked) -> None:
    """The frozen part of a model in a call under the switch may go where no gradient may.

    Of body and head, with where="head.*" under the switch, the body passes prevent_gradient, and is untracked expect 3
    p q = 18, the gradient 6 in the head; an error without where.
    """
    p, q = switched_parameter(h), h.parameter(3.0, trains=True)

    def loss(m: dict[str, Any]) -> Any:
        body = adprotocol.prevent_gradient(m["body"], "the body is frozen")
        return h.scale(body["w"], 2.0, 1.0) * h.probe(m["head"]["w"])

    run = adprotocol.value_and_grad(loss, where="head.*", backend=h.name)
    value, gradient = _switched(h, lambda: run({"body": {"w": p}, "head": {"w": q}}))
    h.assert_equal(value, 18.0, "the value")
    h.assert_is(gradient["body"]["w"], None, "the gradient of the body")
    h.assert_equal(gradient["head"]["w"], 6.0, "the gradient of the head")
    with h.raises(adprotocol.errors.GradientPreventedError, words=["the body is frozen"]):
        adprotocol.grad(loss, backend=h.name)({"body": {"w": p}, "head": {"w": q}})
