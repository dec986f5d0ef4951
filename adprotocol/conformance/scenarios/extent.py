"""Of many elements, after many operations, of several values at once, from a gradient that is over."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.query import natively
from adprotocol.conformance.scenarios.staged import staged, trace

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_LONG = "PyTorch: deep graphs and recursion: https://github.com/pytorch/pytorch/issues/5801"
_BATCHED = "JAX: vmap maps some arguments and not others: https://docs.jax.dev/en/latest/_autosummary/jax.vmap.html"
_OVER = "JAX: has_aux leaks tracers: https://github.com/jax-ml/jax/issues/1950"
_JOINED = "JAX: logical operators and control flow: https://docs.jax.dev/en/latest/control-flow.html"
_RULES = "JAX: custom derivative rules: https://docs.jax.dev/en/latest/notebooks/Custom_derivative_rules_for_Python_code.html"
_MANY = 4096
_OPERATIONS = 120


def after_many(h: Checked, transforms: str) -> None:
    """Ask about what a hundred operations have made of x, and of a constant."""
    x, c = h.array(2.0), h.array(2.0)

    def far(y: Any) -> Any:
        for i in range(_OPERATIONS):
            y = y + 1.0 if i % 2 else y - 1.0
        return y

    def f(x: Any) -> Any:
        return h.scaled(far(x), 3.0, 5.0) * h.scaled(far(c), 7.0, 11.0)

    h.equal(h.nest(transforms, f)(x), 66.0)


for _transforms in ("grad", "jvp", "grad of jit", "grad of compile", "jit of grad"):
    scenario(
        f"within_gradient/after-many-operations-{_transforms.replace(' ', '-')}",
        rule="W1",
        transform=_transforms,
        source=_LONG,
        expects="3 x times 11 c after 120 operations that leave both as they are, at 2, 2: the derivative 66",
        summary=f"A variable is tracked after many operations, and a constant is not, under {_transforms}.",
    )(functools.partial(after_many, transforms=_transforms))


@scenario(
    "within_gradient/many-elements",
    rule="W1",
    transform="grad",
    needs=("grad", "sum"),
    expects="3 sum(v) times 11 sum(c), asked of vectors of 4096 ones: slope 33 times 4096 at each element; constants 0",
    source=_LONG,
)
def many_elements(h: Checked) -> None:
    """A vector of many elements is tracked as a short one is, takes a gradient, and can be made constant."""
    v, c = h.array([1.0] * _MANY), h.array([1.0] * _MANY)

    def f(v: Any) -> Any:
        return h.sum(h.scaled(v, 3.0, 5.0)) * h.sum(h.scaled(c, 7.0, 11.0)) / _MANY

    h.equal(h.grad(f)(v), [33.0] * _MANY, "the gradient")
    h.equal(adprotocol.grad(lambda m: f(m["v"]))({"v": v})["v"], [33.0] * _MANY, "our gradient")
    stopped = h.grad(lambda v: h.sum(adprotocol.non_differentiable(v)) + h.sum(v))(v)
    h.equal(stopped, [1.0] * _MANY, "the gradient beside a constant")


@scenario(
    "within_gradient/several-values-under-vmap",
    rule="W3",
    needs=("grad", "vmap", "sum"),
    transform="grad of vmap",
    expects="3 x where x or c is asked, in either order or in a dict, and 5 x where c and another constant are",
    source=_BATCHED,
)
def several_values_under_vmap(h: Checked) -> None:
    """Of several values in vmap one that is tracked suffices, in whichever place."""
    rows, constants = h.array([1.0, 2.0]), h.array([3.0, 4.0])
    asked = {
        "the first": (lambda x, c: (x, c), 3.0),
        "the second": (lambda x, c: (c, x), 3.0),
        "one in a dict": (lambda x, c: ({"c": c, "x": x},), 3.0),
        "none": (lambda x, c: (c, 2.0 * c), 5.0),  # noqa: ARG005
    }
    for what, (values, want) in asked.items():

        def row(x: Any, c: Any, values: Any = values) -> Any:
            return adprotocol.cond(h.asks(*values(x, c)), lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        found = h.grad(lambda v, row=row: h.sum(h.vmap(row)(v, constants)))(rows)
        h.equal(found, [want, want], f"the gradient where {what} is tracked")


@scenario(
    "within_gradient/from-another-gradient",
    rule="W6",
    transform="grad",
    expects="our gradient of 3 z z z at 2, asked twice in it, is g = 36; then 11 g y in another: slope 396; 17 z y: 34",
    source=_OVER,
)
def from_another_gradient(h: Checked) -> None:
    """Our gradient is a plain value in the gradient that comes next, and so is what it was taken of."""
    z, y = h.array(2.0), h.array(1.0)

    def loss(model: dict[str, Any]) -> Any:
        return h.layer(model["z"]) * h.scaled(model["z"], 1.0, 7.0) * model["z"]

    g = adprotocol.grad(loss)({"z": z})["z"]
    h.value_and_gradient(lambda y: h.scaled(g, 7.0, 11.0) * y, (y,), 396.0, 396.0, "of the gradient")
    h.value_and_gradient(lambda y: h.scaled(z, 13.0, 17.0) * y, (y,), 34.0, 34.0, "of what it was taken of")


@staged(
    "within_gradient/answers-joined",
    rule="W4",
    transform="grad of {way}",
    expects="k x c with k = 3 where both are tracked, 5 where x is, 7 where c is, else 11, at 2, 3: 30 and 42 in the "
    "gradients, 18 by t of t x and t c, 66 plain",
    source=_JOINED,
)
def answers_joined(h: Checked, way: str) -> None:
    """Answers, staged or not, are joined with & and |, among each other and with bools."""
    x, c, one = h.array(2.0), h.array(3.0), h.array(1.0)

    def f(x: Any, c: Any) -> Any:
        of_x, of_c = h.asks(x), h.asks(c)
        rest = adprotocol.cond(of_x | of_c, lambda x, c: 7.0 * x * c, lambda x, c: 11.0 * x * c, x, c)
        some = adprotocol.cond(of_x | False, lambda x, c, _: 5.0 * x * c, lambda _x, _c, rest: 1.0 * rest, x, c, rest)
        both = of_x & of_c & True
        return adprotocol.cond(both, lambda x, c, _: 3.0 * x * c, lambda _x, _c, some: 1.0 * some, x, c, some)

    traced = trace(h, way, f)
    for _ in range(2):
        for run in (f, traced):
            h.equal(run(x, c), 66.0, "the plain call")
            h.value_and_gradient(lambda x, run=run: run(x, c), (x,), 30.0, 15.0)
            h.value_and_gradient(lambda c, run=run: run(x, c), (c,), 42.0, 14.0, "in the other")
            h.value_and_gradient(lambda t, run=run: run(t * x, t * c), (one,), 18.0, 36.0, "in both")


def gradient_in_a_rule(h: Checked, transforms: str) -> None:
    """Take a gradient in the derivative rule of a function, and ask in it."""

    def program(fun: Any) -> Any:
        return h.nest(transforms, h.custom_rule(lambda x: x * x, h.grad(fun)))(h.array(2.0))

    natively(h, lambda: program(lambda x: 3.0 * x * x), 12.0)
    h.equal(program(lambda x: h.layer(x) * x), 12.0)


for _transforms in ("grad", "grad of jit", "grad of compile"):
    scenario(
        f"within_gradient/gradient-in-a-rule-{_transforms.replace(' ', '-')}",
        rule="W1",
        needs=(*nesting.needs(_transforms), "custom_rule"),
        transform=_transforms,
        source=_RULES,
        expects=f"{_transforms} of x x whose rule is the gradient of 3 x x, asked so, else 5 x x: 12 at 2",
        summary=f"In a gradient that a derivative rule takes the variable is tracked, under {_transforms}.",
    )(functools.partial(gradient_in_a_rule, transforms=_transforms))
