"""Calls over the same parameters inside each other, and calls where recording is off."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.harness import HIGHER_ORDER
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.value_and_grad.nested import loss
from adprotocol.conformance.scenarios.within_gradient.modes import switched_parameter

if TYPE_CHECKING:
    from collections.abc import Callable


scenario: Decorator = defaults(
    "value_and_grad",
    rule="T9",
    needs=("grad", "grad of grad", "parameter"),
    source="PyTorch: seemingly incorrect gradient when nesting: https://github.com/pytorch/pytorch/issues/32576",
)


def _model(h: Checked) -> dict[str, Any]:
    """Return parameters w = 2 and b = 3, of which `loss` makes w w b b."""
    return {"w": h.parameter(2.0, trains=True), "b": h.parameter(3.0, trains=True)}


# The inner calls are given what the outer one passes on, or read the parameters themselves.
_BOTH: dict[str, dict[str, Any]] = {"": {"reads": False}, "read-": {"reads": True, "level": SHOULD}}


@scenario("parameters-{name}at-two-levels", params=_BOTH)
def at_two_levels(h: Checked, *, reads: bool) -> None:
    """An inner call over the same parameters leaves those of the outer one tracked, also behind it.

    Of w w b b at (2, 3) expect the gradient in w times w is 72; by w 4 w b b = 72, by b 4 w w b = 48; by w and then by
    w 4 b b = 36, by b 8 w b = 48.
    """
    model = _model(h)

    def outer(m: dict[str, Any]) -> Any:
        return adprotocol.grad(loss, backend=h.name)(model if reads else m)["w"] * (model if reads else m)["w"]

    value, gradient = adprotocol.value_and_grad(outer, backend=h.name)(model)
    h.assert_equal(value, 72.0, "the value")
    h.assert_gradients(gradient, {"w": 72.0, "b": 48.0})
    second = adprotocol.grad(
        lambda m: adprotocol.grad(outer, backend=h.name)(model if reads else m)["w"], backend=h.name
    )
    h.assert_gradients(second(model), {"w": 36.0, "b": 48.0}, "the second derivative")


@scenario("parameters-{name}frozen-inside", params=_BOTH)
def frozen_inside(h: Checked, *, reads: bool) -> None:
    """A parameter that the inner call freezes is differentiated by the outer one, through the inner gradient too.

    Of w w b b at (2, 3) expect the gradient in w, with b frozen, times b is 108; by b 6 w b b = 108, by w 2 b ** 3 =
    54.
    """
    model = _model(h)

    def outer(m: dict[str, Any]) -> Any:
        return (
            adprotocol.grad(loss, where="w", backend=h.name)(model if reads else m)["w"] * (model if reads else m)["b"]
        )

    for where, want in (("b", {"w": None, "b": 108.0}), (None, {"w": 54.0, "b": 108.0})):
        value, gradient = adprotocol.value_and_grad(outer, where=where, backend=h.name)(model)
        h.assert_equal(value, 108.0, f"the value with where={where!r}")
        h.assert_gradients(gradient, want, f"the gradient with where={where!r}")


@scenario("parameters-{name}at-three-levels", params=_BOTH)
def at_three_levels(h: Checked, *, reads: bool) -> None:
    """Three calls nest over the same parameters, each of which freezes what another differentiates.

    Of w ** 3 b b, both tracked, at (2, 3) by w, by b and by w expect 12 w b = 72; so in each order.
    """

    def cubic(m: dict[str, Any]) -> Any:
        return m["w"] * m["w"] * m["w"] * m["b"] * m["b"] * h.digit(m["w"]) * h.digit(m["b"])

    for first, second, third in (("w", "b", "w"), ("b", "w", "w"), ("w", "w", "b")):
        model = _model(h)

        def through(fun: Any, where: str, model: Any = model) -> Any:
            run: Any = adprotocol.grad(fun, where=where, backend=h.name)
            return lambda m: run(model if reads else m)[where]

        middle: Any = through(through(cubic, first), second)
        outer: Any = adprotocol.grad(middle, where=third, backend=h.name)
        gradient = outer(model)
        want = {name: 72.0 if name == third else None for name in ("w", "b")}
        h.assert_gradients(gradient, want, f"by {first}, by {second}, by {third}")


@scenario("parameters-{name}after-an-inner-error", params=_BOTH)
def after_an_inner_error(h: Checked, *, reads: bool) -> None:
    """An inner call that raises leaves the parameters of the outer one tracked.

    Of w w b b at (2, 3), behind an inner call that raised expect 36 by w, and 24 by b.
    """
    model = _model(h)

    def fails(m: dict[str, Any]) -> Any:
        msg = f"raised with {sorted(m)}"
        raise ArithmeticError(msg)

    def outer(m: dict[str, Any]) -> Any:
        with contextlib.suppress(ArithmeticError):
            adprotocol.grad(fails, where="w", backend=h.name)(model if reads else m)
        return loss(model if reads else m) * h.digit((model if reads else m)["b"])

    h.assert_gradients(adprotocol.grad(outer, backend=h.name)(model), {"w": 36.0, "b": 24.0})


@scenario("parameters-{name}asked-at-two-levels", params=_BOTH)
def asked_at_two_levels(h: Checked, *, reads: bool) -> None:
    """A parameter that one of two calls selects is tracked in both; one that none selects is not.

    Expect True for w, which the inner call selects, and for b, which the outer one does, False for c: 3 w 7 b 17 c, by
    w and then by b 3 * 7 * 17 c = 1428 at c = 4.
    """
    model = {**_model(h), "c": h.parameter(4.0, trains=True)}

    def product(m: dict[str, Any]) -> Any:
        return h.probe(m["w"]) * h.scale(m["b"], 7.0, 11.0) * h.scale(m["c"], 13.0, 17.0)

    inner = adprotocol.grad(product, where="w", backend=h.name)
    run = adprotocol.grad(lambda m: inner(model if reads else m)["w"], where="b", backend=h.name)
    h.assert_gradients(run(model), {"w": None, "b": 1428.0, "c": None})


@scenario(level=SHOULD)
def parameter_closed_over_inside(h: Checked) -> None:
    """The function of an inner call may read a parameter of the outer one instead of taking it.

    Of w w b b at (2, 3) where the inner function reads b of the outer model expect by w 36, by b then 4 w b = 24.
    """
    model = _model(h)

    def outer(m: dict[str, Any]) -> Any:
        return adprotocol.grad(lambda only: loss({"w": only["w"], "b": m["b"]}), backend=h.name)({"w": m["w"]})["w"]

    value, gradient = adprotocol.value_and_grad(outer, where="b", backend=h.name)(model)
    h.assert_equal(value, 36.0, "the value")
    h.assert_gradients(gradient, {"w": None, "b": 24.0})


@scenario(needs=("grad", "grad of grad", "parameter", "parameter_grad"))
def native_around_parameters(h: Checked) -> None:
    """A native gradient of a parameter goes through a call that freezes it, and through one that selects it.

    Expect the native gradient of ours of w w b b by w at (2, 3): 24 by the frozen b, 18 by w; of the value 24 by b.
    """
    w = h.array(2.0)
    b = h.parameter(3.0, trains=True)
    h.require_native(lambda: h.parameter_grad(lambda: h.grad(lambda x: x * x * b * b)(w), b), 24.0)
    model = _model(h)
    run = adprotocol.value_and_grad(loss, where="w", backend=h.name)
    h.assert_equal(h.parameter_grad(lambda: run(model)[1]["w"], model["b"]), 24.0, "by the frozen parameter")
    h.assert_equal(h.parameter_grad(lambda: run(model)[1]["w"], model["w"]), 18.0, "by the selected parameter")
    h.assert_equal(h.parameter_grad(lambda: run(model)[0], model["b"]), 24.0, "of the value by the frozen parameter")


@scenario(rule="T14", needs=("grad", "parameter", "parameter_grad", HIGHER_ORDER))
def parameter_in_another_argument(h: Checked) -> None:
    """Where the system records, a parameter in another argument is followed by a derivative around the call.

    Expect of w w p at (2, 3) in a call that differentiates w: the value 12, with the native derivative 4 by p.
    """
    w, p = h.array(2.0), h.parameter(3.0, trains=True)
    run = adprotocol.value_and_grad(lambda w, p: w * w * p, backend=h.name)
    h.assert_equal(run(w, p)[0], 12.0, "the value")
    h.assert_equal(h.parameter_grad(lambda: run(w, p)[0], p), 4.0, "the derivative of the value by the parameter")


def _switched(h: Checked, call: Callable[[], Any]) -> Any:
    """Return what a call under the switch returns; a plugin may refuse it."""
    try:
        return h.no_grad(call)()
    except adprotocol.ADProtocolError as error:
        msg = f"the plugin refuses it under the switch: {error}"
        raise Absent(msg) from error


@scenario(
    rule="T5",
    needs=("grad", "parameter", "parameter_grad", "no_grad"),
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)
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
        h.assert_equal(h.parameter_grad(lambda: p * part, p), want, f"the gradient of p times the {name}")


@scenario(
    rule="T14",
    needs=("grad", "parameter", "parameter_grad", "no_grad"),
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)
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


@scenario(
    rule="T5",
    needs=("grad", "parameter", "parameter_grad", "no_grad", HIGHER_ORDER),
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)
def switch_stays_off(h: Checked) -> None:
    """A call under the switch leaves it as it was, also where its function raises.

    Behind a call under the switch that raises, and one that does not, p p is still not recorded there, and is behind
    it: the gradient 4 of p times the constant 4.
    """
    p = switched_parameter(h)

    def fails(m: dict[str, Any]) -> Any:
        return adprotocol.cond(True, h.fail, h.fail, m["p"])

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


@scenario(
    rule="T5",
    needs=("grad", "parameter", "parameter_grad", "no_grad", HIGHER_ORDER),
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)
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


@scenario(
    rule="T14",
    needs=("grad", "parameter", "parameter_grad", "no_grad"),
    source="functorch: a grad begun inside no_grad is not concerned by it: https://github.com/pytorch/functorch/pull/179",
)
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
