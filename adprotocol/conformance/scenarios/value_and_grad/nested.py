"""`value_and_grad` inside and around other derivatives and every transformation."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, SINGLE, X, compare, grid
from adprotocol.conformance.scenarios.models import Affine
from adprotocol.conformance.scenarios.value_and_grad.results import line

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "value_and_grad",
    rule="T9",
    source="PyTorch: seemingly incorrect gradient when nesting: https://github.com/pytorch/pytorch/issues/32576",
    needs=("grad", "grad of grad"),
)


_CONFUSION = "ForwardDiff.jl: perturbation confusion: https://github.com/JuliaDiff/ForwardDiff.jl/issues/83"
_HIGHER = "PyTorch: zeros for unused inputs, for higher derivatives: https://github.com/pytorch/pytorch/issues/44189"
_SAMPLES = "PyTorch: per-sample gradients: https://docs.pytorch.org/tutorials/intermediate/per_sample_grads.html"
_LEAKED = "JAX: a jitted function that closes over what is differentiated: https://github.com/jax-ml/jax/issues/1945"


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


@scenario(transform="grad", needs=("grad",), varies=True)
def value_differentiated_afterwards(h: Checked) -> None:
    """What follows the value and the auxiliary output counts in their derivatives, also where a system has one level.

    Of w ** 2 * b ** 2 at (2, 3), and 10 times it, the auxiliary output, 7 times the value has the native derivative 168
    by the frozen b, 11 times the output 2640, the gradient 24, and that of w ** 2 by its cotangent 4; at (3, 2) by w,
    with nothing frozen, 168 of the value, 24 and 8 of the gradients; or an error.
    """
    w = h.array(2.0)
    run = adprotocol.value_and_grad(lambda m: (loss(m), 10.0 * loss(m)), where="w", has_aux=True, backend=h.name)
    of_both = adprotocol.value_and_grad(loss, backend=h.name)
    calls = (
        (lambda b: 7.0 * run({"w": w, "b": b})[0][0], 168.0),
        (lambda b: 11.0 * run({"w": w, "b": b})[0][1], 2640.0),
        (lambda b: run({"w": w, "b": b})[1]["w"], 24.0),
        (lambda x: 7.0 * of_both({"w": x, "b": w})[0], 168.0),
        (lambda x: of_both({"w": x, "b": w})[1]["b"], 24.0),
        (lambda x: of_both({"w": x, "b": w})[1]["w"], 8.0),
        (lambda b: adprotocol.vjp(lambda w: w * w, w, backend=h.name)[1](b)[0], 4.0),
    )
    for call, want in calls:
        found = None
        with contextlib.suppress(Exception):  # a system of one level may refuse it
            found = h.grad(call)(h.array(3.0))
        if found is not None:
            h.assert_equal(found, want, "the derivative around the call")


@scenario(transform="grad", varies=True)
def arguments_differentiated_outside(h: Checked) -> None:
    """Arguments, by position and by keyword, and what a leaf is computed from, are differentiated around our gradient.

    The gradient of (w * x + 1) ** 2 by w = 2 is 42 at x = 3, and its native derivative by x is 26, given by position or
    by keyword; that by v of w = v - 1 is 18.
    """
    model, x = {"w": h.array(2.0), "b": h.array(1.0)}, h.array(3.0)
    run = adprotocol.grad(line, where="w", backend=h.name)
    h.assert_value_and_grad(lambda x: run(model, x)["w"], (x,), 42.0, 26.0, "by position")
    h.assert_value_and_grad(lambda x: run(model, x=x)["w"], (x,), 42.0, 26.0, "by keyword")
    computed = lambda v: run(model | {"w": v - 1.0}, h.array(3.0))["w"]  # noqa: E731
    h.assert_value_and_grad(computed, (x,), 42.0, 18.0, "by what the leaf is computed from")


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
    native="jvp of grad",
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


def _partial_gradient(x: float) -> list[float]:
    """Return the derivatives of 3 w ** 2 b where both are x, b included."""
    return [3 * x**3, 9 * x**2, 18 * x, 18.0, 0.0]


def _quarter(x: float) -> list[float]:
    """Return the derivatives of x ** 4 / 4."""
    return [x**4 / 4, x**3, 3 * x**2, 6 * x, 6.0]


@grid(
    "value_and_grad/inside-",
    (*SINGLE, *DERIVATIVE_PAIRS),
    rule="T9",
    native="{transforms} of grad",
)
def inside(h: Checked, transforms: str) -> None:
    """The gradient of a model with a frozen part is right inside {transforms}.

    Expect {transforms} of our gradient 3 w ** 2 b of w ** 3 b, with x = 2.5 at w and, frozen, at b, and None for b.
    """

    def f(x: Any) -> Any:
        gradient = adprotocol.grad(lambda m: m["w"] * m["w"] * m["w"] * m["b"], where="w", backend=h.name)
        result = gradient({"w": x, "b": x})
        h.assert_is(result["b"], None, "the gradient of the frozen part")
        return result["w"]

    compare(h, transforms, f, _partial_gradient)


@grid(
    "value_and_grad/of-",
    (*SINGLE, *DERIVATIVE_PAIRS),
    rule="T9",
    native="grad of {transforms}",
)
def around(h: Checked, transforms: str) -> None:
    """The gradient of a model is right around {transforms}.

    Expect our value and gradient of {transforms} of x ** 4 / 4 at 2.5, and None for an integer.
    """

    def f(x: Any) -> Any:
        return x * x * x * x * 0.25

    differentiated = adprotocol.value_and_grad(lambda m: h.nest(transforms, f)(m["x"]), backend=h.name)
    value, gradient = differentiated({"x": h.array(X), "n": 1})
    h.assert_equal(value, nesting.expected(transforms, _quarter)(X)[0], "the value")
    h.assert_gradients(gradient, {"x": nesting.expected(f"grad of {transforms}", _quarter)(X)[0], "n": None})


@scenario(
    transform="jit",
    needs=("grad", "jit"),
    source="optax: is jit smart enough to drop frozen parameters: https://github.com/google-deepmind/optax/issues/290",
)
def jit_of_frozen(h: Checked) -> None:
    """Under jit the value and the gradient are right, for each call of the compiled function.

    Expect value 36 and gradient 2 w b ** 2 = 36 of w ** 2 * b ** 2 at (2, 3), then 16 and 32 at (1, 4), from one trace.
    """

    def run(w: Any, b: Any) -> Any:
        value, gradient = adprotocol.value_and_grad(loss, where="w", backend=h.name)({"w": w, "b": b})
        h.assert_is(gradient["b"], None, "the gradient of the frozen part")
        return value + 100.0 * gradient["w"]

    compiled = h.jit(run)
    h.assert_equal(compiled(h.array(2.0), h.array(3.0)), 3636.0, "value + 100 gradient")
    h.assert_equal(compiled(h.array(1.0), h.array(4.0)), 3216.0, "value + 100 gradient, from the trace")


@scenario(
    transform="compile",
    needs=("grad", "compile"),
    source="PyTorch: compile of torch.func.grad: https://github.com/pytorch/pytorch/issues/94851",
)
def compile_of_frozen(h: Checked) -> None:
    """Compiled, the value and the gradient are right, for each call.

    Expect value 36 and gradient 36 of w ** 2 * b ** 2 at (2, 3), then 16 and 32 at (1, 4).
    """
    run = adprotocol.value_and_grad(loss, where="w", backend=h.name)

    def both(w: Any, b: Any) -> Any:
        value, gradient = run({"w": w, "b": b})
        return value + 100.0 * gradient["w"]

    compiled = h.compile(both)
    h.assert_equal(compiled(h.array(2.0), h.array(3.0)), 3636.0, "value + 100 gradient")
    h.assert_equal(compiled(h.array(1.0), h.array(4.0)), 3216.0, "value + 100 gradient, the second time")


@scenario(source=_SAMPLES, needs=("grad", "vmap"), transform="vmap")
def per_example_gradients(h: Checked) -> None:
    """Under vmap over the data there is a gradient of the one model for each example.

    The gradients of (w * x) ** 2 by w = 2 are 4, 16 and 36 for x = 1, 2 and 3.
    """
    model = {"w": h.array(2.0), "b": h.array(0.0)}

    def square(m: dict[str, Any], x: Any) -> Any:
        return (m["w"] * x + m["b"]) * (m["w"] * x + m["b"])

    run = adprotocol.grad(square, where="w", backend=h.name)
    h.assert_equal(h.vmap(lambda x: run(model, x)["w"])(h.array([1.0, 2.0, 3.0])), [4.0, 16.0, 36.0], "the gradients")


@scenario(
    source="Flax: ensembling: https://flax.readthedocs.io/en/latest/howtos/ensembling.html",
    needs=("grad", "vmap"),
    transform="vmap",
)
def batch_of_models(h: Checked) -> None:
    """Under vmap over the leaves there is a gradient for each of a batch of models.

    Of w ** 2 * b ** 2 expect the gradients 2 w b ** 2 = 18 and 64 for the models (1, 3) and (2, 4).
    """
    run = adprotocol.grad(loss, where="w", backend=h.name)
    found = h.vmap(lambda w, b: run({"w": w, "b": b})["w"])(h.array([1.0, 2.0]), h.array([3.0, 4.0]))
    h.assert_equal(found, [18.0, 64.0], "the gradients")


@scenario(source=_SAMPLES, needs=("grad", "vmap"), transform="vmap")
def around_vmap(h: Checked) -> None:
    """Our gradient of a function over a batch is the sum of those of the examples.

    Expect w * x ** 2 * b, summed over x = 1 and 2, at w = 3, b = 2: the gradient 10 for w, None for b.
    """

    def batched(m: dict[str, Any], xs: Any) -> Any:
        results = h.vmap(lambda x: m["w"] * x * x * m["b"])(xs)
        return results[0] + results[1]

    model = {"w": h.array(3.0), "b": h.array(2.0)}
    value, gradient = adprotocol.value_and_grad(batched, where="w", backend=h.name)(model, h.array([1.0, 2.0]))
    h.assert_equal(value, 30.0, "the value")
    h.assert_gradients(gradient, {"w": 10.0, "b": None})


@scenario(
    level=SHOULD,
    transform="checkpoint",
    needs=("grad", "checkpoint"),
    source="PyTorch: checkpoint: https://docs.pytorch.org/docs/stable/checkpoint.html",
)
def around_checkpoint(h: Checked) -> None:
    """Our gradient goes through a checkpoint that closes over a frozen part.

    Of w ** 3 * b at (2, 5), b frozen and closed over expect the value 40 and the gradient 60.
    """

    def saved(m: dict[str, Any]) -> Any:
        return h.checkpoint(lambda w: w * w * w * m["b"])(m["w"])

    value, gradient = adprotocol.value_and_grad(saved, where="w", backend=h.name)(
        {"w": h.array(2.0), "b": h.array(5.0)}
    )
    h.assert_equal(value, 40.0, "the value")
    h.assert_gradients(gradient, {"w": 60.0, "b": None})


@scenario(
    transform="grad",
    needs=("grad", "evaluate"),
    source="tinygrad: realize keeps no graph: https://docs.tinygrad.org/tensor/properties/",
)
def evaluated(h: Checked) -> None:
    """In our gradient a value that is computed keeps its derivative, or that is refused: it is never lost silently.

    Expect x ** 3 with x ** 2 computed at once, computed twice, and made of x, or of the argument of an inner gradient,
    that is computed: 8 at 2, gradient 12; or an error, where the system loses the derivative.
    """
    x, refused = 1.0 + h.array(1.0), None
    inner = adprotocol.grad(lambda y: h.evaluate(y) * y * y / 12.0, backend=h.name)
    for what, square in (
        ("once", lambda x: h.evaluate(x * x)),
        ("twice", lambda x: h.evaluate(0.5 * h.evaluate(2.0 * x * x))),
        ("of the leaf itself, 3 x where it is still tracked,", lambda x: h.probe(h.evaluate(x)) * x / 3.0),
        ("in a gradient of y ** 3 / 12 at y = 2 x", lambda x: inner(2.0 * x)),
    )[: None if h.has("grad of grad") else -1]:
        run = adprotocol.value_and_grad(lambda m, square=square: square(m["x"]) * m["x"])
        try:
            value, gradient = run({"x": x})
        except adprotocol.ADProtocolError as error:
            refused = error
        else:
            h.assert_equal(value, 8.0, f"computed {what}: the value")
            h.assert_equal(gradient["x"], 12.0, f"computed {what}: the gradient")
    if refused is not None:
        h.require_native(lambda: h.grad(lambda x: h.evaluate(x * x) * x)(x), 12.0)
        raise refused


@scenario(
    "made-inside{name}",
    transform="grad of {way}",
    needs=None,
    source=_LEAKED,
    params={"": {"turns": 1}, "-another": {"turns": 2}},
)
def made_inside(h: Checked, way: str, turns: int) -> None:
    """A function compiled inside of our gradient may close over a leaf: its derivative is right, or refused.

    Expect x y at 2, 4 with x closed over: 8 and the gradient 4, or an error; also where another one calls it.
    """
    x, y = h.array(2.0), h.array(4.0)

    def product(x: Any) -> Any:
        traced = h.trace(way, lambda y: x * y)
        for _ in range(turns - 1):
            traced = h.trace(way, lambda y, called=traced: 1.0 * called(y))
        return traced(y)

    try:
        value, gradient = adprotocol.value_and_grad(lambda m: product(m["x"]))({"x": x})
    except Exception:
        h.require_native(lambda: h.grad(product)(x), 4.0)
        raise
    h.assert_equal(value, 8.0, "the value")
    h.assert_equal(gradient["x"], 4.0, "the gradient")
