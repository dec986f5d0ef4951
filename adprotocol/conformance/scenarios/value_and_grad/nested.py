"""`value_and_grad` inside and around other derivatives, of the same and of other variables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.models import Affine
from adprotocol.conformance.scenarios.value_and_grad.closed_forms import line

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_CONFUSION = "ForwardDiff.jl: perturbation confusion: https://github.com/JuliaDiff/ForwardDiff.jl/issues/83"
_HIGHER = "PyTorch: zeros for unused inputs, for higher derivatives: https://github.com/pytorch/pytorch/issues/44189"

scenario: Decorator = defaults(
    "value_and_grad",
    rule="T9",
    source="PyTorch: seemingly incorrect gradient when nesting: https://github.com/pytorch/pytorch/issues/32576",
    needs=("grad", "grad of grad"),
)


def loss(model: dict[str, Any]) -> Any:
    """Return w w b b of a model {"w": ..., "b": ...}."""
    return model["w"] * model["w"] * model["b"] * model["b"]


@scenario(transform="grad", varies=True)
def frozen_inside_differentiated_outside(h: Checked) -> None:
    """A native gradient around ours differentiates our gradient with respect to what ours freezes.

    Our gradient of w ** 2 * b ** 2 by w at (2, 3) is 36, and its native derivative by the frozen b is 24.
    """
    w = h.array(2.0)

    def inner(b: Any) -> Any:
        gradient = adprotocol.grad(loss, where="w", backend=h.name)({"w": w, "b": b})
        h.assert_is(gradient["b"], None, "the gradient of the frozen part")
        return gradient["w"]

    h.assert_value_and_grad(inner, (h.array(3.0),), 36.0, 24.0)


@scenario(transform="grad", varies=True)
def value_differentiated_outside(h: Checked) -> None:
    """The value that comes with our gradient is differentiated by a native gradient around it.

    The value of w ** 2 * b ** 2 at (5, 3), 225, and 10 times it, the auxiliary output, have the native derivatives 150
    and 1500 by the frozen b, 90 and 900 by w.
    """
    w, b = h.array(5.0), h.array(3.0)
    run = adprotocol.value_and_grad(lambda m: (loss(m), 10.0 * loss(m)), where="w", has_aux=True, backend=h.name)

    def both(w: Any, b: Any) -> Any:
        (value, aux), _ = run({"w": w, "b": b})
        return value + aux

    h.assert_value_and_grad(lambda b: both(w, b), (b,), 2475.0, 1650.0, "by the frozen part")
    h.assert_value_and_grad(lambda w: both(w, b), (w,), 2475.0, 990.0, "by the trained part")


@scenario(transform="grad", varies=True)
def arguments_differentiated_outside(h: Checked) -> None:
    """The other arguments, by position and by keyword, are differentiated by a native gradient around ours.

    The gradient of (w * x + 1) ** 2 by w = 2 is 42 at x = 3, and its native derivative by x is 26, given by position or
    by keyword.
    """
    model, x = {"w": h.array(2.0), "b": h.array(1.0)}, h.array(3.0)
    run = adprotocol.grad(line, where="w", backend=h.name)
    h.assert_value_and_grad(lambda x: run(model, x)["w"], (x,), 42.0, 26.0, "by position")
    h.assert_value_and_grad(lambda x: run(model, x=x)["w"], (x,), 42.0, 26.0, "by keyword")


@scenario(transform="grad", varies=True, source="JAX: has_aux leaks tracers: https://github.com/jax-ml/jax/issues/1950")
def aux_differentiated_outside(h: Checked) -> None:
    """Auxiliary output is no longer tracked by our gradient, and still by a native one around it.

    The auxiliary output w * x ** 2 at w = 3, x = 5 is 75, and a native gradient of it is 30 by x and 25 by w.
    """

    def run(w: Any, x: Any) -> Any:
        def both(m: dict[str, Any]) -> Any:
            return m["w"] * x, {"aux": m["w"] * x * x}

        (_, aux), _ = adprotocol.value_and_grad(both, has_aux=True, backend=h.name)({"w": w, "n": 1})
        return aux["aux"]

    w, x = h.array(3.0), h.array(5.0)
    h.assert_value_and_grad(lambda x: run(w, x), (x,), 75.0, 30.0, "by the other variable")
    h.assert_value_and_grad(lambda w: run(w, x), (w,), 75.0, 25.0, "by the leaf")


@scenario(transform="grad", varies=True, source=_CONFUSION)
def native_inside_other_variable(h: Checked) -> None:
    """A native derivative of another variable inside the function is differentiated by ours.

    The native derivative of z ** 3 * w by z at 2 is 12 w; ours of it by w is 12, and None for the frozen b.
    """
    two = h.array(2.0)

    def inner(m: dict[str, Any]) -> Any:
        return h.grad(lambda z: z * z * z * m["w"])(two) + m["b"] * 0.0

    run = adprotocol.value_and_grad(inner, where="w", backend=h.name)
    value, gradient = run({"w": h.array(5.0), "b": h.array(1.0)})
    h.assert_equal(value, 60.0, "the value")
    h.assert_gradients(gradient, {"w": 12.0, "b": None})


@scenario(source=_HIGHER)
def second_derivative(h: Checked) -> None:
    """Our gradient of our gradient is the second derivative.

    The gradient of w ** 3 * b by w at (3, 5) is 135, and our gradient of that is 90 by w and 27 by b.
    """
    model = {"w": h.array(3.0), "b": h.array(5.0), "n": 3}

    def slope(m: dict[str, Any]) -> Any:
        return adprotocol.grad(lambda m: m["w"] ** m["n"] * m["b"], backend=h.name)(m)["w"]

    value, gradient = adprotocol.value_and_grad(slope, backend=h.name)(model)
    h.assert_equal(value, 135.0, "the first derivative")
    h.assert_gradients(gradient, {"w": 90.0, "b": 27.0, "n": None})


@scenario(source=_HIGHER)
def second_derivative_of_unused(h: Checked) -> None:
    """The zeros of an unused leaf are differentiated once more: they give zeros, and no error.

    The gradient of w ** 2 by b, which is not used, is zero, and so is that of this zero, by w and b.
    """
    model = {"w": h.array(3.0), "b": h.array(2.0)}

    def slope(m: dict[str, Any]) -> Any:
        return adprotocol.grad(lambda m: m["w"] * m["w"], backend=h.name)(m)["b"]

    value, gradient = adprotocol.value_and_grad(slope, backend=h.name)(model)
    h.assert_equal(value, 0.0, "the first derivative")
    h.assert_gradients(gradient, {"w": 0.0, "b": 0.0})


@scenario()
def mixed_second_derivative(h: Checked) -> None:
    """Two of our gradients nest, each freezing what the other differentiates.

    Of w ** 2 * b ** 2 at (2, 3), by w inside and by b outside expect 4 w b = 24, and None for w.
    """
    inner = adprotocol.grad(loss, where="w", backend=h.name)
    outer = adprotocol.value_and_grad(lambda m: inner(m)["w"], where="b", backend=h.name)
    value, gradient = outer({"w": h.array(2.0), "b": h.array(3.0)})
    h.assert_equal(value, 36.0, "the gradient inside")
    h.assert_gradients(gradient, {"w": None, "b": 24.0})


@scenario(source=_CONFUSION)
def perturbation_confusion(h: Checked) -> None:
    """The variables of two levels stay apart where the inner function closes over the outer one.

    3 x, asked behind the gradient of y ** 2 / 2 at 1, times the gradient of x + y in y has the derivative 3, and not 6.
    """
    one = h.array(1.0)

    def outer(x: Any) -> Any:
        behind = adprotocol.grad(lambda y: 0.5 * y * y, backend=h.name)(one) * h.probe(x)
        return behind * adprotocol.grad(lambda y: x + y, backend=h.name)(one)

    value, gradient = adprotocol.value_and_grad(outer, backend=h.name)(one)
    h.assert_equal(value, 3.0, "the value")
    h.assert_equal(gradient, 3.0, "the gradient")


@scenario()
def same_value_at_two_levels(h: Checked) -> None:
    """The variable of the outer level, passed on, is another variable inside.

    The gradient of y * (x - y) at y = x is -x; its derivative at 1 is -1, and not 0 or -2.
    """

    def outer(x: Any) -> Any:
        return adprotocol.grad(lambda y: y * (x - y), backend=h.name)(x)

    value, gradient = adprotocol.value_and_grad(outer, backend=h.name)(h.array(1.0))
    h.assert_equal(value, -1.0, "the value")
    h.assert_equal(gradient, -1.0, "the gradient")


@scenario(
    transform="jvp",
    needs=("grad", "jvp"),
    source="functorch: forward over reverse: https://pytorch.org/functorch/0.2.0/generated/functorch.hessian.html",
)
def jvp_of_frozen(h: Checked) -> None:
    """A native derivative in forward mode goes through our gradient, by what it freezes.

    Of w ** 2 * b ** 2 at (2, 3) expect 2 w b ** 2 = 36, and along b, frozen inside, 4 w b = 24.
    """
    w = h.array(2.0)
    run = adprotocol.grad(loss, where="w", backend=h.name)
    h.assert_value_and_tangent(lambda b: run({"w": w, "b": b})["w"], h.array(3.0), h.array(1.0), 36.0, 24.0)


@scenario(
    rule="T12",
    transform="grad of grad",
    needs=None,
    source="C. Finn, P. Abbeel, S. Levine: Model-agnostic meta-learning, ICML 2017: https://arxiv.org/abs/1703.03400",
)
def adapted_model(h: Checked) -> None:
    """The gradient through a step of the model's own gradient reaches the model.

    The loss (3 * 2 + 1 - 4) ** 2 = 9 becomes 9 * 9 / 64 after a step of size 1/16; its gradient in the model before the
    step is 9 / 64 times that of the loss, 12 and 6.
    """
    x, y = h.array(2.0), h.array(4.0)

    def loss(model: Any) -> Any:
        r = model(x) - y
        return r * r

    def after_step(model: Any) -> Any:
        slopes = adprotocol.grad(loss, backend=h.name)(model)
        chosen, rest = adprotocol.partition(model)
        moved = replace(chosen, slope=chosen.slope - slopes.slope / 16.0, offset=chosen.offset - slopes.offset / 16.0)
        with h.raises(errors.TreeError):
            adprotocol.combine(replace(moved, offset=None), rest, like=model)
        return loss(adprotocol.combine(moved, rest, like=model))

    # The residual is linear in a and b: a step multiplies it by 1 - 2 (x x + 1) / 16 = 3 / 8.
    value, gradient = adprotocol.value_and_grad(after_step, backend=h.name)(Affine(h.array(3.0), h.array(1.0)))
    h.assert_equal(value, 9.0 / 64.0 * 9.0, "the loss after the step")
    h.assert_equal(gradient.slope, 9.0 / 64.0 * 12.0, "the gradient in a")
    h.assert_equal(gradient.offset, 9.0 / 64.0 * 6.0, "the gradient in b")
