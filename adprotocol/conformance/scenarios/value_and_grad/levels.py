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


@scenario(
    expects="of w w b b at (2, 3): the gradient in w times w is 72; its gradient is 4 w b b = 72 in w, 4 w w b = 48"
)
def parameters_at_two_levels(h: Checked) -> None:
    """An inner call over the same parameters leaves those of the outer one tracked, also behind it."""

    def outer(m: dict[str, Any]) -> Any:
        return adprotocol.grad(loss, backend=h.name)(m)["w"] * m["w"]

    value, gradient = adprotocol.value_and_grad(outer, backend=h.name)(_model(h))
    h.assert_equal(value, 72.0, "the value")
    h.assert_gradients(gradient, {"w": 72.0, "b": 48.0})


@scenario(
    expects="of w w b b at (2, 3): the gradient in w, with b frozen, times b is 108; its gradient in b 6 w b b = 108, and "
    "None for w; in both 6 w b b and 2 b ** 3 = 54"
)
def parameter_frozen_inside(h: Checked) -> None:
    """A parameter that the inner call freezes is differentiated by the outer one, through the inner gradient too."""

    def outer(m: dict[str, Any]) -> Any:
        return adprotocol.grad(loss, where="w", backend=h.name)(m)["w"] * m["b"]

    for where, want in (("b", {"w": None, "b": 108.0}), (None, {"w": 54.0, "b": 108.0})):
        value, gradient = adprotocol.value_and_grad(outer, where=where, backend=h.name)(_model(h))
        h.assert_equal(value, 108.0, f"the value with where={where!r}")
        h.assert_gradients(gradient, want, f"the gradient with where={where!r}")


@scenario(expects="of w ** 3 b b at (2, 3) by w, then by b, then by w: 12 w b = 72; by b, by w, by w the same")
def parameters_at_three_levels(h: Checked) -> None:
    """Three calls nest, each of which freezes what the next differentiates."""

    def cubic(m: dict[str, Any]) -> Any:
        return m["w"] * m["w"] * m["w"] * m["b"] * m["b"]

    for first, second, third in (("w", "b", "w"), ("b", "w", "w"), ("w", "w", "b")):
        inner = adprotocol.grad(cubic, where=first, backend=h.name)
        middle = adprotocol.grad(lambda m: inner(m)[first], where=second, backend=h.name)  # noqa: B023
        outer = adprotocol.grad(lambda m: middle(m)[second], where=third, backend=h.name)  # noqa: B023
        want = {name: 72.0 if name == third else None for name in ("w", "b")}
        h.assert_gradients(outer(_model(h)), want, f"by {first}, by {second}, by {third}")


@scenario(
    rule="W1",
    expects="inside both calls True for w, which the inner one selects, and for b, which only the outer one does; "
    "False for c, which neither does: 3 w times 7 b times 17 c, by w and then by b: 3 * 7 * 17 c = 1428 at c = 4",
)
def answers_at_two_levels(h: Checked) -> None:
    """A parameter that one of two calls selects is tracked in both; one that none selects is not."""
    model = {**_model(h), "c": h.parameter(4.0, trains=True)}

    def product(m: dict[str, Any]) -> Any:
        return h.probe(m["w"]) * h.scale(m["b"], 7.0, 11.0) * h.scale(m["c"], 13.0, 17.0)

    inner = adprotocol.grad(product, where="w", backend=h.name)
    gradient = adprotocol.grad(lambda m: inner(m)["w"], where="b", backend=h.name)(model)
    h.assert_gradients(gradient, {"w": None, "b": 1428.0, "c": None})


@scenario(
    level=SHOULD,
    expects="of w w b b at (2, 3) where the inner function reads b of the outer model: by w 36, by b then 4 w b = 24",
)
def parameter_closed_over_inside(h: Checked) -> None:
    """The function of an inner call may read a parameter of the outer one instead of taking it."""
    model = _model(h)

    def outer(m: dict[str, Any]) -> Any:
        return adprotocol.grad(lambda only: loss({"w": only["w"], "b": m["b"]}), backend=h.name)({"w": m["w"]})["w"]

    value, gradient = adprotocol.value_and_grad(outer, where="b", backend=h.name)(model)
    h.assert_equal(value, 36.0, "the value")
    h.assert_gradients(gradient, {"w": None, "b": 24.0})


@scenario(
    needs=("grad", "grad of grad", "parameter", "parameter_grad"),
    expects="the native gradient of ours of w w b b by w at (2, 3): 24 by the frozen b, 18 by w; of the value 24 by b",
)
def native_around_parameters(h: Checked) -> None:
    """A native gradient of a parameter goes through a call that freezes it, and through one that selects it."""
    w = h.array(2.0)
    b = h.parameter(3.0, trains=True)
    h.require_native(lambda: h.parameter_grad(lambda: h.grad(lambda x: x * x * b * b)(w), b), 24.0)
    model = _model(h)
    run = adprotocol.value_and_grad(loss, where="w", backend=h.name)
    h.assert_equal(h.parameter_grad(lambda: run(model)[1]["w"], model["b"]), 24.0, "by the frozen parameter")
    h.assert_equal(h.parameter_grad(lambda: run(model)[1]["w"], model["w"]), 18.0, "by the selected parameter")
    h.assert_equal(h.parameter_grad(lambda: run(model)[0], model["b"]), 24.0, "of the value by the frozen parameter")


@scenario(
    expects="of w w b b at (2, 3), after an inner call over the same parameters that raised: 36 w by w, and 24 b by b"
)
def parameters_after_an_inner_error(h: Checked) -> None:
    """An inner call that raises leaves the parameters of the outer one tracked."""

    def fails(m: dict[str, Any]) -> Any:
        msg = f"raised with {sorted(m)}"
        raise ArithmeticError(msg)

    def outer(m: dict[str, Any]) -> Any:
        with contextlib.suppress(ArithmeticError):
            adprotocol.grad(fails, where="w", backend=h.name)(m)
        return loss(m) * h.digit(m["b"])

    h.assert_gradients(adprotocol.grad(outer, backend=h.name)(_model(h)), {"w": 36.0, "b": 24.0})
