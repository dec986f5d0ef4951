"""Compiled objects that close over an array or a module: called plain, differentiated, plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults
from adprotocol.conformance.scenarios.orders import in_both_orders

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_FROZEN = "TensorFlow: tf.function captures tensors and variables: https://www.tensorflow.org/guide/function"
_LEAKED = "JAX: a jitted function that closes over what is differentiated: https://github.com/jax-ml/jax/issues/1945"

scenario: Decorator = defaults("within_gradient", rule="W6", transform="grad of {way}")


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


@scenario(source=_FROZEN)
def closes_over_array(h: Checked, way: str) -> None:
    """A compiled function keeps no answer about an array that it closes over, in whichever order it is called.

    In the gradient in x the closed-over c = 3 is a constant, so 3 x times 11 c y: 792 at 2, 4, gradient 396; 5 x times
    11 c y = 1320 plain and in y.
    """
    _closes_over(h, way, lambda c: lambda y: h.scale(c, 7.0, 11.0) * y)


@scenario(source=_FROZEN)
def closes_over_module(h: Checked, way: str) -> None:
    """The same for an object that holds the array.

    Expect as for an array, with the array as weight of a module.
    """
    _closes_over(h, way, Module)


@scenario(source=_LEAKED)
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


@scenario(source=_LEAKED)
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
