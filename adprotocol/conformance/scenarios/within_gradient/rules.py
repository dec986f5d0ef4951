"""The query where a function has a derivative rule of its own: inside of it, and of its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.conformance.scenario import SHOULD, defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_FORWARD = "PyTorch: the forward of a Function tracks nothing: https://github.com/pytorch/pytorch/issues/55438"

scenario: Decorator = defaults("within_gradient", rule="W1")


@scenario(
    "inside-custom-rule-{name}",
    source=_FORWARD,
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


@scenario(transform="grad of custom rule", also_needs=("vmap",), source=_FORWARD)
def inside_custom_rule_by_rows(h: Checked) -> None:
    """In rows of a batch inside a function with a derivative rule of its own nothing is tracked.

    Expect 5 x in rows made inside of the function, with the derivative 7 of its rule: that of f(x) x at 2 is 24.
    """
    _transformed_inside(h, lambda fun: lambda x: h.vmap(fun)(x * h.array([1.0, 1.0]))[0])


@scenario(transform="grad of custom rule of {way}", source=_FORWARD)
def inside_custom_rule_compiled(h: Checked, way: str) -> None:
    """In a compiled function that closes over the argument of one with a rule, that argument is not tracked.

    Expect 5 x in a compiled function that the one with the rule makes and calls, with the derivative 7 of the rule:
    that of f(x) x at 2 is 24.
    """
    one = h.array(1.0)
    _transformed_inside(h, lambda fun: lambda x: h.trace(way, lambda y: fun(x) * y)(one))


@scenario(transform="grad of custom rule", source=_FORWARD)
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
