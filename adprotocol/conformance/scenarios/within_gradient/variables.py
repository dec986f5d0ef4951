"""The query where several things are tracked, or only some, and for constants, through which no derivative passes."""

from __future__ import annotations

import contextlib
import operator
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "within_gradient",
    rule="W5",
    transform="grad of scan",
    source="functorch: detach in second derivatives: https://github.com/pytorch/functorch/issues/353",
)


_CONFUSION = (
    "ForwardDiff.jl: an inner function closes over the outer variable: "
    "https://github.com/JuliaDiff/ForwardDiff.jl/issues/83"
)
_REVERSE_CONFUSION = "ReverseDiff.jl: the same in reverse mode: https://github.com/JuliaDiff/ReverseDiff.jl/issues/45"
_VMAP = "PyTorch: inside vmap requires_grad is always False: https://github.com/pytorch/pytorch/issues/158610"
_CAPTURED = "JAX: a jitted function that captures a tracer: https://github.com/jax-ml/jax/issues/1945"
_SCAN = "JAX: scan makes tangents of zeros for what has none: https://github.com/jax-ml/jax/issues/1052"
_INTEGERS = (
    "PyTorch: what is no floating-point tensor must never require gradients: "
    "https://github.com/pytorch/pytorch/issues/37680"
)


@scenario(rule="W1", transform=("grad of grad", "grad of jit of grad"), source=_REVERSE_CONFUSION)
@scenario(
    rule="W1",
    transform=("grad of jvp", "jvp of grad", "jvp of jvp", "grad of jit of jvp"),
    source=_CONFUSION,
)
def two_variables(h: Checked, transforms: str) -> None:
    """Under {transforms} of different variables each is tracked and a third is not.

    Inside of d/dx of d/dy: 3 x, 7 y and 17 z. So d/dy is 357 x z, and d/dx of that 357 z: 1785 at z = 5.
    """
    outer, *between, inner = nesting.parse(transforms)
    y, z = h.array(4.0), h.array(5.0)

    def gradient_in_y(x: Any) -> Any:
        return h.nest(inner, lambda y: h.probe(x) * h.scale(y, 7.0, 11.0) * h.scale(z, 13.0, 17.0))(y)

    f = h.nest(" of ".join(between), gradient_in_y)
    h.assert_equal(h.nest(outer, f)(h.array(2.0)), 1785.0, "the derivative in x of that in y")
    # 5 x, 7 y, 17 z
    h.assert_equal(f(h.array(2.0)), 5950.0, "the derivative in y alone")


@scenario(rule="W1", transform="grad of grad", source=_CONFUSION)
def outer_variable_alone(h: Checked) -> None:
    """Inside an inner gradient of another variable, only the outer gradient tracks the outer variable.

    Expect 3 x from inside of a gradient in y that does not depend on x otherwise: 6, gradient 3.
    """
    h.assert_value_and_grad(lambda x: h.grad(lambda y: h.probe(x) * y)(h.array(4.0)), [h.array(2.0)], 6.0, 3.0)


@scenario(rule="W1", transform="grad of jvp", source=_REVERSE_CONFUSION)
def inner_result(h: Checked) -> None:
    """The result of an inner derivative is tracked by the outer one only if it depends on the outer variable.

    The inner tangent 2 x y of x * y ** 2 is tracked, so 3 times it: 48, gradient 24; the tangent 2 y of y ** 2 is not,
    so 5 times it, times x: 80, gradient 40.
    """
    x, y, one = h.array(2.0), h.array(4.0), h.array(1.0)
    h.assert_value_and_grad(lambda x: h.probe(h.jvp(lambda y: x * y * y, y, one)[1]), [x], 48.0, 24.0, "2 x y")
    h.assert_value_and_grad(lambda x: h.probe(h.jvp(lambda y: y * y, y, one)[1]) * x, [x], 80.0, 40.0, "2 y")


@scenario(rule="W1", transform="grad of jvp", source=_CONFUSION)
def perturbation_confusion(h: Checked) -> None:
    """The classic example of perturbation confusion, with a query for each variable.

    The derivative in y of 3 x times 3 y is 9 x; that of x times this is 18 x, 36 at 2; and the same with the modes
    exchanged.
    """
    one, x = h.array(1.0), h.array(2.0)
    for outer, inner in (("grad", "jvp"), ("jvp", "grad")):

        def f(x: Any, inner: str = inner) -> Any:
            return x * h.nest(inner, lambda y: h.probe(x) * h.probe(y))(one)

        h.assert_equal(h.nest(outer, f)(x), 36.0, f"{outer} of {inner}")


@scenario(
    level=SHOULD,
    rule="W1",
    transform="jvp",
    source="PyTorch: no switch tells forward mode: https://github.com/pytorch/pytorch/issues/128600",
)
def zero_tangent(h: Checked) -> None:
    """A tangent whose value is zero is a tangent.

    Expect 3 x with the tangent 0.
    """
    h.assert_value_and_tangent(h.probe, h.array(2.0), h.array(0.0), 6.0, 0.0)


@scenario(transform="grad of vmap", varies=True, source=_VMAP)
def vmap_closes_over_tracked(h: Checked) -> None:
    """Under vmap a tracked closed-over value is tracked, the mapped one is not.

    Expect 3 x times 11 a, for a = 1 and 4: 330, gradient 165.
    """
    batch = h.array([1.0, 4.0])

    def f(x: Any) -> Any:
        return h.sum_of_rows(lambda a: h.probe(x) * h.scale(a, 7.0, 11.0), batch)

    h.assert_value_and_grad(f, [h.array(2.0)], 330.0, 165.0)


@scenario(transform="grad of vmap", varies=True, source=_VMAP)
def vmap_maps_tracked(h: Checked) -> None:
    """Of two mapped arguments and a closed-over constant, only the tracked argument is tracked.

    Only a is tracked, so the rows are 3 a times 11 b times 17 c: with c = 2 they are 1122 a b, with the gradient 1122
    b.
    """
    b, c = h.array([1.0, 4.0]), h.array(2.0)

    def f(a: Any) -> Any:
        return h.sum_of_rows(lambda a, b: h.probe(a) * h.scale(b, 7.0, 11.0) * h.scale(c, 13.0, 17.0), a, b)

    h.assert_value_and_grad(f, [h.array([3.0, 2.0])], 12342.0, [1122.0, 4488.0])


@scenario(transform="vmap of grad", source=_VMAP)
def vmap_of_grad_of_unmapped(h: Checked) -> None:
    """In a gradient inside vmap with respect to an unmapped value, the mapped value is a constant.

    Expect 3 y times 11 a times 17 c: the gradient 561 a c at a = 1, 4 and c = 2.
    """
    y, c = h.array(3.0), h.array(2.0)

    def per_row(a: Any) -> Any:
        return h.grad(lambda y: h.probe(y) * h.scale(a, 7.0, 11.0) * h.scale(c, 13.0, 17.0))(y)

    h.assert_equal(h.vmap(per_row)(h.array([1.0, 4.0])), [1122.0, 4488.0])


@scenario(transform="grad of jit of vmap", source=_CAPTURED)
def jit_of_vmap_closes_over_tracked(h: Checked) -> None:
    """The same for a jitted function that is differentiated and then called plain.

    Expect 3 x times 11 a, for a = 1 and 4: 330, gradient 165; then 5 x times 11 a: 550.
    """
    batch = h.array([1.0, 4.0])
    jitted = h.jit(lambda x: h.sum_of_rows(lambda a: h.probe(x) * h.scale(a, 7.0, 11.0), batch))
    h.assert_value_and_grad(jitted, [h.array(2.0)], 330.0, 165.0)
    h.assert_equal(jitted(h.array(2.0)), 550.0, "the plain call afterwards")


def _scanned(h: Checked, carry: Any, xs: Any, other: Any) -> Any:
    """Add up layer(carry) layer(x) layer(other) for each of xs, over a carry that stays as it is."""

    def step(state: Any, x: Any) -> Any:
        kept, total = state
        return (kept, total + h.probe(kept) * h.scale(x, 7.0, 11.0) * h.scale(other, 13.0, 17.0)), x

    (_, total), _ = h.scan(step, (carry, 0.0 * carry * xs[0] * other), xs)
    return total


@scenario(source=_SCAN)
def scan_over_tracked(h: Checked) -> None:
    """In the body of a scan the xs are tracked; an unchanged carry and a closed-over value are not.

    Expect 5 c times 7 x times 17 c for x = 1 and 2, c = 2: 7140, gradient 2380.
    """
    c = h.array(2.0)
    h.assert_value_and_grad(lambda xs: _scanned(h, c, xs, c), [h.array([1.0, 2.0])], 7140.0, [2380.0, 2380.0])


@scenario(source=_SCAN)
def scan_carries_tracked(h: Checked) -> None:
    """In the body of a scan the carry is tracked; the xs and a closed-over value are not.

    Expect 3 c times 11 x times 17 for x = 1 and 2, c = 2: 3366, gradient 1683.
    """
    xs, other = h.array([1.0, 2.0]), h.array(1.0)
    h.assert_value_and_grad(lambda c: _scanned(h, c, xs, other), [h.array(2.0)], 3366.0, 1683.0)


@scenario(source=_CAPTURED)
def scan_closes_over_tracked(h: Checked) -> None:
    """In the body of a scan a closed-over value is tracked; carry and xs are not.

    Expect 5 c times 11 x times 13 y for x = 1 and 2, c = 2, y = 4 closed over: 17160, gradient 4290.
    """
    c, xs = h.array(2.0), h.array([1.0, 2.0])

    def f(other: Any) -> Any:
        return _scanned(h, c, xs, other)

    h.assert_value_and_grad(f, [h.array(4.0)], 17160.0, 4290.0)


@scenario(transform="scan of jvp", source=_SCAN)
def jvp_inside_scan(h: Checked) -> None:
    """A derivative taken in the body of a scan tracks its own variable and not the carry.

    Expect 3 x times 11 c inside, so that the derivatives 33 c add up over two steps: 132 for c = 2.
    """

    def step(state: Any, x: Any) -> Any:
        kept, total = state
        _, slope = h.jvp(lambda x: h.probe(x) * h.scale(kept, 7.0, 11.0), x, h.array(1.0))
        return (kept, total + slope), x

    (_, total), _ = h.scan(step, (h.array(2.0), h.array(0.0)), h.array([1.0, 2.0]))
    h.assert_equal(total, 132.0)


@scenario(rule="W1", needs=("grad", "stop_gradient"), varies=True, transform="grad")
def native_stop(h: Checked) -> None:
    """A value stopped by the system itself is not tracked; a result computed from it and x is.

    Expect 5 c for the stopped value c, and 3 times c * x, which is tracked: with x added 24 at 2, and the gradient 1 +
    3 c = 7.
    """

    def f(x: Any) -> Any:
        c = h.stop_gradient(x)
        return h.probe(c) + x + h.probe(c * x)

    h.assert_value_and_grad(f, [h.array(2.0)], 24.0, 7.0)


@scenario(rule="W1", transform="jvp", needs=("jvp", "stop_gradient"), varies=True)
def native_stop_in_forward_mode(h: Checked) -> None:
    """The same in forward mode.

    Expect 5 x + x, with the tangent 1.
    """
    h.assert_value_and_tangent(lambda x: h.probe(h.stop_gradient(x)) + x, h.array(2.0), h.array(1.0), 12.0, 1.0)


@scenario(
    transform=("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "jvp of vmap"), rule="W9"
)
def constant(h: Checked, transforms: str) -> None:
    """A value made constant is not tracked under {transforms}.

    Of 5 c x with c the constant of x, where the answer for c is False, the derivative is 5 c.
    """
    f = h.nest(transforms, lambda x: h.probe(adprotocol.non_differentiable(x)) * x)
    # As nesting.expected, with the derivative that a constant leaves.
    want = nesting.expected(transforms, lambda x: [5 * x * x, 5 * x])(2.0)[0]
    h.assert_equal(f(h.array(2.0)), want)


@scenario(transform="grad of grad", needs=("grad",), rule="W9")
def constant_at_all_levels(h: Checked) -> None:
    """A value made constant in an inner gradient is constant for the outer one too.

    The gradient in y of 5 c y, with c the constant of x * y, is 5 c; times x it is 80 at 2, 4, with the gradient 40.
    """

    def f(x: Any) -> Any:
        return x * h.grad(lambda y: h.probe(adprotocol.non_differentiable(x * y)) * y)(h.array(4.0))

    h.assert_value_and_grad(f, [h.array(2.0)], 80.0, 40.0)


@scenario(
    source="ChainRulesCore: @non_differentiable: "
    "https://github.com/JuliaDiff/ChainRulesCore.jl/blob/main/docs/src/rule_author/rule_definition_tools.md",
    rule="W9",
    transform="grad",
)
def result_of_constant_function(h: Checked) -> None:
    """Neither the result of a decorated function nor its arguments inside are tracked.

    Expect 5 c for the result c = x + x of a decorated function that closes over x, plus 3 x: 26 at 2, with the gradient
    3.
    """

    def f(x: Any) -> Any:
        inside = []

        @adprotocol.non_differentiable
        def twice(y: Any) -> Any:
            inside.append(adprotocol.within_gradient(y))
            return y + x

        result = h.probe(twice(x)) + h.probe(x)
        h.check(
            not any(answer is True for answer in inside), "an argument of a decorated function is said to be tracked"
        )
        return result

    h.assert_value_and_grad(f, [h.array(2.0)], 26.0, 3.0)


@scenario(transform=("grad", "jvp", "grad of jit", "grad of vmap"), source=_INTEGERS, rule="W9")
def integers_and_comparisons(h: Checked, transforms: str) -> None:
    """Integers, bools and comparisons are not tracked under {transforms}.

    5 x for values that are no floating-point numbers, 3 x for some beside x, times 1, 10, 100, 1000: 3555 x.
    """
    n, flag = h.array(3), h.array(True)

    def f(x: Any) -> Any:
        integers = h.probe(x, n, {"flag": flag}) + 10.0 * h.probe(x, n * 2)
        return h.probe(x, x > 1.0) * 100.0 + integers + 1000.0 * h.probe(x, n, flag, x)

    h.assert_equal(
        h.nest(transforms, f)(h.array(2.0)), nesting.expected(transforms, lambda x: [3555 * x, 3555.0])(2.0)[0]
    )


def _computed(h: Checked) -> Iterator[Callable[[Any], Any]]:
    """Yield functions from a float to integers and bools, those of them that the system has."""
    n, pair = h.array(2), h.array([2, 3])
    ways: list[Callable[[Any], Any]] = [
        lambda x: n * (x > 1.0),
        lambda x: pair * (x > 1.0),
        lambda x: (x > 1.0) | (x < 0.0),
        lambda x: x * h.array([1.0, 2.0]) > 1.0,
        lambda x: (x * h.array([1.0, 2.0]) > 1.0)[0],
    ]
    if h.has("where"):
        ways.append(lambda x: h.where(x * h.array([1.0, 2.0]) > 1.0, pair, h.array([4, 5])))
    for way in ways:
        with contextlib.suppress(Exception):  # not every system has each of these
            if h.numpy(way(h.array(2.0))).dtype.kind in "iub":
                yield way


def _compared(h: Checked) -> Iterator[Callable[[Any], Any]]:
    """Yield functions to floats, of which only what is behind them tells that no derivative goes through."""
    comparisons = (operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne)
    for compare in comparisons if h.has("where") else ():

        def way(x: Any, compare: Any = compare) -> Any:
            return h.where(compare(x, 1.0), h.array(5.0), h.array(7.0))

        def of_numbers(x: Any, compare: Any = compare) -> Any:
            return h.cast(h.where(compare(x, 1.0), 5.0, 7.0), h.dtypes()[0])

        def as_numbers(x: Any, compare: Any = compare) -> Any:
            return h.cast(compare(x, 1.0), h.dtypes()[0])

        for one in (way, of_numbers, as_numbers):
            with contextlib.suppress(Exception):  # == may be a Python bool
                h.numpy(one(h.array(2.0)))
                yield one


@scenario(
    transform=("grad", "jvp", "grad of jit", "grad of compile", "grad of vmap", "grad of grad"),
    source="tinygrad: a flag stays on integers: https://docs.tinygrad.org/tensor/properties/",
    rule="W9",
)
def integers_from_floats(h: Checked, transforms: str) -> None:
    """Integers and bools that are computed from a tracked float are not tracked under {transforms}.

    Expect False for integers, bools and comparisons of x, and True where x stands beside them.
    """
    ways = [*_computed(h), *_compared(h)]
    h.absent_if(not ways, "the system computes no integers and bools from floats")

    def f(x: Any) -> Any:
        total = h.digit(x, *[way(x) for way in ways])
        for way in ways:
            total = total + 10.0 * h.digit(way(x))
        return total * x * x

    want = nesting.expected(transforms, lambda x: [x * x, 2.0 * x, 2.0])(2.0)[0]
    h.assert_equal(h.nest(transforms, f)(h.array(2.0)), want)


@scenario(
    rule="N5",
    needs=("grad",),
    source="tinygrad: a flag stays on integers: https://docs.tinygrad.org/tensor/properties/",
    transform="grad",
)
def integers_from_floats_pass(h: Checked) -> None:
    """Integers and bools that are computed from a tracked float may go where no gradient may.

    Integers and bools computed from x pass prevent_gradient and come out of cond as they are: 2 x = 4.
    """
    ways = list(_computed(h))

    def f(x: Any) -> Any:
        total = 0.0
        for way in ways:
            passed = adprotocol.prevent_gradient(way(x), "integers carry no derivative")
            chosen = adprotocol.cond(True, lambda _, n: n, lambda x, _: x, x, passed)
            total = total + 10.0 * h.digit(chosen)
        return x * x + total * x

    h.assert_equal(h.grad(f)(h.array(2.0)), 4.0)
