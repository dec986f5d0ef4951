"""The query about what has no derivative: values made constant, integers, bools and comparisons."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import scenario
from adprotocol.conformance.scenarios.query import layer_by

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

STOP = "functorch: detach in second derivatives: https://github.com/pytorch/functorch/issues/353"
INTEGERS = (
    "PyTorch: what is no floating-point tensor must never require gradients: "
    "https://github.com/pytorch/pytorch/issues/37680"
)


@scenario(
    "within_gradient/native-stop",
    rule="W1",
    needs=("grad", "stop_gradient"),
    transform="grad",
    source=STOP,
    expects="5 c for the stopped value, 3 y for what is computed from it and x: 5 x + x + 3 x x, at 2: 24, gradient 7",
    varies=True,
)
def native_stop(h: Checked) -> None:
    """A value stopped by the system itself is not tracked; a result computed from it and x is."""

    def f(x: Any) -> Any:
        c = h.stop_gradient(x)
        return h.layer(c) + x + h.layer(c * x)

    h.value_and_gradient(f, [h.array(2.0)], 24.0, 7.0)


@scenario(
    "within_gradient/native-stop-in-forward-mode",
    rule="W1",
    needs=("jvp", "stop_gradient"),
    transform="jvp",
    source=STOP,
    expects="5 x + x, with the tangent 1",
    varies=True,
)
def native_stop_in_forward_mode(h: Checked) -> None:
    """The same in forward mode."""
    value, tangent = h.jvp(lambda x: h.layer(h.stop_gradient(x)) + x, h.array(2.0), h.array(1.0))
    h.equal(value, 12.0, "the value")
    h.equal(tangent, 1.0, "the tangent")


def constant(h: Checked, transforms: str) -> None:
    """Of 5 c x with c the constant of x, where the answer for c is False, the derivative is 5 c."""
    f = h.nest(transforms, lambda x: h.layer(adprotocol.non_differentiable(x)) * x)
    # As nesting.expected, with the derivative that a constant leaves.
    want = nesting.expected(transforms, lambda x: [5 * x * x, 5 * x])(2.0)[0]
    h.equal(f(h.array(2.0)), want)


for _transforms in ("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "jvp of vmap"):
    scenario(
        f"within_gradient/constant-{_transforms.replace(' ', '-')}",
        rule="W9",
        transform=_transforms,
        source=STOP,
        expects="5 c for the constant c of x, times x",
        summary=f"A value made constant is not tracked under {_transforms}.",
    )(functools.partial(constant, transforms=_transforms))


@scenario(
    "within_gradient/constant-at-all-levels",
    rule="W9",
    needs=("grad",),
    transform="grad of grad",
    source=STOP,
    expects="d/dy of 5 c y with c the constant of x y is 5 c; times x, at 2, 4: 80, gradient 40",
)
def constant_at_all_levels(h: Checked) -> None:
    """A value made constant in an inner gradient is constant for the outer one too."""

    def f(x: Any) -> Any:
        return x * h.grad(lambda y: h.layer(adprotocol.non_differentiable(x * y)) * y)(h.array(4.0))

    h.value_and_gradient(f, [h.array(2.0)], 80.0, 40.0)


@scenario(
    "within_gradient/result-of-constant-function",
    rule="W9",
    transform="grad",
    source="ChainRulesCore: @non_differentiable: "
    "https://github.com/JuliaDiff/ChainRulesCore.jl/blob/main/docs/src/rule_author/rule_definition_tools.md",
    expects="5 c for c = x + x, of a decorated function that closes over x; 3 x beside: 26, gradient 3",
)
def result_of_constant_function(h: Checked) -> None:
    """Neither the result of a decorated function nor its arguments inside are tracked."""

    def f(x: Any) -> Any:
        inside = []

        @adprotocol.non_differentiable
        def twice(y: Any) -> Any:
            inside.append(adprotocol.within_gradient(y))
            return y + x

        result = h.layer(twice(x)) + h.layer(x)
        h.holds(
            not any(answer is True for answer in inside), "an argument of a decorated function is said to be tracked"
        )
        return result

    h.value_and_gradient(f, [h.array(2.0)], 26.0, 3.0)


def discrete(h: Checked, transforms: str) -> None:
    """5 x for values that are no floating-point numbers, 3 x for some beside x, times 1, 10, 100, 1000: 3555 x."""
    n, flag = h.array(3), h.array(True)  # noqa: FBT003

    def f(x: Any) -> Any:
        integers = layer_by(h, x, n, {"flag": flag}) + 10.0 * layer_by(h, x, n * 2)
        return layer_by(h, x, x > 1.0) * 100.0 + integers + 1000.0 * layer_by(h, x, n, flag, x)

    h.equal(h.nest(transforms, f)(h.array(2.0)), nesting.expected(transforms, lambda x: [3555 * x, 3555.0])(2.0)[0])


for _transforms in ("grad", "jvp", "grad of jit", "grad of vmap"):
    scenario(
        f"within_gradient/integers-and-comparisons-{_transforms.replace(' ', '-')}",
        rule="W9",
        transform=_transforms,
        source=INTEGERS,
        expects="5 x for integers, for bools and for a comparison of x, 3 x for these together with x: in all 3555 x",
        summary=f"Integers, bools and comparisons are not tracked under {_transforms}.",
    )(functools.partial(discrete, transforms=_transforms))
