"""`cond(within_gradient(x), train, evaluate, x)` (C7): right whichever transformations surround it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_FLUX = "Flux, layers that train inside a gradient only: https://github.com/FluxML/Flux.jl/issues/643"
_PENNYLANE = (
    "PennyLane, a query that is True under jit: "
    "https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html"
)
_PERTURBATION = "J. M. Siskind, B. A. Pearlmutter: Perturbation confusion and referential transparency, IFL 2005"
_STALE = (
    "ReverseDiff, a tape that keeps the branch it was made with: https://github.com/tpapp/LogDensityProblems.jl/pull/85"
)
_BREAK = "ForwardDiff, a product that stops at zero: https://github.com/JuliaDiff/ForwardDiff.jl/issues/480"
_PROD = "Enzyme, shortcuts at zero: https://github.com/EnzymeAD/Enzyme.jl/issues/114"


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
    "cond/product-with-a-break",
    rule="C7",
    transform="grad",
    expects="the product of (2, 0, 3, 4), which stops at zero where nothing is differentiated: the gradient is "
    "(0, 24, 0, 0), not (0, 2, 0, 0)",
    source=_BREAK,
    varies=True,
)
def product_with_a_break(h: Checked) -> None:
    """The shortcut of a product at zero is taken only outside gradients: 24, not 2."""

    def product(v: Any) -> Any:
        return adprotocol.cond(h.asks(v), _multiply, _stop_at_zero, v)

    v = h.array([2.0, 0.0, 3.0, 4.0])
    h.equal(product(v), 0.0, "the plain product")
    h.value_and_gradient(product, (v,), 0.0, [0.0, 24.0, 0.0, 0.0])
    h.equal(h.grad(_stop_at_zero)(v), [0.0, 2.0, 0.0, 0.0], "the gradient of the branch that stops at zero")


@staged(
    "cond/product-with-a-break",
    rule="C7",
    transform="grad of {way}",
    expects="the product under {way}, traced plain at (1, 2, 3, 4): 24; at (2, 0, 3, 4) the gradient (0, 24, 0, 0)",
    source=_PROD,
)
def product_with_a_break_under_jit(h: Checked, way: str) -> None:
    """A product traced plain, without a zero, has the right derivative at a zero."""
    jitted = trace(h, way, lambda v: adprotocol.cond(h.asks(v), _multiply, _stop_at_zero, v))
    h.equal(jitted(h.array([1.0, 2.0, 3.0, 4.0])), 24.0, "the plain product")
    h.equal(jitted(h.array([2.0, 0.0, 3.0, 4.0])), 0.0, "the plain product with a zero")
    h.value_and_gradient(jitted, (h.array([2.0, 0.0, 3.0, 4.0]),), 0.0, [0.0, 24.0, 0.0, 0.0])


@scenario(
    "cond/layers-in-a-row",
    rule="C7",
    transform="grad",
    expects="7 or 11 times w layer(x), with layer(x) 3 x or 5 x, at x = 2, w = 7: 770 plain; in x 7 7 3 = 147; in w "
    "the first layer evaluates: 7 10 = 70",
    source=_FLUX,
)
def layers_in_a_row(h: Checked) -> None:
    """Each layer trains if its input is differentiated: in front of a parameter it evaluates."""
    x, w = h.array(2.0), h.array(7.0)

    def f(x: Any, w: Any) -> Any:
        return h.scaled(w * h.layer(x), 7.0, 11.0)

    h.equal(f(x, w), 770.0, "the plain value")
    h.value_and_gradient(f, (x, w), 294.0, 147.0, "in x")
    h.value_and_gradient(lambda w: f(x, w), (w,), 490.0, 70.0, "in w")


@scenario(
    "cond/layer-asks-parameters",
    rule="C7",
    transform="grad",
    expects='cond(within_gradient({"w": w, "b": 1}, x), w x, 5 w x): 70 plain; 14 and a gradient, in w 2 and in x 7',
    source=_PENNYLANE,
    varies=True,
)
def layer_asks_parameters(h: Checked) -> None:
    """The predicate may be the answer for a structure and more values; any tracked leaf makes it true."""

    def f(w: Any, x: Any) -> Any:
        model = {"w": w, "b": 1}
        return adprotocol.cond(h.asks(model, x), lambda m, x: m["w"] * x, lambda m, x: 5.0 * m["w"] * x, model, x)

    w, x = h.array(7.0), h.array(2.0)
    h.equal(f(w, x), 70.0, "the plain value")
    h.value_and_gradient(f, (w, x), 14.0, 2.0, "in w")
    h.value_and_gradient(lambda x: f(w, x), (x,), 14.0, 7.0, "in x")


@staged(
    "cond/layer-traced-once",
    rule="C7",
    transform="grad of {way}",
    expects="a layer of 3 x in a gradient, else 5 x, under {way}: 10 plain, 6 and the gradient 3, 10, 6 and 3 again",
    source=_STALE,
)
def layer_traced_once(h: Checked, way: str) -> None:
    """A traced layer evaluates plain and trains in a gradient, in any order."""
    jitted, x = trace(h, way, h.layer), h.array(2.0)
    for _ in range(2):
        h.equal(jitted(x), 10.0, "the plain value")
        h.value_and_gradient(jitted, (x,), 6.0, 3.0)


@staged(
    "cond/layer-differentiated-first",
    rule="C7",
    transform="{way} of grad",
    native="{way} of grad of {way}",
    expects="a layer of 3 x in a gradient, else 5 x, traced in a gradient first: 3, then plain 10, and traced again",
    source=_STALE,
)
def layer_differentiated_first(h: Checked, way: str) -> None:
    """A layer traced in a gradient evaluates in the plain call that follows."""
    jitted, x = trace(h, way, h.layer), h.array(2.0)
    h.equal(h.grad(jitted)(x), 3.0, "the gradient, first")
    h.equal(jitted(x), 10.0, "the plain value, then")
    h.equal(trace(h, way, h.grad(jitted))(x), 3.0, "the jitted gradient")
    h.equal(trace(h, way, jitted)(x), 10.0, "the plain value, jitted twice")


@staged(
    "cond/layer-inside-a-branch",
    rule="C7",
    transform="grad of {way}",
    expects="a layer of x where x > 0, else 7 x, under {way}: 10 plain and the gradient 3 at 2; -14 and 7 at -2",
    source=_PENNYLANE,
)
def layer_inside_a_branch(h: Checked, way: str) -> None:
    """A layer asks inside a staged branch of another cond, too."""
    jitted = trace(h, way, lambda x: adprotocol.cond(x > 0.0, h.layer, lambda x: 7.0 * x, x))
    h.equal(jitted(h.array(2.0)), 10.0, "the plain value at 2")
    h.value_and_gradient(jitted, (h.array(2.0),), 6.0, 3.0, "at 2")
    h.equal(jitted(h.array(-2.0)), -14.0, "the plain value at -2")
    h.value_and_gradient(jitted, (h.array(-2.0),), -14.0, 7.0, "at -2")


@scenario(
    "cond/layer-of-rows",
    rule="C7",
    transform="grad of vmap",
    expects="rows of a layer, 3 x x in a gradient where x > 0, else 5 x, at (2, -2): (10, -10) plain; 12 - 10, the "
    "gradient (12, 5)",
    source="PyTorch: requires_grad is False inside vmap: https://github.com/pytorch/pytorch/issues/134784",
)
def layer_of_rows(h: Checked) -> None:
    """A layer asks inside a batched branch, where rows go different ways."""

    def layer(x: Any) -> Any:
        return adprotocol.cond(h.asks(x), lambda x: 3.0 * x * x, lambda x: 5.0 * x, x)

    def row(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, layer, lambda x: 5.0 * x, x)

    def f(v: Any) -> Any:
        rows = h.vmap(row)(v)
        return rows[0] + rows[1]

    v = h.array([2.0, -2.0])
    h.equal(h.vmap(row)(v), [10.0, -10.0], "the plain rows")
    h.value_and_gradient(f, (v,), 2.0, [12.0, 5.0])


@scenario(
    "cond/layer-of-outer-variable",
    rule="C7",
    transform="grad of grad",
    expects="d/dy of layer(x) 11 k y, k = 1, is 3 x 11 = 66 at x = 2 in a gradient in x, which is 33; 5 x 11 = 110 "
    "without one",
    source=_PERTURBATION,
)
def layer_of_outer_variable(h: Checked) -> None:
    """Inside a gradient in y a layer of x trains only if a gradient in x is around."""
    k = h.array(1.0)

    def inner(x: Any) -> Any:
        return h.grad(lambda y: h.layer(x) * h.scaled(k, 7.0, 11.0) * y)(h.array(3.0))

    h.equal(inner(h.array(2.0)), 110.0, "the inner gradient without the outer")
    h.value_and_gradient(inner, (h.array(2.0),), 66.0, 33.0)


@staged(
    "cond/layer-asked-outside",
    rule="C7",
    transform="grad of {way}",
    expects="the answer for x is closed over by {way} and chooses 3 y or 5 y there: 10 plain, 6 and the gradient 3",
    source=_PENNYLANE,
)
def layer_asked_outside(h: Checked, way: str) -> None:
    """An answer obtained outside chooses inside a jitted function."""

    def f(x: Any) -> Any:
        answer = h.asks(x)
        return trace(h, way, lambda y: adprotocol.cond(answer, lambda y: 3.0 * y, lambda y: 5.0 * y, y))(x)

    x = h.array(2.0)
    h.equal(f(x), 10.0, "the plain value")
    h.value_and_gradient(f, (x,), 6.0, 3.0)


@scenario(
    "cond/layer-behind-a-stop",
    rule="C7",
    transform="grad",
    expects="layer(constant(x)) x, a layer 3 x in a gradient, else 5 x, at 2: 20, plain and in the gradient 10",
    source=_FLUX,
)
def layer_behind_a_stop(h: Checked) -> None:
    """A layer that is given a constant evaluates, also inside a gradient."""

    def f(x: Any) -> Any:
        return h.layer(adprotocol.non_differentiable(x)) * x

    x = h.array(2.0)
    h.equal(f(x), 20.0, "the plain value")
    h.value_and_gradient(f, (x,), 20.0, 10.0)


@scenario(
    "cond/layer-in-forward-mode",
    rule="C7",
    transform="jvp of jit",
    expects="a layer of 3 x in a derivative, else 5 x, under jit at 2: 10 plain; 6 with the tangent 3",
    source="PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
)
def layer_in_forward_mode(h: Checked) -> None:
    """A traced layer trains in forward mode, too."""
    jitted, x = h.jit(h.layer), h.array(2.0)
    h.equal(jitted(x), 10.0, "the plain value")
    value, slope = h.jvp(jitted, x, h.array(1.0))
    h.equal(value, 6.0, "the value")
    h.equal(slope, 3.0, "the tangent")
    h.equal(jitted(x), 10.0, "the plain value again")
