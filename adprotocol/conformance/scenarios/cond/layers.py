"""`cond(within_gradient(x), train, evaluate, x)`: right whichever transformations surround it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_FLUX = "Flux, layers that train inside a gradient only: https://github.com/FluxML/Flux.jl/issues/643"
_PENNYLANE = (
    "PennyLane, a query that is True under jit: "
    "https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html"
)
_STALE = (
    "ReverseDiff, a tape that keeps the branch it was made with: https://github.com/tpapp/LogDensityProblems.jl/pull/85"
)

scenario: Decorator = defaults("cond", rule="C7", transform="grad")


def _multiply(v: Any) -> Any:
    """Return the product of the elements, all of them."""
    return v[0] * v[1] * v[2] * v[3]


def _stop_at_zero(v: Any) -> Any:
    """Return the product of the elements up to the first zero, as a loop with a break would."""
    product = v[0]
    for i in (1, 2, 3):
        product = adprotocol.cond(product == 0.0, lambda p, _: p, lambda p, a: p * a, product, v[i])
    return product


@scenario(
    varies=True,
    source="ForwardDiff, a product that stops at zero: https://github.com/JuliaDiff/ForwardDiff.jl/issues/480",
)
def product_with_a_break(h: Checked) -> None:
    """The shortcut of a product at zero is taken only outside gradients: 24, not 2.

    Expect the product of (2, 0, 3, 4), which stops at zero where nothing is differentiated: the gradient is (0, 24, 0,
    0), not (0, 2, 0, 0).
    """

    def product(v: Any) -> Any:
        return adprotocol.cond(h.query(v), _multiply, _stop_at_zero, v)

    v = h.array([2.0, 0.0, 3.0, 4.0])
    h.assert_equal(product(v), 0.0, "the plain product")
    h.assert_value_and_grad(product, (v,), 0.0, [0.0, 24.0, 0.0, 0.0])
    h.assert_equal(h.grad(_stop_at_zero)(v), [0.0, 2.0, 0.0, 0.0], "the gradient of the branch that stops at zero")


@scenario(
    "product-with-a-break",
    transform="grad of {way}",
    source="Enzyme, shortcuts at zero: https://github.com/EnzymeAD/Enzyme.jl/issues/114",
)
def product_with_a_break_traced(h: Checked, way: str) -> None:
    """A product traced plain, without a zero, has the right derivative at a zero.

    Expect the product under {way}, traced plain at (1, 2, 3, 4): 24; at (2, 0, 3, 4) the gradient (0, 24, 0, 0).
    """
    jitted = h.trace(way, lambda v: adprotocol.cond(h.query(v), _multiply, _stop_at_zero, v))
    h.assert_equal(jitted(h.array([1.0, 2.0, 3.0, 4.0])), 24.0, "the plain product")
    h.assert_equal(jitted(h.array([2.0, 0.0, 3.0, 4.0])), 0.0, "the plain product with a zero")
    h.assert_value_and_grad(jitted, (h.array([2.0, 0.0, 3.0, 4.0]),), 0.0, [0.0, 24.0, 0.0, 0.0])


@scenario(source=_FLUX)
def layers_in_a_row(h: Checked) -> None:
    """Each layer trains if its input is differentiated: in front of a parameter it evaluates.

    The second layer, 7 or 11 times its input, follows w times the layer of x, at x = 2, w = 7: 770 plain; both train in
    the gradient in x, 147; the second alone in that in w, 70.
    """
    x, w = h.array(2.0), h.array(7.0)

    def f(x: Any, w: Any) -> Any:
        return h.scale(w * h.probe(x), 7.0, 11.0)

    h.assert_equal(f(x, w), 770.0, "the plain value")
    h.assert_value_and_grad(f, (x, w), 294.0, 147.0, "in x")
    h.assert_value_and_grad(lambda w: f(x, w), (w,), 490.0, 70.0, "in w")


@scenario(varies=True, source=_PENNYLANE)
def layer_asks_parameters(h: Checked) -> None:
    """The predicate may be the answer for a structure and more values; any tracked leaf makes it true.

    Expect asked about a dict with w, and x: w * x where one of them is tracked, else 5 w * x; 70 plain at 7, 2, and 14
    with the gradients 2 in w and 7 in x.
    """

    def f(w: Any, x: Any) -> Any:
        model = {"w": w, "b": 1}
        return adprotocol.cond(h.query(model, x), lambda m, x: m["w"] * x, lambda m, x: 5.0 * m["w"] * x, model, x)

    w, x = h.array(7.0), h.array(2.0)
    h.assert_equal(f(w, x), 70.0, "the plain value")
    h.assert_value_and_grad(f, (w, x), 14.0, 2.0, "in w")
    h.assert_value_and_grad(lambda x: f(w, x), (x,), 14.0, 7.0, "in x")


@scenario(transform="grad of {way}", source=_STALE)
def layer_traced_once(h: Checked, way: str) -> None:
    """A traced layer evaluates plain and trains in a gradient, in any order.

    Expect a layer of 3 x in a gradient, else 5 x, under {way}: 10 plain, 6 and the gradient 3, 10, 6 and 3 again.
    """
    jitted, x = h.trace(way, h.probe), h.array(2.0)
    for _ in range(2):
        h.assert_equal(jitted(x), 10.0, "the plain value")
        h.assert_value_and_grad(jitted, (x,), 6.0, 3.0)


@scenario(transform="{way} of grad", native="{way} of grad of {way}", source=_STALE)
def layer_differentiated_first(h: Checked, way: str) -> None:
    """A layer traced in a gradient evaluates in the plain call that follows.

    Expect a layer of 3 x in a gradient, else 5 x, traced in a gradient first: 3, then plain 10, and traced again.
    """
    jitted, x = h.trace(way, h.probe), h.array(2.0)
    h.assert_equal(h.grad(jitted)(x), 3.0, "the gradient, first")
    h.assert_equal(jitted(x), 10.0, "the plain value, then")
    h.assert_equal(h.trace(way, h.grad(jitted))(x), 3.0, "the jitted gradient")
    h.assert_equal(h.trace(way, jitted)(x), 10.0, "the plain value, jitted twice")


@scenario(transform="grad of {way}", source=_PENNYLANE)
def layer_inside_a_branch(h: Checked, way: str) -> None:
    """A layer asks inside a staged branch of another cond, too.

    Expect a layer of x where x > 0, else 7 x, under {way}: 10 plain and the gradient 3 at 2; -14 and 7 at -2; asked
    about where it is called, and where it is called by what is called: 9 x times 21 x in a gradient.
    """
    jitted = h.trace(way, lambda x: adprotocol.cond(x > 0.0, h.probe, lambda x: 7.0 * x, x))
    h.assert_equal(jitted(h.array(2.0)), 10.0, "the plain value at 2")
    h.assert_value_and_grad(jitted, (h.array(2.0),), 6.0, 3.0, "at 2")
    h.assert_equal(jitted(h.array(-2.0)), -14.0, "the plain value at -2")
    h.assert_value_and_grad(jitted, (h.array(-2.0),), -14.0, 7.0, "at -2")
    caller = h.trace(way, lambda x: 1.0 * jitted(x))
    asking = h.trace(way, lambda x: h.probe(jitted(x)) * h.scale(caller(x), 7.0, 11.0))
    h.assert_value_and_grad(asking, (h.array(2.0),), 756.0, 756.0, "asked where it is called")


@scenario(
    transform="grad of vmap",
    source="PyTorch: requires_grad is False inside vmap: https://github.com/pytorch/pytorch/issues/134784",
)
def layer_of_rows(h: Checked) -> None:
    """A layer asks inside a batched branch, where rows go different ways.

    Expect rows of a layer where x > 0, which is 3 x ** 2 in a gradient, else of 5 x, at (2, -2): (10, -10) plain; in a
    gradient they add up to 2, with the gradient (12, 5).
    """

    def layer(x: Any) -> Any:
        return adprotocol.cond(h.query(x), lambda x: 3.0 * x * x, lambda x: 5.0 * x, x)

    def row(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, layer, lambda x: 5.0 * x, x)

    def f(v: Any) -> Any:
        return h.sum_of_rows(row, v)

    v = h.array([2.0, -2.0])
    h.assert_equal(h.vmap(row)(v), [10.0, -10.0], "the plain rows")
    h.assert_value_and_grad(f, (v,), 2.0, [12.0, 5.0])


@scenario(
    transform="grad of grad",
    source="J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005",
)
def layer_of_outer_variable(h: Checked) -> None:
    """Inside a gradient in y a layer of x trains only if a gradient in x is around.

    The inner gradient is 11 times the layer of x: 3 x in a gradient in x, so 66 at 2, with the gradient 33; 5 x without
    one, so 110.
    """
    k = h.array(1.0)

    def inner(x: Any) -> Any:
        return h.grad(lambda y: h.probe(x) * h.scale(k, 7.0, 11.0) * y)(h.array(3.0))

    h.assert_equal(inner(h.array(2.0)), 110.0, "the inner gradient without the outer")
    h.assert_value_and_grad(inner, (h.array(2.0),), 66.0, 33.0)


@scenario(transform="grad of {way}", source=_PENNYLANE)
def layer_asked_outside(h: Checked, way: str) -> None:
    """An answer obtained outside chooses inside a jitted function.

    The answer for x is closed over by {way} and chooses 3 y or 5 y there: 10 plain, 6 and the gradient 3.
    """

    def f(x: Any) -> Any:
        answer = h.query(x)
        return h.trace(way, lambda y: adprotocol.cond(answer, lambda y: 3.0 * y, lambda y: 5.0 * y, y))(x)

    x = h.array(2.0)
    h.assert_equal(f(x), 10.0, "the plain value")
    h.assert_value_and_grad(f, (x,), 6.0, 3.0)


@scenario(source=_FLUX)
def layer_behind_a_stop(h: Checked) -> None:
    """A layer that is given a constant evaluates, also inside a gradient.

    Expect layer(constant(x)) x, a layer 3 x in a gradient, else 5 x, at 2: 20, plain and in the gradient 10.
    """

    def f(x: Any) -> Any:
        return h.probe(adprotocol.non_differentiable(x)) * x

    x = h.array(2.0)
    h.assert_equal(f(x), 20.0, "the plain value")
    h.assert_value_and_grad(f, (x,), 20.0, 10.0)


@scenario(
    transform="jvp of jit",
    source="PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
)
def layer_in_forward_mode(h: Checked) -> None:
    """A traced layer trains in forward mode, too.

    Expect a layer of 3 x in a derivative, else 5 x, under jit at 2: 10 plain; 6 with the tangent 3.
    """
    jitted, x = h.jit(h.probe), h.array(2.0)
    h.assert_equal(jitted(x), 10.0, "the plain value")
    h.assert_value_and_tangent(jitted, x, h.array(1.0), 6.0, 3.0)
    h.assert_equal(jitted(x), 10.0, "the plain value again")
