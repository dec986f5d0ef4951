"""`where`: nothing of the function that is not chosen at an element reaches value or derivative there."""

from __future__ import annotations

import functools
import math
import operator
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.arrays import dtypes_of_numpy
from adprotocol.errors import BranchMismatchError, PredicateError

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

scenario: Decorator = defaults(
    "cond",
    rule="C10",
    source="JAX: where and the gradient of what is not selected: https://github.com/jax-ml/jax/issues/1052",
)

_DOUBLE = "JAX: the double where: https://github.com/jax-ml/jax/issues/2630"

# At 0 and -1 the other function and its derivatives are infinite and not a number.
POINT = [0.0, 4.0, -1.0]
VALUES, SLOPES, SECOND = [0.0, 0.5, -2.0], [2.0, -0.0625, 2.0], [0.0, 0.0234375, 0.0]


def _inverse_root(h: Checked, x: Any) -> Any:
    """Return 1 / sqrt(x) where x is positive, else 2 x."""
    h.require_hook("array_functions")
    return adprotocol.where(x > 0.0, lambda x: 1.0 / x**0.5, lambda x: 2.0 * x, x)


def _total(y: Any) -> Any:
    return y[0] + y[1] + y[2]


@scenario(transform="grad", varies=True)
def where_gradient(h: Checked) -> None:
    """A gradient at an element is that of the function chosen there.

    Expect 1 / sqrt(x) where x > 0, else 2 x, at (0, 4, -1): (0, 1/2, -2), and (2, -1/16, 2) as the gradient of the sum.
    """
    x = h.array(POINT)
    h.assert_equal(_inverse_root(h, x), VALUES, "the value")
    h.assert_value_and_grad(lambda x: _total(_inverse_root(h, x)), (x,), -1.5, SLOPES)


@scenario(transform="jvp", varies=True)
def where_tangent(h: Checked) -> None:
    """A tangent at an element is that of the function chosen there.

    Expect the tangents of 1 / sqrt(x) where x > 0, else 2 x, at (0, 4, -1), each times that of x, 1: (2, -1/16, 2).
    """
    ones = h.array([1.0, 1.0, 1.0])
    h.assert_value_and_tangent(lambda x: _inverse_root(h, x), h.array(POINT), ones, VALUES, SLOPES)


@scenario(transform="grad of grad", source=_DOUBLE)
def where_second_derivative(h: Checked) -> None:
    """A second derivative at an element is that of the function chosen there.

    Expect that of the sum of 1 / sqrt(x) where x > 0, else 2 x, at (0, 4, -1): (0, 3/128, 0).
    """

    def slope(x: Any) -> Any:
        return _total(h.grad(lambda x: _total(_inverse_root(h, x)))(x))

    h.assert_equal(h.grad(slope)(h.array(POINT)), SECOND)


@scenario(transform=("jvp of grad", "grad of jvp"), source=_DOUBLE)
def where_in_both_modes(h: Checked, transforms: str) -> None:
    """A second derivative by {transforms} at an element is that of the function chosen there.

    Expect at 4 that of 1 / sqrt(x), 3/128, and at -1 that of 2 x, 0, each beside the element 0, which is not moved.
    """
    for point, want in ((4.0, 0.0234375), (-1.0, 0.0)):

        def f(x: Any, point: float = point) -> Any:
            y = _inverse_root(h, x * h.array([0.0, 1.0, -0.25 * point]))
            return y[0] + y[1]

        h.assert_equal(h.nest(transforms, f)(h.array(point)), want, f"at {point:g}")


@scenario(transform="grad of {way}")
def where_traced(h: Checked, way: str) -> None:
    """Under {way} it is no different.

    Expect the gradient (2, -1/16, 2) of the sum of 1 / sqrt(x) where x > 0, else 2 x, at (0, 4, -1), and at other
    points from one trace.
    """
    traced = h.trace(way, lambda x: _total(_inverse_root(h, x)))
    for point, total, slopes in (
        (POINT, -1.5, SLOPES),
        ([4.0, 4.0, 4.0], 1.5, [-0.0625] * 3),
        ([0.0, -1.0, -2.0], -6.0, [2.0] * 3),
    ):
        h.assert_value_and_grad(traced, (h.array(point),), total, slopes, f"at {point}")


@scenario(transform=("grad of vmap", "vmap of grad"))
def where_of_rows(h: Checked, transforms: str) -> None:
    """In {transforms}, where each row has a mask of its own, it is no different.

    Expect the gradients of the sum of 1 / sqrt(x) where x > 0, else 2 x, of the rows (0, 4, -1) and (4, -1, 4).
    """
    rows = h.array([POINT, [4.0, -1.0, 4.0]])

    def f(x: Any) -> Any:
        return _total(_inverse_root(h, x))

    got = h.vmap(h.grad(f))(rows) if transforms == "vmap of grad" else h.grad(lambda x: h.sum_of_rows(f, x))(rows)
    h.assert_equal(got, [SLOPES, [-0.0625, 2.0, -0.0625]])


@scenario(transform="grad")
def where_broadcasts(h: Checked) -> None:
    """A mask chooses rows where it has one element for each.

    Expect of ((0, 4), (4, 4)) and the mask ((False,), (True,)) twice the first row and 1 / sqrt of the second, with the
    gradient ((2, 2), (-1/16, -1/16)) of the sum; of the mask ((False, True),) twice the first column.
    """
    h.require_hook("array_functions")
    x = h.array([[0.0, 4.0], [4.0, 4.0]])
    for mask, value, slopes in (
        ([[False], [True]], [[0.0, 8.0], [0.5, 0.5]], [[2.0, 2.0], [-0.0625, -0.0625]]),
        ([[False, True]], [[0.0, 0.5], [8.0, 0.5]], [[2.0, -0.0625], [2.0, -0.0625]]),
    ):

        def f(x: Any, mask: Any = mask) -> Any:
            return adprotocol.where(h.array(mask), lambda x: 1.0 / x**0.5, lambda x: 2.0 * x, x)

        h.assert_equal(f(x), value, f"{mask}: the value")

        def total(x: Any, f: Any = f) -> Any:
            y = f(x)
            return y[0][0] + y[0][1] + y[1][0] + y[1][1]

        h.assert_equal(h.grad(total)(x), slopes, f"{mask}: the gradient")


@scenario(transform="grad")
def where_all_are_of_one(h: Checked) -> None:
    """A function that is chosen at no element changes nothing.

    Expect of 1 / sqrt(x) where x > 0, else 7, at (-1, -4, 0): (7, 7, 7), with zero as its gradient; of 7 x where x > 0,
    else 1 / sqrt(-x), at (1, 4, 9): 7 x and 7.
    """
    h.require_hook("array_functions")

    def constant(x: Any) -> Any:
        return adprotocol.where(x > 0.0, lambda x: 1.0 / x**0.5, lambda _: 7.0, x)

    def linear(x: Any) -> Any:
        return adprotocol.where(x > 0.0, lambda x: 7.0 * x, lambda x: 1.0 / (-x) ** 0.5, x)

    for f, point, value, slope in (
        (constant, [-1.0, -4.0, 0.0], [7.0, 7.0, 7.0], 0.0),
        (linear, [1.0, 4.0, 9.0], [7.0, 28.0, 63.0], 7.0),
    ):
        x = h.array(point)
        h.assert_equal(f(x), value, f"{point}: the value")
        h.assert_value_and_grad(lambda x: _total(f(x)), (x,), sum(value), [slope] * 3, f"{point}")


@scenario(transform="grad", varies=True)
def where_of_structures(h: Checked) -> None:
    """Operands and results may be containers, and what no function uses has the gradient zero.

    Expect of a, b where a > b, else b, a, in a dict, with a = (2, 3, 4) and b = (3, 2, 4): the larger and the smaller;
    the gradient in a of the larger ones' sum is (0, 1, 0), and of an operand beside them zero.
    """
    h.require_hook("array_functions")
    a, b, c = h.array([2.0, 3.0, 4.0]), h.array([3.0, 2.0, 4.0]), h.array([1.0, 1.0, 1.0])

    def ordered(a: Any, b: Any, c: Any) -> Any:
        return adprotocol.where(
            a > b,
            lambda pair, _: {"larger": pair[0], "smaller": pair[1]},
            lambda pair, _: {"larger": pair[1], "smaller": pair[0]},
            (a, b),
            {"beside": c},
        )

    found = ordered(a, b, c)
    h.assert_equal(found["larger"], [3.0, 3.0, 4.0], "the larger")
    h.assert_equal(found["smaller"], [2.0, 2.0, 4.0], "the smaller")
    h.assert_equal(h.grad(lambda a: _total(ordered(a, b, c)["larger"]))(a), [0.0, 1.0, 0.0], "in a")
    h.assert_equal(h.grad(lambda b: _total(ordered(a, b, c)["larger"]))(b), [1.0, 0.0, 1.0], "in b")
    h.assert_equal(h.grad(lambda c: _total(ordered(a, b, c)["larger"]))(c), [0.0, 0.0, 0.0], "in what is not used")


@scenario(transform="grad")
def where_runs_once(h: Checked) -> None:
    """Each function runs once, whatever the mask has, and a bool as a mask is a `cond`.

    Expect one run of each for the value and for each run in a gradient; under True and False a run of the one alone.
    """
    h.require_hook("array_functions")
    x = h.array(POINT)
    ran: list[str] = []

    def larger(x: Any) -> Any:
        ran.append("larger")
        return 3.0 * x

    def smaller(x: Any) -> Any:
        ran.append("smaller")
        return 5.0 * x

    h.assert_equal(adprotocol.where(x > 0.0, larger, smaller, x), [0.0, 12.0, -5.0])
    h.check(sorted(ran) == ["larger", "smaller"], f"these ran: {ran}")
    ran.clear()

    def loss(x: Any) -> Any:
        ran.append("loss")
        return _total(adprotocol.where(x > 0.0, larger, smaller, x))

    h.assert_equal(h.grad(loss)(x), [5.0, 3.0, 5.0], "the gradient")
    # By forward mode it takes a run for each element.
    want = sorted(["loss", "larger", "smaller"] * ran.count("loss"))
    h.check(sorted(ran) == want, f"in a gradient these ran: {ran}")
    for mask, only in ((True, "larger"), (False, "smaller")):
        ran.clear()
        adprotocol.where(mask, larger, smaller, x)
        h.check(ran == [only], f"for {mask} these ran: {ran}")


@scenario(transform="grad")
def where_refuses(h: Checked) -> None:
    """A mask of numbers is refused, and functions that return different structures.

    Expect an error that says what is wrong, inside a gradient and outside of it.
    """
    h.require_hook("array_functions")

    def numbers(x: Any) -> Any:
        return _total(adprotocol.where(x, lambda x: x, lambda x: 2.0 * x, x))

    def structures(x: Any) -> Any:
        return _total(adprotocol.where(x > 0.0, lambda x: x, lambda x: (x, x), x))

    x = h.array(POINT)
    for f, error, word in ((numbers, PredicateError, "where"), (structures, BranchMismatchError, "where")):
        for call in (f, h.grad(f)):
            with h.raises(error, words=[word]):
                call(x)


def _sum(h: Checked, y: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum of all elements, by indexing if the system has no other."""
    if h.has("sum"):
        return h.sum(y)
    return functools.reduce(operator.add, [_sum(h, y[i], shape[1:]) for i in range(shape[0])]) if shape else y


@scenario(transform="grad")
def where_closes_over(h: Checked) -> None:
    """A factor that both functions close over has the gradient of the function chosen at each element.

    Expect of a sqrt(x - 1) where the mask is true, else 2 a x, at a = 3 the sum of all elements, and its gradient by a:
    2 where x = 5 is chosen, 1 where x = 1/2 is not. One element of the mask is true, not the first, along rows,
    columns or both: what stands in for x where it is not chosen has a root, as 1/2 has not.
    """
    import numpy as np

    h.require_hook("array_functions")
    for of_mask, shape in (((2, 3), (2, 3)), ((2, 3, 1), (2, 3, 2)), ((3,), (2, 3)), ((2, 1), (2, 3))):
        for place in range(1, math.prod(of_mask), 2):
            mask = np.arange(math.prod(of_mask)).reshape(of_mask) == place
            chosen = np.broadcast_to(mask, shape)
            x, given = h.array(np.where(chosen, 5.0, 0.5).tolist()), h.array(mask.tolist())

            def f(a: Any, x: Any = x, given: Any = given, shape: Any = shape) -> Any:
                y = adprotocol.where(given, lambda x: a * (x - 1.0) ** 0.5, lambda x: 2.0 * a * x, x)
                return _sum(h, y, shape)

            total = float(np.where(chosen, 2.0, 1.0).sum())
            h.assert_value_and_grad(f, (h.array(3.0),), 3.0 * total, total, f"element {place} of {of_mask}")


@scenario(needs=("dtypes", "cast"))
def where_of_each_dtype(h: Checked) -> None:
    """The result has the dtype of the operand, beside Python numbers and those that the library hands in.

    Expect of x x where x > 1, else x + x or 0.5, at (0, 4): (0, 16) or (0.5, 16) in each dtype.
    """
    h.require_hook("array_functions")
    for dtype in dtypes_of_numpy(h):
        x = h.cast(h.array([0.0, 4.0]), dtype)
        for other, want in ((lambda x: x + x, 0.0), (lambda _: 0.5, 0.5)):
            found = adprotocol.where(x > 1.0, lambda x: x * x, other, x)
            h.assert_equal(found, [want, 16.0], f"the value in {dtype}")
            h.check(h.numpy(found).dtype.name == dtype, f"the value in {dtype} has the dtype {h.numpy(found).dtype}")


@scenario(transform="grad")
def where_closes_over_nowhere(h: Checked) -> None:
    """What a function closes over that is chosen at no element has the gradient zero.

    Expect of w / (a - b) where a > b, else b, with a = (1, 2, 3) and b = (4, 4, 4): plus w: the gradient 1 by w at 2.
    """
    h.require_hook("array_functions")
    a, b = h.array([1.0, 2.0, 3.0]), h.array([4.0, 4.0, 4.0])

    def f(w: Any) -> Any:
        return w + _total(adprotocol.where(a > b, lambda a, b: w / (a - b), lambda _, b: b, a, b))

    h.assert_value_and_grad(f, (h.array(2.0),), 14.0, 1.0)
