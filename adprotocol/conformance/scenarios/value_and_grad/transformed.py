"""Gradients of models inside and around every transformation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.grid import DERIVATIVE_PAIRS, SINGLE, X, compare, grid
from adprotocol.conformance.scenarios.value_and_grad.nested import loss

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

_SAMPLES = "PyTorch: per-sample gradients: https://docs.pytorch.org/tutorials/intermediate/per_sample_grads.html"

scenario: Decorator = defaults("value_and_grad", rule="T9", transform="vmap", needs=("grad", "vmap"), source=_SAMPLES)


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


_LEAKED = "JAX: a jitted function that closes over what is differentiated: https://github.com/jax-ml/jax/issues/1945"


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


@scenario()
def per_example_gradients(h: Checked) -> None:
    """Under vmap over the data there is a gradient of the one model for each example.

    The gradients of (w * x) ** 2 by w = 2 are 4, 16 and 36 for x = 1, 2 and 3.
    """
    model = {"w": h.array(2.0), "b": h.array(0.0)}

    def square(m: dict[str, Any], x: Any) -> Any:
        return (m["w"] * x + m["b"]) * (m["w"] * x + m["b"])

    run = adprotocol.grad(square, where="w", backend=h.name)
    h.assert_equal(h.vmap(lambda x: run(model, x)["w"])(h.array([1.0, 2.0, 3.0])), [4.0, 16.0, 36.0], "the gradients")


@scenario(source="Flax: ensembling: https://flax.readthedocs.io/en/latest/howtos/ensembling.html")
def batch_of_models(h: Checked) -> None:
    """Under vmap over the leaves there is a gradient for each of a batch of models.

    Of w ** 2 * b ** 2 expect the gradients 2 w b ** 2 = 18 and 64 for the models (1, 3) and (2, 4).
    """
    run = adprotocol.grad(loss, where="w", backend=h.name)
    found = h.vmap(lambda w, b: run({"w": w, "b": b})["w"])(h.array([1.0, 2.0]), h.array([3.0, 4.0]))
    h.assert_equal(found, [18.0, 64.0], "the gradients")


@scenario()
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
    ):
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
