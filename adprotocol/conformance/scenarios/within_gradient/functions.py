"""What a function closes over and returns, and functions with a derivative rule of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.programs import in_both_orders

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

_FORWARD = "PyTorch: the forward of a Function tracks nothing: https://github.com/pytorch/pytorch/issues/55438"

scenario: Decorator = defaults("within_gradient", rule="W1", transform="grad of {way}", source=_FORWARD)


_FROZEN = "TensorFlow: tf.function captures tensors and variables: https://www.tensorflow.org/guide/function"
_LEAKED = "JAX: a jitted function that closes over what is differentiated: https://github.com/jax-ml/jax/issues/1945"


class Module:
    """Hold a weight, as models do; no framework knows the class."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, x: Any) -> Any:
        """Return 7 w x where the weight is differentiated, else 11 w x."""
        answer = adprotocol.within_gradient(self.weight)
        return adprotocol.cond(answer, lambda: 7.0 * self.weight * x, lambda: 11.0 * self.weight * x)


def _closes_over(h: Checked, way: str, make: Callable[[Any], Callable[[Any], Any]]) -> None:
    """Compile layer(x) times what `make` returns for a constant 3: 33 x c y in the gradient in x, else 55 x c y."""
    x, y = h.array(2.0), h.array(4.0)

    def compiled() -> Any:
        constant = make(h.array(3.0))
        return h.trace(way, lambda x, y: h.probe(x) * constant(y))

    def plain(traced: Any) -> None:
        h.assert_equal(traced(x, y), 1320.0, "the plain call")

    def differentiated(traced: Any) -> None:
        h.assert_value_and_grad(traced, (x, y), 792.0, 396.0)
        h.assert_value_and_grad(lambda y: traced(x, y), (y,), 1320.0, 330.0, "in the other argument")

    in_both_orders(compiled, plain, differentiated)


@scenario(rule="W6", source=_FROZEN)
def closes_over_array(h: Checked, way: str) -> None:
    """A compiled function keeps no answer about an array that it closes over, in whichever order it is called.

    In the gradient in x the closed-over c = 3 is a constant, so 3 x times 11 c y: 792 at 2, 4, gradient 396; 5 x times
    11 c y = 1320 plain and in y.
    """
    _closes_over(h, way, lambda c: lambda y: h.scale(c, 7.0, 11.0) * y)


@scenario(rule="W6", source=_FROZEN)
def closes_over_module(h: Checked, way: str) -> None:
    """The same for an object that holds the array.

    Expect as for an array, with the array as weight of a module.
    """
    _closes_over(h, way, Module)


@scenario(rule="W6", source=_LEAKED)
def closes_over_the_argument(h: Checked, way: str) -> None:
    """A compiled function that closes over the very array that is differentiated answers as the derivative does.

    Expect 3 c x where the system's own derivative in c, which the function closes over, is not zero, else 5 c x.
    """
    x = h.array(4.0)

    def make() -> tuple[Any, Any, bool]:
        c = h.array(2.0)
        native = h.trace(way, lambda x: c * x)
        slope = float(h.numpy(h.grad(lambda c: native(x) + 0.0 * c)(c)))
        return c, h.trace(way, lambda x: h.probe(c) * x), abs(slope - 4.0) <= h.tolerance * 4.0

    def plain(made: tuple[Any, Any, bool]) -> None:
        _, traced, _ = made
        h.assert_equal(traced(x), 40.0, "the plain call")

    def differentiated(made: tuple[Any, Any, bool]) -> None:
        c, traced, tracked = made
        want = (24.0, 12.0) if tracked else (40.0, 0.0)
        h.assert_value_and_grad(lambda c: traced(x) + 0.0 * c, (c,), *want)

    in_both_orders(make, plain, differentiated)


@scenario(rule="W6", source=_LEAKED)
def made_inside_a_gradient(h: Checked, way: str) -> None:
    """A module whose weight is differentiated, compiled inside of the gradient, is asked rightly, and so afterwards.

    Expect 7 w x for a module with the weight w, made and compiled inside of the gradient in w, called directly or by
    another compiled function; plain 11 w x.
    """
    x = h.array(4.0)

    def f(w: Any) -> Any:
        return h.trace(way, Module(w))(x)

    def g(w: Any) -> Any:
        traced = h.trace(way, lambda x: 1.0 * Module(w)(x))
        return h.trace(way, lambda x: traced(x) * 1.0)(x)

    w = h.array(2.0)
    for what, fun in (("directly", f), ("by another", g)):
        for _ in range(2):
            h.assert_value_and_grad(fun, (w,), 56.0, 28.0, f"called {what}")
            h.assert_equal(fun(w), 88.0, f"the plain call, {what}")


def squares(x: Any, constant: int) -> tuple[Any, Any]:
    """Return x x twice, at one of the places as a constant."""
    made = x * x, x * x
    stopped = adprotocol.non_differentiable(made[constant])
    return (stopped, made[1]) if constant == 0 else (made[0], stopped)


def asked_product(h: Checked, first: Any, second: Any) -> Any:
    """Return the product of both, 3 times or 5 times the first and 7 times or 11 times the second."""
    return h.probe(first) * h.scale(second, 7.0, 11.0)


# By the place of the constant. Both have the value x x; of 5 c x x 7 or 3 x x 11 c the slope is half of that of x^4.
FACTORS = (35.0, 33.0)


@scenario(
    rule="W9",
    native="grad of {way} of {way}",
    source="JAX: outputs known and unknown to partial evaluation: https://docs.jax.dev/en/latest/autodidax.html",
)
def after_several_results(h: Checked, way: str) -> None:
    """Of two results of a compiled function the constant is not tracked and the other is, in both first orders.

    Expect a compiled function returns x ** 2 twice, once as a constant: in a gradient the product of both at 2 is 5 * 7
    * 16 = 560 or 3 * 11 * 16 = 528, by the place of the constant; 5 * 11 * 16 = 880 plain.
    """
    x = h.array(2.0)
    for constant, factor in enumerate(FACTORS):
        # One that asks inside, too: x in a gradient, else 2 x; and one that does not.
        inner = iter([(lambda x: h.scale(x, 1.0, 2.0), 880.0 * 16.0), (lambda x: x, 880.0)])
        want = 16.0 * factor

        def make(constant: int = constant, inner: Any = inner) -> tuple[Any, Any, float]:
            inside, value = next(inner)
            pair = h.trace(way, lambda x: squares(inside(x), constant))
            return pair, h.trace(way, lambda x: asked_product(h, *pair(x))), value

        def plain(made: tuple[Any, Any, float]) -> None:
            _, outer, value = made
            h.assert_equal(outer(x), value, "the plain call")

        def differentiated(made: tuple[Any, Any, float], want: float = want) -> None:
            pair, outer, _ = made
            h.assert_value_and_grad(outer, (x,), want, want)
            h.assert_value_and_grad(lambda x: asked_product(h, *pair(x)), (x,), want, want, "asked outside")
            passed = h.trace(way, lambda x: pair(x))  # noqa: PLW0108  (a compiler may take a compiled function as it is)
            h.assert_value_and_grad(lambda x: asked_product(h, *passed(x)), (x,), want, want, "passed on by another")

        in_both_orders(make, plain, differentiated)


@scenario(
    "inside-custom-rule-{name}",
    transform="",
    params={
        "grad": {"transforms": "grad", "transform": "grad of custom rule", "varies": True},
        "jvp": {"transforms": "jvp", "transform": "jvp of custom rule", "varies": True},
        "grad-of-jit": {"transforms": "grad of jit", "transform": "grad of jit of custom rule", "level": SHOULD},
    },
)
def inside_custom_rule(h: Checked, transforms: str) -> None:
    """Inside a function with a custom derivative rule nothing is tracked under {transforms}.

    Expect 5 x in the function, as no derivative passes its operations, so 10 at 2, with the derivative 7 of the rule.
    """
    x = h.array(2.0)
    h.require_native(lambda: h.nest(transforms, h.custom_rule(lambda x: x * x, lambda x: 7.0 + 0.0 * x))(x), 7.0)
    f = h.custom_rule(h.probe, lambda x: 7.0 + 0.0 * x)
    # 5 x x has the derivative 5 x + 7 x.
    h.assert_equal(h.nest(transforms, lambda x: f(x) * x)(x), 24.0, "the derivative of f(x) x")
    h.assert_equal(h.nest(transforms, f)(x), 7.0, "the derivative of f")


def _transformed_inside(h: Checked, transform: Callable[[Callable[[Any], Any]], Callable[[Any], Any]]) -> None:
    """Compare the gradient of a function with the derivative 7 by a rule, which asks where it transforms."""
    x = h.array(2.0)

    def ruled(fun: Callable[[Any], Any]) -> Any:
        return h.custom_rule(transform(fun), lambda x: 7.0 + 0.0 * x)

    h.require_native(lambda: h.grad(ruled(lambda x: x * x))(x), 7.0)
    f = ruled(h.probe)
    h.assert_equal(h.grad(lambda x: f(x) * x)(x), 24.0)


@scenario(transform="grad of custom rule", also_needs=("vmap",))
def inside_custom_rule_by_rows(h: Checked) -> None:
    """In rows of a batch inside a function with a derivative rule of its own nothing is tracked.

    Expect 5 x in rows made inside of the function, with the derivative 7 of its rule: that of f(x) x at 2 is 24.
    """
    _transformed_inside(h, lambda fun: lambda x: h.vmap(fun)(x * h.array([1.0, 1.0]))[0])


@scenario(transform="grad of custom rule of {way}")
def inside_custom_rule_compiled(h: Checked, way: str) -> None:
    """In a compiled function that closes over the argument of one with a rule, that argument is not tracked.

    Expect 5 x in a compiled function that the one with the rule makes and calls, with the derivative 7 of the rule:
    that of f(x) x at 2 is 24.
    """
    one = h.array(1.0)
    _transformed_inside(h, lambda fun: lambda x: h.trace(way, lambda y: fun(x) * y)(one))


@scenario(transform="grad of custom rule")
def inside_two_custom_rules(h: Checked) -> None:
    """In a function with a rule that another such function calls, the argument of the outer one is not tracked.

    Expect 5 x ** 2 by the inner function, whose factor is 3 where x is tracked, and the derivative 7 of the outer rule:
    that of the product with x at 2 is 34.
    """
    x = h.array(2.0)

    def ruled(digit: Any) -> Any:
        def outer(x: Any) -> Any:
            return h.custom_rule(lambda y: (5.0 - 2.0 * digit(x)) * y, lambda y: 1.0 + 0.0 * y)(x * x)

        return h.custom_rule(outer, lambda x: 7.0 + 0.0 * x)

    f = ruled(h.digit)
    try:
        found = h.grad(lambda x: f(x) * x)(x)
    except Exception:  # a digit that stays open closes over x
        h.require_native(lambda: h.grad(ruled(lambda x: 0.0 * x))(x), 7.0)
        raise
    h.assert_equal(found, 34.0)


@scenario(
    transform="grad of custom rule",
    varies=True,
    source="PyTorch: a custom function cannot tell whether backward will run: "
    "https://github.com/pytorch/pytorch/issues/56370",
)
def after_custom_rule(h: Checked) -> None:
    """The result of a function with a custom derivative rule is tracked if its argument is.

    Expect 3 x ** 2, times 11 c ** 2 for c = 1, at 3: 297, gradient 198.
    """
    _after_rule(h, h.custom_rule(lambda x: x * x, lambda x: 2.0 * x))


@scenario(
    transform="grad of custom rule",
    also_needs=("stop_gradient",),
    source="Y. Bengio, N. Leonard, A. Courville, on gradients through stochastic neurons: https://arxiv.org/abs/1308.3432",
)
def after_straight_through_rule(h: Checked) -> None:
    """The result is tracked too if the function stops derivatives, which its rule has.

    Expect 3 x ** 2, times 11 c ** 2 for c = 1, at 3: 297, gradient 198, where the rule alone has a derivative.
    """
    square = h.custom_rule(lambda x: h.stop_gradient(x * x), lambda x: 2.0 * x)
    h.require_native(lambda: h.grad(square)(h.array(3.0)), 6.0)
    _after_rule(h, square)


def _after_rule(h: Checked, square: Any) -> None:
    c = h.array(1.0)
    h.assert_value_and_grad(lambda x: h.probe(square(x)) * h.scale(square(c), 7.0, 11.0), [h.array(3.0)], 297.0, 198.0)
