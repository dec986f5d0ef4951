"""Parameters that a function reads and does not take: variables that a tape watches, leaves of a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.branching_closures import FAR
from adprotocol.conformance.scenarios.closing_over import Module, orders
from adprotocol.conformance.scenarios.staged import staged, trace
from adprotocol.errors import GradientPreventedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked

NEEDS = ("parameter", "parameter_grad")

_WATCHED = "TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff"
_LEAVES = "PyTorch: leaves and their flags: https://docs.pytorch.org/docs/stable/notes/autograd.html"
_STOPPED = "TensorFlow: stop_gradient reads a variable: https://www.tensorflow.org/api_docs/python/tf/stop_gradient"


@scenario(
    "within_gradient/parameter-that-is-read",
    rule="W1",
    needs=NEEDS,
    expects="3 p c times 11 q, of which q has its flag off and c is an array: 3 11 p c q, gradient 3 11 c q in p",
    source=_WATCHED,
)
def parameter_that_is_read(h: Checked) -> None:
    """In its gradient a parameter is tracked, and one whose flag is off and an array are not."""
    p, q, c = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False), h.array(4.0)

    def f() -> Any:
        return h.layer(p) * h.scaled(q, 7.0, 11.0) * h.scaled(c, 13.0, 17.0)

    values: list[Any] = []

    def keeps() -> Any:
        value = f()
        values.append(adprotocol.non_differentiable(value))
        return value

    h.equal(h.parameter_grad(keeps, p), 6732.0, "the gradient")
    h.equal(values[0], 13464.0, "the value under the gradient")


@scenario(
    "within_gradient/parameter-and-result",
    rule="W3",
    needs=NEEDS,
    expects="True for p, 2 p, a dict with p and a module's weight, False for the constant of p: the digits 1 1 1 1 0",
    source=_LEAVES,
)
def parameter_and_result(h: Checked) -> None:
    """A parameter, what is computed from it, and a container with it are tracked; its constant is not."""
    p, c = h.parameter(2.0, trains=True), h.array(4.0)

    def digit(*values: Any) -> Any:
        return adprotocol.cond(h.asks(*values), lambda: 1.0, lambda: 0.0)

    def f() -> Any:
        asked = (p, 2.0 * p, {"p": p, "c": c}, Module(p).weight, adprotocol.non_differentiable(p))
        digits = [digit(value) for value in asked]
        return sum(10.0**i * found for i, found in enumerate(reversed(digits))) * p

    h.equal(h.parameter_grad(f, p), 11110.0, "the gradient, whose digits are the answers")


@staged(
    "within_gradient/closes-over-parameter",
    rule="W6",
    transform="{way}",
    native="grad of {way}",
    needs=NEEDS,
    expects="3 p c under the gradient in p: the gradient 3 c; plain and under that of c what the eager function gives",
    source=_WATCHED,
)
def closes_over_parameter(h: Checked, way: str) -> None:
    """A compiled function that reads a parameter answers as it does eagerly, in both first orders."""
    c = h.array(4.0)

    def function(p: Any) -> Callable[[Any], Any]:
        return lambda x: h.layer(p) * x

    for make, factor in ((function, 3.0), (Module, 7.0)):
        for first in (0, 1):
            p = h.parameter(2.0, trains=True)
            eager = make(p)
            traced = trace(h, way, eager)
            want = h.numpy(adprotocol.non_differentiable(eager(c)))

            def plain(traced: Any = traced, want: Any = want) -> None:
                h.equal(adprotocol.non_differentiable(traced(c)), want, "the plain call")

            def differentiated(traced: Any = traced, p: Any = p, factor: float = factor) -> None:
                h.equal(h.parameter_grad(lambda: traced(c), p), 4.0 * factor, "the gradient")

            for call in orders(plain, differentiated)[first]:
                call()


@staged(
    "within_gradient/closes-over-frozen-parameter",
    rule="W6",
    transform="{way}",
    native="grad of {way}",
    needs=NEEDS,
    expects="3 p times 11 q, of which q has its flag off: the gradient 33 q in p, twice",
    source=_LEAVES,
)
def closes_over_frozen_parameter(h: Checked, way: str) -> None:
    """A compiled function tells a parameter whose flag is on from one whose flag is off."""
    p, q = h.parameter(2.0, trains=True), h.parameter(3.0, trains=False)
    traced = trace(h, way, lambda c: h.layer(p) * h.scaled(q, 7.0, 11.0) * c)
    one = h.array(1.0)
    for _ in range(2):
        h.equal(h.parameter_grad(lambda: traced(one), p), 99.0, "the gradient")


@scenario(
    "non_differentiable/parameter",
    rule="N1",
    needs=NEEDS,
    expects="constant(p) p p with p = 3: the gradient 2 c p = 18; constant(p) + p: 1; p p afterwards: 6",
    source=_STOPPED,
)
def parameter(h: Checked) -> None:
    """The constant of a parameter is its value, and takes no derivative."""
    p = h.parameter(3.0, trains=True)
    h.equal(h.parameter_grad(lambda: adprotocol.non_differentiable(p) * p * p, p), 18.0, "the gradient")
    h.equal(h.parameter_grad(lambda: adprotocol.non_differentiable(p) + p, p), 1.0, "the gradient of the sum")
    h.equal(adprotocol.non_differentiable(p), 3.0, "the constant")
    h.equal(h.parameter_grad(lambda: p * p, p), 6.0, "the gradient afterwards")


@staged(
    "non_differentiable/parameter",
    rule="N1",
    transform="{way}",
    native="grad of {way}",
    needs=NEEDS,
    expects="constant(p) p x compiled, with p = 3, x = 2: plain 18, gradient c x = 6, in both first orders",
    source=_STOPPED,
)
def parameter_compiled(h: Checked, way: str) -> None:
    """In a compiled function the constant of a parameter takes no derivative either."""
    x = h.array(2.0)
    for first in (0, 1):
        p = h.parameter(3.0, trains=True)
        traced = trace(h, way, lambda x, p=p: adprotocol.non_differentiable(p) * p * x)

        def plain(traced: Any = traced) -> None:
            h.equal(adprotocol.non_differentiable(traced(x)), 18.0, "the plain call")

        def differentiated(traced: Any = traced, p: Any = p) -> None:
            h.equal(h.parameter_grad(lambda: traced(x), p), 6.0, "the gradient")

        for call in orders(plain, differentiated)[first]:
            call()


@scenario(
    "prevent_gradient/parameter",
    rule="N5",
    needs=NEEDS,
    expects="GradientPreventedError in the gradient of a guarded parameter; 3 where its constant is guarded",
    source=_WATCHED,
)
def guarded_parameter(h: Checked) -> None:
    """A guarded parameter may not be differentiated, and its constant may be computed with."""
    p = h.parameter(3.0, trains=True)
    with h.raises(GradientPreventedError, words=["not this one"]):
        h.parameter_grad(lambda: adprotocol.prevent_gradient(p, "not this one") * p, p)
    h.equal(
        h.parameter_grad(lambda: adprotocol.prevent_gradient(adprotocol.non_differentiable(p), "not this one") * p, p),
        3.0,
        "the gradient beside a guarded constant",
    )


@scenario(
    "value_and_grad/frozen-parameter-asked",
    rule="T6",
    needs=("grad", *NEEDS),
    expects='3 p times 11 q at 2, 3, with where="p": 198, the gradient 99 in p and None for q, whose flag is on',
    source=_WATCHED,
)
def frozen_parameter_asked(h: Checked) -> None:
    """A parameter that the call freezes is not tracked inside, whatever its flag says."""
    model = {"p": h.parameter(2.0, trains=True), "q": h.parameter(3.0, trains=True)}
    run = adprotocol.value_and_grad(lambda m: h.layer(m["p"]) * h.scaled(m["q"], 7.0, 11.0), where="p", backend=h.name)
    value, gradient = run(model)
    h.equal(value, 198.0, "the value")
    h.gradients(gradient, {"p": 99.0, "q": None})


@scenario(
    "cond/parameters-in-branches",
    rule="C6",
    needs=NEEDS,
    expects="p p where p > 1, else (p - p) / (p - p), with p = 3 closed over: the gradient 6; 2 p for p = 1 / 2: 2",
    source=_WATCHED,
)
def parameters_in_branches(h: Checked) -> None:
    """Branches may read parameters, and what is not taken leaves no NaN in their gradient."""
    for value, want in ((3.0, 6.0), (0.5, 2.0)):
        p = h.parameter(value, trains=True)

        def bad(p: Any = p) -> Any:
            return (p - p) / (p - p)

        def f(p: Any = p, bad: Any = bad) -> Any:
            chosen = adprotocol.cond(p > 1.0, lambda: p * p, lambda: 2.0 * p)
            return adprotocol.cond(p > FAR, bad, lambda: 1.0 * chosen)

        h.equal(h.parameter_grad(f, p), want, f"the gradient at {value}")
