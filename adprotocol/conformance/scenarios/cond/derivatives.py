"""Derivatives through `cond`: those of the chosen branch, and nothing of the other, a NaN of it included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import Decorator, defaults
from adprotocol.conformance.scenarios.arrays import first_element
from adprotocol.conformance.scenarios.grid import X
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "cond",
    rule="C4",
    source="PyTorch, zeros in place of None: https://github.com/pytorch/pytorch/issues/141301",
    transform="grad",
)


_BATCHED = "JAX, NaN and a batched cond: https://github.com/jax-ml/jax/pull/5658"
_AUTOGRAD = "autograd, NaN of the other branch: https://github.com/HIPS/autograd/issues/802"
_NOT_SELECTED = "JAX: where and the gradient of what is not selected: https://github.com/jax-ml/jax/issues/1052"


def _root(x: Any) -> Any:
    """Return the root of x where x is positive, else 2 x: at 0 the derivative of the root is infinite."""
    return adprotocol.cond(x > 0.0, lambda x: x**0.5, lambda x: 2.0 * x, x)


@scenario(
    also_needs=("operations",), source="tinygrad: realize keeps no graph: https://docs.tinygrad.org/tensor/properties/"
)
def predicate_of_each_operation(h: Checked) -> None:
    """What a predicate is computed from keeps its derivative, by whichever operation it came about.

    Expect 3 y, where y is an element of the result of each operation of the harness and y ** 2 > -1: 3 times the
    system's own gradient.
    """
    v = h.array([2.0, 3.0])
    for name, operation in h.operations().items():

        def element(v: Any, operation: Any = operation) -> Any:
            return first_element(operation(v))

        def f(v: Any, element: Any = element) -> Any:
            y = element(v)
            return adprotocol.cond(y * y > -1.0, lambda: 3.0 * y, lambda: 5.0 * y)

        try:
            want = 3.0 * h.numpy(h.grad(element)(v))
        except Exception:  # noqa: BLE001, S112  (whatever it is, it is how the system refuses)
            continue
        if h.numpy(element(v)).dtype.kind == "c":
            continue
        h.assert_equal(h.grad(f)(v), want, f"{name}: the gradient")
        h.assert_equal(adprotocol.grad(f, backend=h.name)(v), want, f"{name}: our gradient")


@scenario(varies=True)
def unused_operand(h: Checked) -> None:
    """An operand that the chosen branch does not use has the gradient zero, not None.

    Expect a ** 2 or b ** 2 at a = 5, b = 3: the gradients in a and b are 10 and 0, or 0 and 6.
    """
    five, three = h.array(5.0), h.array(3.0)

    def f(a: Any, b: Any, pred: Any) -> Any:
        return adprotocol.cond(pred, lambda a, _: a * a, lambda _, b: b * b, a, b)

    for pred, value, first, second in ((True, 25.0, 10.0, 0.0), (False, 9.0, 0.0, 6.0)):
        for known in (pred, h.array(pred)):
            h.assert_value_and_grad(lambda a: f(a, three, known), (five,), value, first, f"{pred}, in a")
            h.assert_value_and_grad(lambda b: f(five, b, known), (three,), value, second, f"{pred}, in b")


@scenario(varies=True)
def unused_vector(h: Checked) -> None:
    """The zeros have the shape of the operand, also where the chosen branch returns a constant.

    Where the branch with v is not taken, v has no part in it: the gradient (1, 0) of 7 + v[0], and (0, 0) of an element
    of the constant (7, 7).
    """
    v, constant = h.array([2.0, 3.0]), h.array([7.0, 7.0])
    h.assert_value_and_grad(
        lambda v: adprotocol.cond(False, lambda v: v[0] * v[1], lambda _: 7.0, v) + v[0],
        (v,),
        9.0,
        [1.0, 0.0],
        "a Python number",
    )
    h.assert_value_and_grad(
        lambda v: adprotocol.cond(False, lambda v: v, lambda _: constant, v)[0],
        (v,),
        7.0,
        [0.0, 0.0],
        "an array",
    )


@scenario(transform="jvp", varies=True)
def unused_operand_forward_mode(h: Checked) -> None:
    """A constant chosen beside a variable has the tangent zero.

    Expect cond(p, a ** 2, 7) with a = x at 2: value 4 and tangent 4, or value 7 and tangent 0.
    """
    for pred, want, slope in ((True, 4.0, 4.0), (False, 7.0, 0.0)):

        def f(x: Any, pred: Any = pred) -> Any:
            return adprotocol.cond(pred, lambda x: x * x, lambda _: 7.0, x) + 0.0 * x

        h.assert_value_and_tangent(f, h.array(2.0), h.array(1.0), want, slope, f"{pred}")


@scenario("unused-operand", transform="grad of {way}")
def unused_operand_traced(h: Checked, way: str) -> None:
    """With a staged predicate the operand of the other branch has the gradient zero.

    Expect a ** 2 where a > 0, else b ** 2, under {way}: at a = 5, b = 3 it is 25, with the gradients 10 and 0; at a =
    -2 it is 9, with 0 and 6.
    """
    jitted = h.trace(way, lambda a, b: adprotocol.cond(a > 0.0, lambda a, _: a * a, lambda _, b: b * b, a, b))
    three = h.array(3.0)
    for a, value, first, second in ((5.0, 25.0, 10.0, 0.0), (-2.0, 9.0, 0.0, 6.0)):
        array = h.array(a)
        h.assert_value_and_grad(lambda x: jitted(x, three), (array,), value, first, f"at {a}, in a")
        h.assert_value_and_grad(lambda y: jitted(array, y), (three,), value, second, f"at {a}, in b")


@scenario(transform="grad of vmap", source=_BATCHED)
def unused_operand_under_vmap(h: Checked) -> None:
    """Each row has the derivative of its branch; a shared operand has the sum over the rows that use it.

    Expect the rows a ** 2 and k * a at a = (2, 3), k = 5: their sum is 19, with the gradient (4, 5) in a and 3 in k.
    """
    signs = h.array([1.0, -1.0])

    def f(a: Any, k: Any) -> Any:
        def row(a: Any, s: Any) -> Any:
            return adprotocol.cond(s > 0.0, lambda a, _: a * a, lambda a, k: k * a, a, k)

        return h.sum_of_rows(row, a, signs)

    a, k = h.array([2.0, 3.0]), h.array(5.0)
    h.assert_value_and_grad(f, (a, k), 19.0, [4.0, 5.0], "in a")
    h.assert_value_and_grad(lambda k: f(a, k), (k,), 19.0, 3.0, "in k")


@scenario(varies=True, source=_AUTOGRAD)
def infinite_slope_not_taken(h: Checked) -> None:
    """An infinite derivative in the other branch does not reach the gradient.

    Expect the root of x where x > 0, else 2 x: at 0 the value 0 and the gradient 2; at 4 the value 2 and 1 / 4.
    """
    h.assert_value_and_grad(_root, (h.array(0.0),), 0.0, 2.0, "at 0")
    h.assert_value_and_grad(_root, (h.array(4.0),), 2.0, 0.25, "at 4")


@scenario("infinite-slope-not-taken", transform="grad of {way}", source=_AUTOGRAD)
def infinite_slope_not_taken_traced(h: Checked, way: str) -> None:
    """With a staged predicate neither infinity nor NaN of the other branch reaches the gradient.

    Expect the root of x where x > 0, else 2 x, under {way}: the gradient 2 at 0, 1 / 4 at 4, and 2 at -1.
    """
    traced = h.trace(way, _root)
    for point, value, slope in ((0.0, 0.0, 2.0), (4.0, 2.0, 0.25), (-1.0, -2.0, 2.0)):
        h.assert_value_and_grad(traced, (h.array(point),), value, slope, f"at {point}")


@scenario(transform="grad of vmap", varies=True, source=_BATCHED)
def infinite_slope_not_taken_batched(h: Checked) -> None:
    """In a batch where rows differ neither infinity nor NaN of the other branch reaches a gradient.

    Expect rows of the root of x where x > 0, else 2 x, at (0, 4, -1), summed: 0, with the gradient (2, 1 / 4, 2).
    """
    v = h.array([0.0, 4.0, -1.0])
    h.assert_value_and_grad(lambda v: h.sum_of_rows(_root, v, rows=3), (v,), 0.0, [2.0, 0.25, 2.0])


@scenario(
    transform="vmap of grad of grad",
    needs=("grad", "vmap"),
    source="TensorFlow, the gradient of cond twice: https://github.com/tensorflow/tensorflow/issues/43631",
)
def infinite_slope_not_taken_second_order(h: Checked) -> None:
    """Second derivatives of a batch are those of the chosen branch alone.

    Expect second derivatives of the root of x where x > 0, else 2 x, at (0, 4, -1): (0, -1 / 32, 0).
    """
    h.assert_equal(h.vmap(h.grad(h.grad(_root)))(h.array([0.0, 4.0, -1.0])), [0.0, -1.0 / 32.0, 0.0])


@scenario(transform="jvp of vmap", source="JAX, NaN of the other branch: https://github.com/jax-ml/jax/issues/347")
def infinite_slope_not_taken_forward_mode(h: Checked) -> None:
    """Tangents of a batch are those of the chosen branch alone.

    Expect rows of the root of x where x > 0, else 2 x, at (0, 4, -1) along (1, 1, 1): the tangents (2, 1 / 4, 2).
    """
    points, along = h.array([0.0, 4.0, -1.0]), h.array([1.0, 1.0, 1.0])
    h.assert_value_and_tangent(h.vmap(_root), points, along, [0.0, 2.0, -2.0], [2.0, 0.25, 2.0])


@scenario(
    transform="grad of vmap",
    source="TensorFlow, infinity in the other branch: https://github.com/tensorflow/tensorflow/issues/38349",
)
def infinite_value_not_taken(h: Checked) -> None:
    """An infinite value in the other branch reaches no gradient, of an operand or of what is closed over.

    Expect rows of k / x where x > 0, else k * x, with k = 3 closed over, at (0, 2): their sum is 1.5, with the gradient
    0.5 in k and (3, -0.75) in x.
    """

    def f(k: Any, v: Any) -> Any:
        return h.sum_of_rows(lambda x: adprotocol.cond(x > 0.0, lambda x: k / x, lambda x: k * x, x), v)

    k, v = h.array(3.0), h.array([0.0, 2.0])
    h.assert_value_and_grad(f, (k, v), 1.5, 0.5, "in k")
    h.assert_value_and_grad(lambda v: f(k, v), (v,), 1.5, [3.0, -0.75], "in x")


@scenario(transform="grad of jit of vmap", source=_BATCHED)
def nan_not_taken_under_jit(h: Checked) -> None:
    """A NaN that no row takes reaches no gradient of the jitted batch.

    Expect rows of (x - x) / (x - x) where x > 9, else x ** 2, at (2, 3), summed under jit: 13, the gradient (4, 6).
    """

    def row(x: Any) -> Any:
        return adprotocol.cond(x - 9.0 > 0.0, lambda x: (x - x) / (x - x), lambda x: x * x, x)

    f = h.jit(lambda v: h.sum_of_rows(row, v))
    h.assert_value_and_grad(f, (h.array([2.0, 3.0]),), 13.0, [4.0, 6.0])


@scenario(
    source="ForwardDiff, derivatives where a branch changes: https://github.com/JuliaDiff/ForwardDiff.jl/issues/480"
)
def slope_at_the_edge(h: Checked) -> None:
    """At the edge the derivative is that of the branch taken, not a mean.

    Expect 3 x where x > 0, else 5 x, at 0: the gradient 5; where x >= 0: the gradient 3.
    """
    x = h.array(0.0)
    three, five = (lambda x: 3.0 * x), (lambda x: 5.0 * x)
    h.assert_value_and_grad(lambda x: adprotocol.cond(x > 0.0, three, five, x), (x,), 0.0, 5.0, "x > 0")
    h.assert_value_and_grad(lambda x: adprotocol.cond(x >= 0.0, three, five, x), (x,), 0.0, 3.0, "x >= 0")


@scenario()
def several_operands(h: Checked) -> None:
    """Every operand has its own derivative; being in the predicate adds none.

    Expect a * b * c where a > b, else a + 5 c: 24 at (3, 2, 4), with the gradients 8, 12 and 6; 21 at (1, 2, 4), with
    1, 0 and 5.
    """

    def f(a: Any, b: Any, c: Any) -> Any:
        return adprotocol.cond(a > b, lambda a, b, c: a * b * c, lambda a, _, c: a + 5.0 * c, a, b, c)

    for point, value, slopes in (((3.0, 2.0, 4.0), 24.0, (8.0, 12.0, 6.0)), ((1.0, 2.0, 4.0), 21.0, (1.0, 0.0, 5.0))):
        a, b, c = map(h.array, point)
        h.assert_value_and_grad(lambda a: f(a, b, c), (a,), value, slopes[0], f"at {point}, in a")
        h.assert_value_and_grad(lambda b: f(a, b, c), (b,), value, slopes[1], f"at {point}, in b")
        h.assert_value_and_grad(lambda c: f(a, b, c), (c,), value, slopes[2], f"at {point}, in c")


@scenario(
    transform="grad of grad",
    source="MLX, transformations inside of each other: https://ml-explore.github.io/mlx/build/html/usage/function_transforms.html",
)
def after_an_inner_gradient(h: Checked) -> None:
    """What a gradient inside has closed over is differentiated behind it, after a predicate of it was read.

    Expect 2 y for y = x ** 2 > 1, after a gradient inside that closes over y: 18 at 3, with the gradient 12.
    """

    def f(x: Any) -> Any:
        y = x * x
        h.grad(lambda z: z * y)(h.array(1.0))
        return adprotocol.cond(y > 1.0, lambda y: 2.0 * y, lambda y: y, y)

    h.assert_value_and_grad(f, (h.array(3.0),), 18.0, 12.0)


_NESTINGS = (
    "grad",
    "jvp",
    "grad of jit",
    "jit of grad",
    "jvp of jit",
    "grad of compile",
    "compile of grad",
    "vmap of grad",
    "grad of vmap",
    "jit of vmap of grad",
    "grad of jit of vmap",
    "jit of grad of vmap",
    "grad of grad",
    "jit of grad of grad",
    "grad of checkpoint",
    "grad of scan",
)


# Above all points, those of a batch included.
FAR = 100.0


def _bad(x: Any) -> Any:
    """Return 0 / 0 for every x."""
    return (x - x) / (x - x)


def _bad_root(x: Any) -> Any:
    """Return the square root of -x x: NaN, with a derivative that is NaN too."""
    return (-1.0 * x * x) ** 0.5


def _operand(x: Any) -> Any:
    def bad(x: Any, tree: Any) -> Any:
        return _bad_root(x) * _bad_root(tree["x"][0])

    return adprotocol.cond(x > FAR, bad, lambda x, tree: x * x * tree["x"][0], x, {"x": [x]})


def _closure(x: Any) -> Any:
    return adprotocol.cond(x > FAR, lambda: _bad_root(x), lambda: x * x * x)


def _of_a_result(x: Any) -> Any:
    squared = x * x
    return adprotocol.cond(x > FAR, lambda: _bad(squared), lambda: squared * x)


def _nested(x: Any) -> Any:
    return adprotocol.cond(
        x < FAR, lambda: adprotocol.cond(2.0 * x > FAR, lambda: _bad(x), lambda: x * x * x), lambda: _bad_root(x)
    )


_PROGRAMS: dict[str, dict[str, Any]] = {
    "operand": {"program": _operand, "what": "the root of -x x, an operand, and in a structure another"},
    "closure": {"program": _closure, "what": "the root of -x x, with x closed over"},
    "closed-over-result": {"program": _of_a_result, "what": "0 / 0 of x x, computed outside and closed over"},
    "nested": {"program": _nested, "what": "0 / 0 in a branch of a branch"},
}


def cube(x: float) -> list[float]:
    """Return the derivatives of x ** 3."""
    return [x**3, 3 * x**2, 6 * x, 6.0]


@scenario("nan-in-{name}", transform=_NESTINGS, params=_PROGRAMS, source=_NOT_SELECTED)
def untaken_nan(h: Checked, transforms: str, program: Callable[[Any], Any], what: str) -> None:
    """A NaN not taken, {what}, stays out under {transforms}.

    Expect {transforms} of x ** 3 at 2.5.
    """
    h.assert_equal(h.nest(transforms, program)(h.array(X)), nesting.expected(transforms, cube)(X)[0], what)


@scenario(transform=("grad of grad of vmap", "jvp of jvp of vmap"), source=_NOT_SELECTED)
def nan_among_rows_in_second_order(h: Checked, transforms: str) -> None:
    """A NaN not taken stays out where tangents and cotangents are differentiated again, under {transforms}.

    Expect {transforms} of x ** 3 at 2.5, with 0 / 0 in either branch, x x / x before and y z / y of both behind.
    """

    def f(x: Any) -> Any:
        x = x * x / x
        y = adprotocol.cond(x > FAR, lambda: _bad(x), lambda: x * x * x)
        z = adprotocol.cond(x < FAR, lambda: x * x * x, lambda: _bad(x))
        return y * z / y

    h.assert_equal(h.nest(transforms, f)(h.array(X)), nesting.expected(transforms, cube)(X)[0])


@scenario(
    transform=("grad of jit", "vmap of grad", "grad of vmap"),
    also_needs=("operations", "cast", "dtypes"),
    source=_NOT_SELECTED,
)
def complex_nan(h: Checked, transforms: str) -> None:
    """A complex NaN not taken stays out under {transforms}.

    Expect {transforms} of the real part of z ** 3 for the complex z of x, that of x ** 3, at 2.5; 0 / 0 of z is beside
    it.
    """
    lift = h.operations().get("complex")
    h.absent_if(lift is None, "the system names no operation from real numbers to complex ones")

    def real(z: Any) -> Any:
        return h.cast(z, h.dtypes()[0])

    def f(x: Any) -> Any:
        return real(adprotocol.cond(x > FAR, _bad, lambda z: z * z * z, lift(x)))

    want = nesting.expected(transforms, cube)(X)[0]
    h.require_native(lambda: h.nest(transforms, lambda x: real(lift(x) * lift(x) * lift(x)))(h.array(X)), want)
    h.assert_equal(h.nest(transforms, f)(h.array(X)), want)


@scenario(
    rule="C6",
    needs=NEEDS,
    source="TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff",
    transform="",
)
def parameters_in_branches(h: Checked) -> None:
    """Branches may read parameters, and what is not taken leaves no NaN in their gradient.

    Expect p ** 2 where the parameter p is above 1, else 2 p, with a NaN in a branch that is not taken: the gradient 6
    at 3, and 2 at 0.5.
    """
    for value, want in ((3.0, 6.0), (0.5, 2.0)):
        p = h.parameter(value, trains=True)

        def bad(p: Any = p) -> Any:
            return (p - p) / (p - p)

        def f(p: Any = p, bad: Any = bad) -> Any:
            chosen = adprotocol.cond(p > 1.0, lambda: p * p, lambda: 2.0 * p)
            return adprotocol.cond(p > FAR, bad, lambda: 1.0 * chosen)

        h.assert_equal(h.parameter_grad(f, p), want, f"the gradient at {value}")
