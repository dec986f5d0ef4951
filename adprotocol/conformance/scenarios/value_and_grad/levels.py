"""Calls inside calls over the same parameters: what one releases, another may still differentiate."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.value_and_grad.nested import loss

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


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
