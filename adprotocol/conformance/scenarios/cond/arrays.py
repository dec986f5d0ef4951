"""Scalars, dtypes and arrays of many axes in branches."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios import arrays
from adprotocol.conformance.scenarios.arrays import assert_near, each_array, first_element
from adprotocol.conformance.scenarios.cond.predicates import assert_refused

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator

scenario: Decorator = defaults(
    "cond",
    rule="C4",
    transform="{way}",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)


_STATIC = "JAX: operands that are no arrays, closed over: https://docs.jax.dev/en/latest/_autosummary/jax.lax.cond.html"

_INTEGERS = (
    "PyTorch: integers from the branches of torch.cond: https://docs.pytorch.org/docs/stable/generated/torch.cond.html"
)
_DTYPES = "JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861"


def _power(x: Any, n: int, settings: dict[str, Any]) -> Any:
    """Return x to the power n, by n multiplications, and doubled where the settings say nothing else."""
    result = 1.0 * x
    for _ in range(n - 1):
        result = result * x
    return result * 2.0 if settings["factor"] is None else result


def _chosen(x: Any) -> Any:
    return adprotocol.cond(x > 0.0, _power, lambda x, n, _: x * float(n), x, 3, {"factor": None})


@scenario(rule="C8", transform="grad of {way}", source=_STATIC)
def integer_operand(h: Checked, way: str) -> None:
    """Branches of a staged cond may count with an integer and look for None among their operands.

    Expect 2 x ** 3, by a loop over an integer operand, where x > 0, else 3 x: 16 with the gradient 24 at 2, -6 with 3
    at -2.
    """
    traced = h.trace(way, _chosen)
    for point, value, slope in ((2.0, 16.0, 24.0), (-2.0, -6.0, 3.0)):
        h.assert_equal(traced(h.array(point)), value, f"the plain call at {point}")
        h.assert_value_and_grad(traced, (h.array(point),), value, slope, f"at {point}")


@scenario(rule="C8", transform="vmap of grad", needs=("grad", "vmap"), source=_STATIC)
def integer_operand_under_vmap(h: Checked) -> None:
    """Branches of a batched cond may count with an integer, look for None among operands, and return integers.

    Expect 2 x ** 3, by a loop over an integer operand, where x > 0, else 3 x, at 2 and -2: gradients 24 and 3; the
    integers 2 and 1; 2 and 0.5, whichever is first.
    """
    rows, one = h.array([2.0, -2.0]), h.array(1)
    h.assert_equal(h.vmap(h.grad(_chosen))(rows), [24.0, 3.0], "the gradients")
    found = h.numpy(h.vmap(lambda x: adprotocol.cond(x > 0.0, lambda: 2, lambda: 1) * one)(rows))
    h.assert_equal(found, [2, 1], "the integers")
    h.check(found.dtype.kind in "iu", f"integers from both branches became {found.dtype.name}")
    for sign in (1.0, -1.0):
        mixed = h.vmap(lambda x: adprotocol.cond(sign * x > 0.0, lambda: 2, lambda: 0.5) * (1.0 + 0.0 * x))  # noqa: B023
        h.assert_equal(mixed(sign * rows), [2.0, 0.5], "a fraction beside an integer")
        swapped = h.vmap(lambda x: adprotocol.cond(sign * x > 0.0, lambda: 0.5, lambda: 2) * (1.0 + 0.0 * x))  # noqa: B023
        h.assert_equal(swapped(sign * rows), [0.5, 2.0], "an integer beside a fraction")


@scenario(level=SHOULD, rule="C5", source=_INTEGERS)
def integers_from_both_branches(h: Checked, way: str) -> None:
    """Of what both branches of a staged cond return integers are integers, and flags are predicates.

    Expect 2 or 1 times an integer array, by the sign of x: integers, which are no predicates; True or False by it: then
    3 x, else 5 x; 2 or 1 alone; the integer 1 beside an integer array 7, in either order; 2.5 beside one is 2.5, or an
    error.
    """

    def count(x: Any) -> Any:
        return adprotocol.cond(x > 0.0, lambda: 2, lambda: 1) * h.array(1)

    def flagged(x: Any) -> Any:
        positive = adprotocol.cond(x > 0.0, lambda: True, lambda: False)
        return adprotocol.cond(positive, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

    mixed: Any = None
    with contextlib.suppress(Exception):  # of a mismatch; in a compiled function that is an error of the compiler's
        mixed = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda: h.array(1), lambda: 2.5))(h.array(-2.0))
    if mixed is not None:
        h.assert_equal(mixed, 2.5, "a fraction beside an integer")
    first = h.trace(way, lambda x: adprotocol.cond(x < 0.0, lambda: 1, lambda: h.array(7)))
    second = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda: h.array(7), lambda: 1))
    for point, number in ((2.0, 7), (-2.0, 1)):
        for beside in (first, second):
            found = h.numpy(beside(h.array(point)))
            h.assert_equal(found, number, f"an integer beside an array of them, at {point}")
            h.check(found.dtype.kind in "iu", f"an integer beside an array of them became {found.dtype.name}")
    counted, branched = h.trace(way, count), h.trace(way, flagged)
    alone = h.trace(way, lambda x: adprotocol.cond(x > 0.0, lambda: 2, lambda: 1))
    assert_refused(lambda: h.trace(way, lambda x: adprotocol.cond(count(x), lambda: x, lambda: x))(h.array(2.0)))
    for point, number, value in ((2.0, 2, 6.0), (-2.0, 1, -10.0)):
        found = h.numpy(counted(h.array(point)))
        h.assert_equal(found, number, f"the integer at {point}")
        h.check(found.dtype.kind in "iu", f"integers from both branches became {found.dtype.name}")
        h.assert_equal(branched(h.array(point)), value, f"what a flag chooses at {point}")
        h.assert_equal(alone(h.array(point)), number, f"the integer alone at {point}")


@scenario(transform="grad", needs=("grad", "dtypes", "cast"), source=_DTYPES)
def each_dtype_and_shape(h: Checked) -> None:
    """Branches take and return variables of each floating-point dtype and shape.

    Expect 3 x where an element is above 1, else x - x: the gradient 3, for each floating-point dtype and shape.
    """
    for what, x in each_array(h):

        def f(x: Any) -> Any:
            return adprotocol.cond(first_element(x) > 1.0, lambda x: 3.0 * x, lambda x: x - x, x)

        assert_near(h, f(x), 6.0, f"plain, {what}")
        assert_near(h, first_element(h.grad(lambda x, f=f: first_element(f(x)))(x)), 3.0, what)


@scenario(rule="C5", also_needs=("dtypes", "cast"), source=_DTYPES)
def number_beside_each_dtype(h: Checked, way: str) -> None:
    """A Python number from one branch agrees with an array of any dtype from the other, under {way}.

    Expect 2 x where x > 1, else the number 1.5: 4 at 2, 1.5 at 0.5, in the dtype of x, for each floating-point one.
    """
    first = h.trace(way, lambda x: adprotocol.cond(x < 1.0, lambda x: 1.5, lambda x: x + x, x))  # noqa: ARG005
    second = h.trace(way, lambda x: adprotocol.cond(x > 1.0, lambda x: x + x, lambda x: 1.5, x))  # noqa: ARG005
    for dtype in h.dtypes():
        for at, want in ((2.0, 4.0), (0.5, 1.5)):
            x = h.cast(h.array(at), dtype)
            assert_near(h, first(x), want, f"the number first, at {at}, {dtype}", like=x)
            assert_near(h, second(x), want, f"the number second, at {at}, {dtype}", like=x)


@scenario(transform="grad")
def ranks_of_operands(h: Checked) -> None:
    """Branches take and return variables of any rank, and an unused one has zeros of its shape.

    Expect 3 x or x y for x = 2 and y = 4 of one to four axes: value and gradients of the first element in both.
    """
    for shape in arrays.SHAPES:
        x, y = arrays.filled(h, shape, 2.0), arrays.filled(h, shape, 4.0)
        for truth, value, in_x, in_y in ((True, 6.0, 3.0, 0.0), (False, 8.0, 4.0, 2.0)):
            for pred in (truth, h.array(truth)):

                def f(x: Any, y: Any, pred: Any = pred) -> Any:
                    return adprotocol.cond(pred, lambda x, _: 3.0 * x, lambda x, y: x * y, x, y)

                what = f"{truth}, shape {shape}"
                h.assert_equal(f(x, y), arrays.nested(shape, value), f"the value, {what}")
                for slope, want in (
                    (h.grad(lambda x: arrays.first(f(x, y), shape))(x), in_x),  # noqa: B023
                    (h.grad(lambda y: arrays.first(f(x, y), shape))(y), in_y),  # noqa: B023
                ):
                    h.assert_equal(slope, arrays.corner(shape, want), f"the gradient, {what}")


@scenario(rule="C3", transform="vmap")
def ranks_of_rows(h: Checked) -> None:
    """Rows of any rank choose their branches.

    Expect rows of one to four axes, 3 x where the first element is above 0, else 5 x, at 2 and -2: 6 and -10.
    """
    for shape in arrays.SHAPES:
        rows = h.array([arrays.nested(shape, 2.0), arrays.nested(shape, -2.0)])

        def row(x: Any, shape: tuple[int, ...] = shape) -> Any:
            return adprotocol.cond(arrays.first(x, shape) > 0.0, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        want = [arrays.nested(shape, 6.0), arrays.nested(shape, -10.0)]
        h.assert_equal(h.vmap(row)(rows), want, f"rows of shape {shape}")


@scenario(transform="jvp")
def ranks_of_operands_in_forward_mode(h: Checked) -> None:
    """In forward mode, too, branches take and return variables of any rank.

    Expect 3 x, or x x, for x = 2 of one to four axes along ones: 6 with the tangent 3, 4 with the tangent 4.
    """
    for shape in arrays.SHAPES:
        x, along = arrays.filled(h, shape, 2.0), arrays.filled(h, shape, 1.0)
        for truth, value, slope in ((True, 6.0, 3.0), (False, 4.0, 4.0)):
            h.assert_value_and_tangent(
                lambda x: adprotocol.cond(truth, lambda x: 3.0 * x, lambda x: x * x, x),  # noqa: B023
                x,
                along,
                arrays.nested(shape, value),
                arrays.nested(shape, slope),
                f"{truth}, shape {shape}",
            )
