"""Compiled objects that close over an array, a parameter or a module: called plain, differentiated, plain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenarios.query import natively
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

_FROZEN = "TensorFlow: tf.function captures tensors and variables: https://www.tensorflow.org/guide/function"
_LEAKED = "JAX: a jitted function that closes over what is differentiated: https://github.com/jax-ml/jax/issues/1945"
_RECOMPILED = "PyTorch: what torch.compile guards on: https://docs.pytorch.org/docs/stable/torch.compiler_faq.html"


class Module:
    """Hold a weight, as models do; no framework knows the class."""

    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, x: Any) -> Any:
        """Return 7 w x where the weight is differentiated, else 11 w x."""
        answer = adprotocol.within_gradient(self.weight)
        return adprotocol.cond(answer, lambda: 7.0 * self.weight * x, lambda: 11.0 * self.weight * x)


def orders(plain: Callable[[], None], differentiated: Callable[[], None]) -> tuple[list[Callable[[], None]], ...]:
    """Return both first orders: plain, differentiated, plain, and the other way around."""
    return [plain, differentiated, plain], [differentiated, plain, differentiated]


def _closes_over(h: Checked, way: str, make: Callable[[Any], Callable[[Any], Any]]) -> None:
    """Compile layer(x) times what `make` returns for a constant 3: 33 x c y in the gradient in x, else 55 x c y."""
    x, y = h.array(2.0), h.array(4.0)
    for first in (0, 1):
        constant = make(h.array(3.0))
        traced = trace(h, way, lambda x, y, constant=constant: h.layer(x) * constant(y))

        def plain(traced: Any = traced) -> None:
            h.equal(traced(x, y), 1320.0, "the plain call")

        def differentiated(traced: Any = traced) -> None:
            h.value_and_gradient(traced, (x, y), 792.0, 396.0)
            h.value_and_gradient(lambda y: traced(x, y), (y,), 1320.0, 330.0, "in the other argument")

        for call in orders(plain, differentiated)[first]:
            call()


@staged(
    "within_gradient/closes-over-array",
    rule="W6",
    transform="grad of {way}",
    expects="3 x times 11 c y with c = 3 closed over, at 2, 4: 792, gradient 396 in x; 5 x 11 c y in y and plain: 1320",
    source=_FROZEN,
)
def closes_over_array(h: Checked, way: str) -> None:
    """A compiled function keeps no answer about an array that it closes over, in whichever order it is called."""
    _closes_over(h, way, lambda c: lambda y: h.scaled(c, 7.0, 11.0) * y)


@staged(
    "within_gradient/closes-over-module",
    rule="W6",
    transform="grad of {way}",
    expects="as for an array, with the array as weight of a module",
    source=_FROZEN,
)
def closes_over_module(h: Checked, way: str) -> None:
    """The same for an object that holds the array."""
    _closes_over(h, way, Module)


@staged(
    "within_gradient/closes-over-the-argument",
    rule="W6",
    transform="grad of {way}",
    expects="3 c x where the system's own derivative in c, which the function closes over, is not zero, else 5 c x",
    source=_LEAKED,
)
def closes_over_the_argument(h: Checked, way: str) -> None:
    """A compiled function that closes over the very array that is differentiated answers as the derivative does."""
    x = h.array(4.0)
    for first in (0, 1):
        c = h.array(2.0)
        native, traced = trace(h, way, lambda x, c=c: c * x), trace(h, way, lambda x, c=c: h.layer(c) * x)
        slope = float(h.numpy(h.grad(lambda c, native=native: native(x) + 0.0 * c)(c)))
        tracked = abs(slope - 4.0) <= h.tolerance * 4.0

        def plain(traced: Any = traced) -> None:
            h.equal(traced(x), 40.0, "the plain call")

        want = (24.0, 12.0) if tracked else (40.0, 0.0)

        def differentiated(traced: Any = traced, c: Any = c, want: Any = want) -> None:
            h.value_and_gradient(lambda c: traced(x) + 0.0 * c, (c,), *want)

        for call in orders(plain, differentiated)[first]:
            call()


@staged(
    "within_gradient/made-inside-a-gradient",
    rule="W6",
    transform="grad of {way}",
    expects="7 w x for a module with the weight w, made and compiled inside of the gradient in w; plain 11 w x",
    source=_LEAKED,
)
def made_inside_a_gradient(h: Checked, way: str) -> None:
    """A module whose weight is differentiated, compiled inside of the gradient, is asked rightly, and so afterwards."""
    x = h.array(4.0)

    def f(w: Any) -> Any:
        return trace(h, way, Module(w))(x)

    w = h.array(2.0)
    for _ in range(2):
        h.value_and_gradient(f, (w,), 56.0, 28.0)
        h.equal(f(w), 88.0, "the plain call")


@staged(
    "non_differentiable/closes-over-constant",
    rule="N1",
    transform="grad of {way}",
    expects="5 c x with c = constant(x x) from a compiled function: 40 at 2, gradient 20; c x: 8, gradient 4",
    source=_RECOMPILED,
)
def closes_over_constant(h: Checked, way: str) -> None:
    """What a compiled function returns as a constant is one to the functions around it, in both first orders."""
    x = h.array(2.0)
    for first in (0, 1):
        constant = trace(h, way, lambda x: adprotocol.non_differentiable(x * x))
        outer = trace(h, way, lambda x, constant=constant: h.scaled(constant(x), 3.0, 5.0) * x)

        def plain(outer: Any = outer) -> None:
            h.equal(outer(x), 40.0, "the plain call")

        def differentiated(outer: Any = outer, constant: Any = constant) -> None:
            h.value_and_gradient(outer, (x,), 40.0, 20.0, "compiled in a compiled function")
            h.value_and_gradient(lambda x: constant(x) * x, (x,), 8.0, 4.0, "compiled alone")
            h.value_and_gradient(lambda x: h.scaled(constant(x), 3.0, 5.0) * x, (x,), 40.0, 20.0, "asked outside")

        for call in orders(plain, differentiated)[first]:
            call()


@staged(
    "non_differentiable/decorated-around",
    rule="N3",
    transform="grad of {way}",
    expects="c(x) x with c a compiled constant function, or the constant of a compiled one: 8 at 2, gradient 4",
    source=_RECOMPILED,
)
def decorated_around(h: Checked, way: str) -> None:
    """The constant of a compiled function, and a constant function that is compiled, have no derivative."""
    x = h.array(2.0)
    for name, f in (
        ("the constant of a compiled function", adprotocol.non_differentiable(trace(h, way, lambda x: x * x))),
        ("a constant function, compiled", trace(h, way, adprotocol.non_differentiable(lambda x: x * x))),
    ):
        h.equal(f(x) * x, 8.0, f"{name}, called plain")
        h.value_and_gradient(lambda x, f=f: f(x) * x, (x,), 8.0, 4.0, name)
        h.value_and_gradient(trace(h, way, lambda x, f=f: f(x) * x), (x,), 8.0, 4.0, f"{name}, inside of another")
        h.equal(f(x) * x, 8.0, f"{name}, called plain again")


@staged(
    "value_and_grad/made-inside",
    rule="T9",
    transform="grad of {way}",
    expects="x y with x a leaf that a function compiled inside closes over, at 2, 4: 8, gradient 4; or an error",
    source=_LEAKED,
)
def made_inside(h: Checked, way: str) -> None:
    """A function compiled inside of our gradient may close over a leaf: its derivative is right, or refused."""
    x, y = h.array(2.0), h.array(4.0)
    try:
        value, gradient = adprotocol.value_and_grad(lambda m: trace(h, way, lambda y: m["x"] * y)(y))({"x": x})
    except Exception:
        natively(h, lambda: h.grad(lambda x: trace(h, way, lambda y: x * y)(y))(x), 4.0)
        raise
    h.equal(value, 8.0, "the value")
    h.equal(gradient["x"], 4.0, "the gradient")
