"""Constants, integers and comparisons, through which no derivative passes."""

from __future__ import annotations

import contextlib
import operator
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Absent
from adprotocol.conformance.scenario import defaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

scenario: Decorator = defaults(
    "within_gradient",
    rule="W9",
    transform="grad",
    source="functorch: detach in second derivatives: https://github.com/pytorch/functorch/issues/353",
)


_INTEGERS = (
    "PyTorch: what is no floating-point tensor must never require gradients: "
    "https://github.com/pytorch/pytorch/issues/37680"
)


@scenario(rule="W1", needs=("grad", "stop_gradient"), varies=True)
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


@scenario(transform=("grad", "jvp", "grad of jit", "jit of grad", "grad of vmap", "vmap of grad", "jvp of vmap"))
def constant(h: Checked, transforms: str) -> None:
    """A value made constant is not tracked under {transforms}.

    Of 5 c x with c the constant of x, where the answer for c is False, the derivative is 5 c.
    """
    f = h.nest(transforms, lambda x: h.probe(adprotocol.non_differentiable(x)) * x)
    # As nesting.expected, with the derivative that a constant leaves.
    want = nesting.expected(transforms, lambda x: [5 * x * x, 5 * x])(2.0)[0]
    h.assert_equal(f(h.array(2.0)), want)


@scenario(transform="grad of grad", needs=("grad",))
def constant_at_all_levels(h: Checked) -> None:
    """A value made constant in an inner gradient is constant for the outer one too.

    The gradient in y of 5 c y, with c the constant of x * y, is 5 c; times x it is 80 at 2, 4, with the gradient 40.
    """

    def f(x: Any) -> Any:
        return x * h.grad(lambda y: h.probe(adprotocol.non_differentiable(x * y)) * y)(h.array(4.0))

    h.assert_value_and_grad(f, [h.array(2.0)], 80.0, 40.0)


@scenario(
    source="ChainRulesCore: @non_differentiable: "
    "https://github.com/JuliaDiff/ChainRulesCore.jl/blob/main/docs/src/rule_author/rule_definition_tools.md"
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


@scenario(transform=("grad", "jvp", "grad of jit", "grad of vmap"), source=_INTEGERS)
def integers_and_comparisons(h: Checked, transforms: str) -> None:
    """Integers, bools and comparisons are not tracked under {transforms}.

    5 x for values that are no floating-point numbers, 3 x for some beside x, times 1, 10, 100, 1000: 3555 x.
    """
    n, flag = h.array(3), h.array(True)  # noqa: FBT003

    def f(x: Any) -> Any:
        integers = h.probe_by(x, n, {"flag": flag}) + 10.0 * h.probe_by(x, n * 2)
        return h.probe_by(x, x > 1.0) * 100.0 + integers + 1000.0 * h.probe_by(x, n, flag, x)

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
)
def integers_from_floats(h: Checked, transforms: str) -> None:
    """Integers and bools that are computed from a tracked float are not tracked under {transforms}.

    Expect False for integers, bools and comparisons of x, and True where x stands beside them.
    """
    ways = [*_computed(h), *_compared(h)]
    if not ways:
        msg = "the system computes no integers and bools from floats"
        raise Absent(msg)

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
            chosen = adprotocol.cond(True, lambda _, n: n, lambda x, _: x, x, passed)  # noqa: FBT003
            total = total + 10.0 * h.digit(chosen)
        return x * x + total * x

    h.assert_equal(h.grad(f)(h.array(2.0)), 4.0)
