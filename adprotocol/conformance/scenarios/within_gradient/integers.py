"""Integers, bools and comparisons of tracked floats: no derivative goes through them."""

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
    source="tinygrad: a flag stays on integers: https://docs.tinygrad.org/tensor/properties/",
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


@scenario(rule="N5", transform="grad", needs=("grad",))
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
