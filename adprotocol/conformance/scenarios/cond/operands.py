"""Operands that the chosen branch does not use, and values that it closes over: neither changes anything else."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.cond.derivatives import FAR

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


# What branches of a module read besides their operands.
_PARAMETERS: dict[str, Any] = {}


scenario: Decorator = defaults(
    "cond",
    rule="C4",
    source="JAX: where and the gradient of what is not selected: https://github.com/jax-ml/jax/issues/1052",
)


def _predicates(h: Checked, truth: bool) -> tuple[Any, Any]:
    return truth, h.array(truth)


def _first(pred: Any, x: Any, y: Any) -> Any:
    """Return x by the branch that is chosen, y by the other."""
    return adprotocol.cond(pred, lambda x, _: x, lambda _, y: y, x, y)


@scenario()
def unused_operand_changes_no_value(h: Checked) -> None:
    """What an operand of the other branch holds does not reach the value, not even the sign of a zero.

    Expect -0.0 with its sign and 2, beside operands NaN, infinity and -0.0 of the other branch; so in either branch.
    """
    for other in (math.nan, math.inf, -math.inf, 0.0, -0.0):
        for used in (-0.0, 2.0):
            x, y = h.array(used), h.array(other)
            for truth, operands in ((True, (x, y)), (False, (y, x))):
                for pred in _predicates(h, truth):
                    _same(h, _first(pred, *operands), used, f"{used} beside {other}")


def _same(h: Checked, got: Any, want: float, what: str) -> None:
    h.assert_equal(got, want, what)
    h.check(math.copysign(1.0, h.numpy(got)) == math.copysign(1.0, want), f"the sign of {what} is lost")


@scenario(transform="grad", varies=True)
def unused_operand_changes_no_gradient(h: Checked) -> None:
    """A tracked operand of the other branch that is NaN or infinite reaches neither the value nor a gradient.

    Expect x at -0.0 and at 2, beside a tracked operand of the other branch, NaN or infinite: the value with its sign,
    the gradient 1 in x and 0 in the other.
    """
    for other in (math.nan, math.inf, -0.0):
        for used in (-0.0, 2.0):
            x, y = h.array(used), h.array(other)
            for pred in _predicates(h, True):
                h.assert_equal(h.grad(lambda x: _first(pred, x, y))(x), 1.0, f"in x = {used}, beside {other}")
                h.assert_equal(h.grad(lambda y: _first(pred, x, y))(y), 0.0, f"in {other}, beside {used}")
                if h.has("value_and_grad") and "grad" not in h.variant:
                    value, _ = h.value_and_grad(lambda y: _first(pred, x, y))(y)
                    _same(h, value, used, f"the value {used}, in the gradient of {other},")


@scenario(transform="grad of {way}")
def unused_operand_changes_nothing(h: Checked, way: str) -> None:
    """With a staged predicate, too, an operand of the other branch that is NaN reaches nothing, under {way}.

    Expect x where x < 100, else y, under {way}: at 2 beside NaN and infinity the value 2, the gradients 1 and 0.
    """
    traced = h.trace(way, lambda x, y: _first(x < FAR, x, y))
    x = h.array(2.0)
    for other in (math.nan, math.inf):
        y = h.array(other)
        h.assert_value_and_grad(lambda x: traced(x, y), (x,), 2.0, 1.0, f"in x, beside {other}")
        h.assert_value_and_grad(lambda y: traced(x, y), (y,), 2.0, 0.0, f"in {other}")


@scenario(rule="C5", transform="grad")
def constant_result_is_untracked(h: Checked) -> None:
    """With a known predicate a constant that a branch returns stays one, whatever the operands are.

    Expect False for the array 7, the number 7, an integer and the constant of x x that a branch returns beside a
    tracked operand, True for 3 x: twice 1 x.
    """
    h.assert_value_and_grad(lambda x: _constants(h, x), (h.array(2.0),), 4.0, 2.0)


@scenario(rule="C5", transform="jvp")
def constant_result_is_untracked_in_forward_mode(h: Checked) -> None:
    """In forward mode, too, a constant that a branch returns stays one.

    Expect False for the array 7, the number 7, an integer and the constant of x x that a branch returns beside a
    tracked operand, True for 3 x: twice 1 x.
    """
    h.assert_value_and_tangent(lambda x: _constants(h, x), h.array(2.0), h.array(1.0), 4.0, 2.0)


def _constants(h: Checked, x: Any) -> Any:
    """Return x for each predicate, and 10 x more for each constant that is tracked."""
    seven, integer = h.array(7.0), h.array(7)
    branches = (lambda _: seven, lambda _: 7.0, lambda _: integer, lambda x: adprotocol.non_differentiable(x * x))
    total = 0.0
    for pred in _predicates(h, True):
        for branch in branches:
            total = total + 10.0 * h.digit(adprotocol.cond(pred, branch, lambda x: x * x, x))
        total = total + h.digit(adprotocol.cond(pred, lambda x: 3.0 * x, lambda _: seven, x))
    return total * x


_CLOSES: tuple[tuple[str, Callable[[Any, Any], Any], float, float], ...] = (
    ("c x", lambda c, x: c * x, 12.0, 4.0),
    ("x x + c", lambda c, x: x * x + c, 13.0, 6.0),
)


@scenario(rule="C6", transform="grad", varies=True)
def closes_over_beside_plain_operands(h: Checked) -> None:
    """What a branch closes over is differentiated, although every operand is a constant.

    Expect c x, or x x + c, with x = 3 closed over and the plain operand c = 4: the gradients 4 and 6 in x.
    """
    c = h.array(4.0)
    for name, branch, value, slope in _CLOSES:
        for truth in (True, False):
            for pred in _predicates(h, truth):

                def f(x: Any, pred: Any = pred, branch: Any = branch) -> Any:
                    return adprotocol.cond(pred, lambda c: branch(c, x), lambda c: branch(c, x), c)

                h.assert_value_and_grad(f, (h.array(3.0),), value, slope, f"{name}, {truth}")


@scenario(rule="C6", transform="grad of jit")
def closes_over_beside_staged_operands(h: Checked) -> None:
    """Staged branches are differentiated in what they close over, although every operand is a constant.

    Expect c x where c > 0, else x x + c, under jit, with a tracked x = 3 closed over: 4 at c = 4, 6 at c = -4.
    """

    def f(x: Any, c: Any) -> Any:
        return h.jit(lambda c: adprotocol.cond(c > 0.0, lambda c: c * x, lambda c: x * x + c, c))(c)

    h.assert_value_and_grad(f, (h.array(3.0), h.array(4.0)), 12.0, 4.0, "at c = 4")
    h.assert_value_and_grad(f, (h.array(3.0), h.array(-4.0)), 5.0, 6.0, "at c = -4")


@scenario(rule="C6", transform="grad of vmap")
def closes_over_beside_plain_rows(h: Checked) -> None:
    """Rows are differentiated in what the branches close over, although every operand is a constant.

    Expect rows of c x where c > 0, else x x + c, with x = 3 closed over, at c = (4, -4): 17, the gradient 10.
    """
    c = h.array([4.0, -4.0])

    def f(x: Any) -> Any:
        return h.sum_of_rows(lambda c: adprotocol.cond(c > 0.0, lambda c: c * x, lambda c: x * x + c, c), c)

    h.assert_value_and_grad(f, (h.array(3.0),), 17.0, 10.0)


@scenario(
    rule="C6",
    needs=("parameter", "parameter_grad"),
    source="TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff",
)
def closes_over_parameter_beside_plain_operands(h: Checked) -> None:
    """A parameter that a branch reads is differentiated, although every operand is a constant.

    Expect c p, or p p + c, with the parameter p = 3 closed over and the plain operand c = 4: the gradients 4 and 6.
    """
    p, c = h.parameter(3.0, trains=True), h.array(4.0)
    for name, branch, _, slope in _CLOSES:
        for pred in (*_predicates(h, True), *_predicates(h, False)):

            def f(pred: Any = pred, branch: Any = branch) -> Any:
                return adprotocol.cond(pred, lambda c: branch(c, p), lambda c: branch(c, p), c)

            h.assert_equal(h.parameter_grad(f, p), slope, f"the gradient of {name}")


def _scaled(x: Any) -> Any:
    return x * _PARAMETERS["w"]


def _shifted(x: Any) -> Any:
    return x + _PARAMETERS["w"]


@scenario(
    rule="C11",
    transform=("grad", "grad of jit"),
    source="JAX: functions that read globals: https://docs.jax.dev/en/latest/notebooks/Common_Gotchas_in_JAX.html",
)
def reads_parameters_anew(h: Checked, transforms: str) -> None:
    """Branches that a module defines read a parameter there as it is in this call, under {transforms}.

    Expect of the square of w x where x > 0, else of w + x, the gradient 2 w x x, else 2 (w + x), for w = 2 and then 3.
    """

    def loss(w: Any, x: Any) -> Any:
        _PARAMETERS["w"] = w
        chosen = adprotocol.cond(x > 0.0, _scaled, _shifted, x)
        return chosen * chosen

    for w in (2.0, 3.0):
        for x, slope in ((4.0, 32.0 * w), (-4.0, 2.0 * (w - 4.0))):
            of_w: Callable[[Any], Any] = partial(loss, x=h.array(x))
            got = h.nest(transforms, of_w)(h.array(w))
            h.assert_equal(got, slope, f"the gradient at w = {w}, x = {x}")
    _PARAMETERS.clear()


@scenario(transform="grad", needs=("grad", "grad of grad"), varies=True)
def each_operand_is_connected(h: Checked) -> None:
    """Each operand, in whichever place, has its own derivative, zero included, and so has that derivative.

    Of a a b by cond at (2, 3, 4, 5) expect the gradients 2 a b = 12, a a = 4, 0 and 0, and 6 of the first in a; of c d
    in the other branch 0, 0, 5 and 4.
    """
    a, b, c, d = (h.array(value) for value in (2.0, 3.0, 4.0, 5.0))

    def first(a: Any, b: Any, *_: Any) -> Any:
        return a * a * b

    def second(_a: Any, _b: Any, c: Any, d: Any) -> Any:
        return c * d

    def f(pred: bool, *values: Any) -> Any:
        return adprotocol.cond(pred, first, second, *values)

    for pred, slopes in ((True, (12.0, 4.0, 0.0, 0.0)), (False, (0.0, 0.0, 5.0, 4.0))):
        for place, want in enumerate(slopes):

            def moved(x: Any, place: int = place, pred: bool = pred) -> Any:
                values = [a, b, c, d]
                values[place] = x
                return f(pred, *values)

            h.assert_equal(h.grad(moved)((a, b, c, d)[place]), want, f"the gradient of operand {place}, {pred}")
    h.assert_equal(h.grad(h.grad(lambda a: f(True, a, b, c, d)))(a), 6.0, "the second derivative")


@scenario(transform="grad", varies=True)
def operands_in_containers(h: Checked) -> None:
    """Operands in containers, of which each has its own derivative, whichever branch is taken.

    Of a b c in a dict with a list at (2, 3, 4) expect the gradients 12, 8 and 6 of the array in each place; of the
    number 5 zeros.
    """
    values = [h.array(value) for value in (2.0, 3.0, 4.0)]
    for truth, slopes in ((True, (12.0, 8.0, 6.0)), (False, (0.0, 0.0, 0.0))):
        for place, want in enumerate(slopes):

            def f(x: Any, place: int = place, truth: bool = truth) -> Any:
                a, b, c = (x if i == place else value for i, value in enumerate(values))
                operands: Any = {"a": a, "list": [b, {"c": c}]}
                return adprotocol.cond(
                    truth, lambda m: m["a"] * m["list"][0] * m["list"][1]["c"], lambda _: 5.0, operands
                )

            h.assert_equal(h.grad(f)(values[place]), want, f"the gradient in place {place}, {truth}")


@scenario(
    level=SHOULD,
    needs=("dtypes", "cast"),
    source="PyTorch: promotion of types: https://docs.pytorch.org/docs/stable/tensor_attributes.html",
)
def keeps_the_dtype(h: Checked) -> None:
    """The result has the dtype that the branch returns, whatever the dtypes of the operands.

    Expect the dtype that the branch gives when it is called alone: each floating-point dtype, integers and bools,
    beside operands of other dtypes.
    """
    branches: tuple[Callable[..., Any], ...] = (
        lambda x, *_: x * x,
        lambda *values: values[1],
        lambda *values: values[2],
        lambda *values: values[3],
    )
    wide, n, flag = h.array([1000.1, 3.0]), h.array([4, 5]), h.array([True, False])
    for dtype in h.dtypes():
        x = h.cast(h.array([2.0, 3.0]), dtype)
        for branch in branches:
            want = h.numpy(branch(x, wide, n, flag)).dtype
            for pred in (*_predicates(h, True), *_predicates(h, False)):
                found = h.numpy(adprotocol.cond(pred, branch, branch, x, wide, n, flag)).dtype
                h.assert_equal(adprotocol.cond(pred, lambda _, w: w, lambda _, w: w, x, wide), [1000.1, 3.0])
                h.check(
                    found == want, f"the result beside x of {dtype} has dtype {found.name}; {want.name} was expected"
                )


@scenario(
    level=SHOULD,
    transform="grad",
    needs=("grad", "dtypes", "cast"),
    source="PyTorch: promotion of types: https://docs.pytorch.org/docs/stable/tensor_attributes.html",
)
def keeps_the_dtype_in_a_gradient(h: Checked) -> None:
    """Tracked operands of several dtypes have gradients of their own dtypes.

    Expect x x and its gradient in the dtype of x, beside an operand of each other dtype; rows of x x or x too.
    """
    for dtype in h.dtypes():
        for other in h.dtypes():
            x, y = h.cast(h.array([2.1, 3.0]), dtype), h.cast(h.array([4.0, 5.0]), other)

            def f(x: Any, y: Any) -> Any:
                return adprotocol.cond(True, lambda x, _: x * x, lambda x, _: x, x, y)[0]

            if h.has("value_and_grad"):
                value, due = h.numpy(h.value_and_grad(f)(x, y)[0]), h.numpy((x * x)[0])
                what = f"the value, x x of {dtype} beside {other},"
                same = (value.dtype, value.item()) == (due.dtype, due.item())
                h.check(same, f"{what} is {value} of {value.dtype}; {due} of {due.dtype} was expected")
            for place, leaf in enumerate((x, y)):
                found = h.grad(f if place == 0 else lambda y: f(x, y))(*((x, y) if place == 0 else (y,)))
                what = f"the gradient of operand {place}, x of {dtype} beside {other},"
                dtypes = h.numpy(found).dtype, h.numpy(leaf).dtype
                h.check(dtypes[0] == dtypes[1], f"{what} has dtype {dtypes[0].name}, and the operand {dtypes[1].name}")
        if h.has("vmap"):
            rows = h.cast(h.array([2.0, 3.0]), dtype)
            names = _dtypes_of_rows(h, lambda x: adprotocol.cond(x > 1.0, lambda: x * x, lambda: x), rows)
            # PyTensor's own selection computes the gradients of float32 in double precision.
            own = _dtypes_of_rows(h, lambda x: h.where(x > 1.0, x * x, x) if h.has("where") else x * x, rows)
            h.check(names == own, f"the derivatives of rows of {dtype} have the dtypes {names}; {own} was expected")


def _dtypes_of_rows(h: Checked, row: Callable[[Any], Any], rows: Any) -> list[str]:
    """Return the names of the dtypes of gradient and tangent, by vmap."""
    slopes = [h.grad(lambda x: h.vmap(row)(x)[0])(rows)]
    if h.has("jvp"):
        slopes.append(h.jvp(h.vmap(row), rows, rows)[1])
    return [h.numpy(slope).dtype.name for slope in slopes]


@scenario(
    level=SHOULD,
    rule="C3",
    transform="{way}",
    also_needs=("dtypes", "cast"),
    source="PyTorch: promotion of types: https://docs.pytorch.org/docs/stable/tensor_attributes.html",
)
def keeps_the_dtype_staged(h: Checked, way: str) -> None:
    """With a staged predicate the results have the dtypes of the branches, under {way}.

    Expect x x where an element of x is above 1, else x, and integers so chosen, under {way}: the dtypes of both.
    """
    n = h.array([4, 5])
    for dtype in h.dtypes():
        x = h.cast(h.array([2.0, 3.0]), dtype)
        found = h.trace(way, lambda x, n: adprotocol.cond(x[0] > 1.0, lambda x, _: x * x, lambda x, _: x, x, n))
        whole = h.trace(way, lambda x, n: adprotocol.cond(x[0] > 1.0, lambda _, n: n + n, lambda _, n: n, x, n))
        for traced, want in ((found, x * x), (whole, n + n)):
            dtypes = h.numpy(traced(x, n)).dtype, h.numpy(want).dtype
            h.check(dtypes[0] == dtypes[1], f"dtype {dtypes[0].name} came out; {dtypes[1].name} was expected")
