"""A constant has the value and the structure of what it is made of, whatever its dtype, rank and containers."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import adprotocol
from adprotocol.conformance.harness import PROMOTION
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios import arrays
from adprotocol.conformance.scenarios.arrays import assert_near, each_array, first_element
from adprotocol.conformance.scenarios.rules import noted
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults(
    "non_differentiable",
    rule="N1",
    transform="grad",
    source="JAX: a stop that did not look into containers did nothing: https://github.com/jax-ml/jax/pull/892",
)


_ESTIMATOR = "JAX, on the straight-through estimator: https://github.com/jax-ml/jax/issues/9032"
_ARRAYS = "JAX: what is no array is refused or left alone: https://github.com/jax-ml/jax/pull/2750"


@scenario(transform="", source=_ESTIMATOR)
def value_is_unchanged(h: Checked) -> None:
    """A constant has the bits, the shape and the dtype of the value.

    Expect each value bit for bit, -0, subnormal numbers, infinity and NaN included, with its shape and dtype.
    """
    for value in (-0.0, 1e-40, 1.0 / 3.0, float("inf"), float("nan"), 7, True, [[1.5, -2.5]], [], [0.1, -0.0]):
        array = h.array(value)
        before = h.numpy(array)
        after = h.numpy(adprotocol.non_differentiable(array))
        h.check(after.dtype == before.dtype, f"the constant of {value} has dtype {after.dtype}, not {before.dtype}")
        h.check(after.shape == before.shape, f"the constant of {value} has shape {after.shape}, not {before.shape}")
        h.check(after.tobytes() == before.tobytes(), f"the constant of {value} is {after}")


@scenario(source=_ESTIMATOR)
def value_is_unchanged_under_grad(h: Checked) -> None:
    """The sign of zero survives while the value is tracked.

    Expect x (1 / constant(x)) at x = -0: the gradient is 1 / -0 = -infinity, since the sign of 0 is kept.
    """
    import numpy as np

    slope = h.numpy(h.grad(lambda x: x * (1.0 / adprotocol.non_differentiable(x)))(h.array(-0.0)))
    h.check(bool(np.isneginf(slope)), f"the gradient is {slope}; 1 / -0 is -infinity")


@scenario(
    transform="grad of grad of grad",
    source="functorch, wrong second derivatives with detach: https://github.com/pytorch/functorch/issues/353",
)
def straight_through_third_derivative(h: Checked) -> None:
    """All orders of a straight-through estimator are those of its input.

    Of y ** 3 with y = x + constant(x ** 2 - x), at x = 2, where y is 4 expect the value 64 and the derivatives 48, 24
    and 6, as if y were x.
    """

    def f(x: Any) -> Any:
        y = x + adprotocol.non_differentiable(x * x - x)
        return y * y * y

    x = h.array(2.0)
    h.assert_value_and_grad(f, (x,), 64.0, 48.0, "first order")
    h.assert_equal(h.grad(h.grad(f))(x), 24.0, "the second derivative")
    h.assert_equal(h.grad(h.grad(h.grad(f)))(x), 6.0, "the third derivative")


@scenario(
    varies=True,
    source="Y. Bengio, N. Leonard, A. Courville, on gradients through stochastic neurons: https://arxiv.org/abs/1308.3432",
)
def straight_through_sign(h: Checked) -> None:
    """A quantiser built with cond passes the gradient through unchanged.

    Expect the signs of (0.5, -3), weighed with 1 and 10: 1 - 10 = -9, with the gradient (1, 10) of the values
    themselves.
    """

    def quantised(x: Any) -> Any:
        sign = adprotocol.cond(x > 0.0, lambda: 1.0, lambda: -1.0)
        return x + adprotocol.non_differentiable(sign - x)

    def f(v: Any) -> Any:
        return quantised(v[0]) + 10.0 * quantised(v[1])

    h.assert_value_and_grad(f, (h.array([0.5, -3.0]),), -9.0, [1.0, 10.0])


@scenario(
    transform="jvp",
    varies=True,
    source="PyTorch: detach, unlike no_grad, stops forward mode: https://github.com/pytorch/pytorch/issues/72202",
)
def forward_mode(h: Checked) -> None:
    """A constant has no tangent.

    constant(x ** 2) * x at 3, along 2, is 27 with the tangent 18; the constant alone is 9 with the tangent 0.
    """
    x, along = h.array(3.0), h.array(2.0)
    h.assert_value_and_tangent(lambda x: adprotocol.non_differentiable(x * x) * x, x, along, 27.0, 18.0)
    h.assert_value_and_tangent(
        lambda x: adprotocol.non_differentiable(x * x) + 0.0 * x, x, along, 9.0, 0.0, "the constant alone"
    )


@scenario(
    level=SHOULD,
    needs=("grad", "counter"),
    source="JAX: why softmax stops a value in the forward pass: "
    "https://docs.jax.dev/en/latest/_autosummary/jax.lax.stop_gradient.html",
)
def no_backward_pass_in_front(h: Checked) -> None:
    """Nothing in front of a stop is differentiated only to be discarded.

    No derivative of a function in front of the stop is computed; one is if the value is used beside it.
    """
    identity, count = h.counter()
    h.assert_equal(h.grad(lambda x: adprotocol.non_differentiable(identity(x)) * x)(h.array(3.0)), 3.0, "the gradient")
    h.check(count() == 0, f"the function in front of the stop was differentiated {count()} time(s)")
    h.grad(lambda x: adprotocol.non_differentiable(x) * identity(x))(h.array(3.0))
    h.check(count() > 0, "the counter does not count")


@scenario(
    transform="custom rule",
    needs=("grad", "custom_rule"),
    source="JAX: custom rules stop what they declare constant: https://github.com/jax-ml/jax/pull/2804",
)
def in_front_of_custom_rule(h: Checked) -> None:
    """A custom rule applied to a constant is not asked for a derivative.

    Of r(constant(x)) * x at 3, where r is x ** 2 with the rule 7, the gradient is r = 9; of r(x) * x it is 9 + 7 * 3 =
    30.
    """
    rule = h.custom_rule(lambda x: x * x, lambda x: 0.0 * x + 7.0)
    x = h.array(3.0)
    h.assert_value_and_grad(lambda x: rule(adprotocol.non_differentiable(x)) * x, (x,), 27.0, 9.0, "behind the stop")
    h.assert_value_and_grad(lambda x: rule(x) * x, (x,), 27.0, 30.0, "without a stop")


@scenario(
    rule="W9",
    varies=True,
    source="PyTorch: is a derivative wanted of this tensor: https://github.com/pytorch/pytorch/issues/84565",
)
def result_is_not_within_gradient(h: Checked) -> None:
    """A constant is not within a gradient; a result of it and a variable is.

    The answer is False for constant(x), and True for constant(x) x and for x; constant(x) has the gradient 0.
    """

    def f(x: Any) -> Any:
        c = adprotocol.non_differentiable(x)
        first, second, third = (h.digit(y) for y in (c, c * x, x))
        return (100.0 * first + 10.0 * second + third) * x

    h.assert_equal(h.grad(f)(h.array(2.0)), 11.0, "the gradient, whose digits are the answers for c, c x and x")
    h.assert_equal(h.grad(adprotocol.non_differentiable)(h.array(2.0)), 0.0, "the gradient of the constant alone")


@scenario(
    level=SHOULD,
    needs=("grad", PROMOTION),
    source="JAX: integer and boolean leaves beside differentiated ones: https://github.com/jax-ml/jax/issues/15861",
)
def untracked_stays_usable(h: Checked) -> None:
    """Constants of undifferentiated arrays, also of integers and booleans, compute as before.

    Expect constants of 2, of the integers (3, 4) and of True beside x = 5: 2 3 x = 30, with the gradient 6.
    """
    given = [h.array(value) for value in (2.0, [3, 4], True)]
    two, integers, true = made = [adprotocol.non_differentiable(array) for array in given]
    dtypes = [[h.numpy(array).dtype for array in arrays] for arrays in (made, given)]
    h.check(dtypes[0] == dtypes[1], f"constants of {dtypes[1]} have the dtypes {dtypes[0]}")

    def f(x: Any) -> Any:
        return adprotocol.cond(true, lambda x: two * integers[0] * x, lambda x: 0.0 * x, x)

    h.assert_value_and_grad(f, (h.array(5.0),), 30.0, 6.0)


@scenario(
    needs=("grad", "dtypes", "cast"),
    source="JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861",
)
def each_dtype_and_shape(h: Checked) -> None:
    """The constant of a variable of each floating-point dtype and shape has its value, and no derivative.

    Expect c x with c the constant of x, 2: the gradient 2 in one element, for each floating-point dtype and shape.
    """
    for what, x in each_array(h):
        assert_near(h, adprotocol.non_differentiable(x), 2.0, f"plain, {what}")
        found = h.grad(lambda x: first_element(adprotocol.non_differentiable(x) * x))(x)
        assert_near(h, first_element(found), 2.0, what)


@scenario(
    needs=("grad", "evaluate"), source="tinygrad: realize keeps no graph: https://docs.tinygrad.org/tensor/properties/"
)
def evaluated(h: Checked) -> None:
    """A constant stays one when its value is computed, or what is computed from it.

    Expect a constant of x ** 2 that is evaluated is still untracked: times 5 x it is 40 at 2, with the gradient 20;
    twice that constant gives 80 and 40, twice what nobody holds any more 160 and 80; so in our gradient.
    """

    def of_constant(x: Any) -> Any:
        c = adprotocol.non_differentiable(x * x)
        return h.probe(h.evaluate(2.0 * c)) * x

    def constant(x: Any) -> Any:
        c = adprotocol.non_differentiable(x * x)
        return h.probe(h.evaluate(c)) * x

    def no_longer_held(x: Any) -> Any:
        return h.probe(2.0 * h.evaluate(2.0 * adprotocol.non_differentiable(x * x))) * x

    x = h.array(2.0)
    for what, f, want in (
        ("a constant", constant, 20.0),
        ("computed from what nobody holds", no_longer_held, 80.0),
        ("computed from a constant", of_constant, 40.0),
    ):
        h.assert_value_and_grad(f, (x,), 2.0 * want, want, what)
        h.assert_equal(adprotocol.grad(f, backend=h.name)(x), want, f"{what}: our gradient")
    c = h.evaluate(adprotocol.non_differentiable(h.evaluate(x * x)))
    h.assert_value_and_grad(lambda x: h.probe(c) * x, (x,), 40.0, 20.0, "a constant from outside")


@scenario(
    needs=("grad", "operations"),
    source="JAX: complex numbers and derivatives: https://docs.jax.dev/en/latest/notebooks/autodiff_cookbook.html",
)
def of_each_operation(h: Checked) -> None:
    """The result of each operation of the harness, complex ones included, can be made constant.

    The constant of each operation's result has its value and is untracked, as is its result of a constant: 5 x, the
    gradient 5 in the first element.
    """
    v = h.array([2.0, 3.0])
    for name, operation in h.operations().items():
        try:
            h.grad(lambda v, operation=operation: noted([], operation(v), v[0]))(v)
        except Exception:  # noqa: BLE001, S112  (whatever it is, the system itself refuses the operation)
            continue
        h.assert_equal(adprotocol.non_differentiable(operation(v)), h.numpy(operation(v)), f"{name}: the value")
        made = operation(adprotocol.non_differentiable(2.0 * v))
        h.assert_untracked(adprotocol.within_gradient(made), f"what {name} makes of a constant")

        def f(v: Any, operation: Any = operation) -> Any:
            c = adprotocol.non_differentiable(v)
            return h.probe(v, adprotocol.non_differentiable(operation(v)), operation(c))[0]

        h.assert_equal(h.grad(f)(v), [5.0, 0.0], f"{name}: the gradient")


@scenario(source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html")
def ranks_under_grad(h: Checked) -> None:
    """The constant of a variable of any rank has its value and shape, and no derivative.

    Expect c x with c the constant of x, for x of one to four axes: the gradient 2 in the first element.
    """
    for shape in arrays.SHAPES:
        x = arrays.filled(h, shape, 2.0)
        h.assert_equal(adprotocol.non_differentiable(x), arrays.nested(shape, 2.0), f"plain, shape {shape}")

        def f(x: Any, shape: tuple[int, ...] = shape) -> Any:
            return arrays.first(adprotocol.non_differentiable(x) * x, shape)

        h.assert_equal(h.grad(f)(x), arrays.corner(shape, 2.0), f"the gradient, shape {shape}")


@scenario(
    transform="jvp",
    source="NumPy: arrays of any number of axes: https://numpy.org/doc/stable/reference/arrays.ndarray.html",
)
def ranks_under_jvp(h: Checked) -> None:
    """In forward mode, too, the constant of a variable of any rank has no derivative.

    Expect c x with c the constant of x, for x of one to four axes: 4 with the tangent 2 along ones.
    """
    for shape in arrays.SHAPES:
        x, along = arrays.filled(h, shape, 2.0), arrays.filled(h, shape, 1.0)
        want = arrays.nested(shape, 4.0), arrays.nested(shape, 2.0)
        h.assert_value_and_tangent(lambda x: adprotocol.non_differentiable(x) * x, x, along, *want, f"shape {shape}")


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    name: str


@dataclasses.dataclass(frozen=True)
class Model:
    """A frozen dataclass."""

    w: Any
    layers: int


@scenario(transform="", source=_ARRAYS, rule="N2")
def mixed_leaves(h: Checked) -> None:
    """Leaves that are not arrays come back as the identical object, functions undecorated.

    An int, a bool, a float, a string, None, a function and a class come back as the identical objects.
    """
    leaves = [10**30, True, 2.5, "a" * 50, None, mixed_leaves, Point]
    result = adprotocol.non_differentiable({"array": h.array([1.0, 2.0]), "leaves": leaves})
    h.assert_equal(result["array"], [1.0, 2.0], "the array")
    for got, leaf in zip(result["leaves"], leaves, strict=True):
        h.assert_is(got, leaf, f"the leaf {leaf!r:.20}")


@scenario(source=_ARRAYS, rule="N2")
def mixed_leaves_under_grad(h: Checked) -> None:
    """Beside a tracked array, too, the other leaves come back as the identical object.

    Of a dict with x, 2, a string and None, x becomes a constant and the others come back as they are expect constant(x)
    * 2 * x is 18 at 3, with the gradient 6.
    """
    name = "s" * 50

    def f(x: Any) -> Any:
        made = adprotocol.non_differentiable({"x": x, "n": 2, "s": name, "none": None})
        h.check(type(made) is dict and list(made) == ["x", "n", "s", "none"], f"the dict became {made!r:.200}")
        h.assert_is(made["s"], name, "the string")
        h.assert_is(made["none"], None, "None")
        h.check(type(made["n"]) is int, f"the integer became {kind_of(made['n'])}")
        return made["x"] * made["n"] * x

    h.assert_value_and_grad(f, (h.array(3.0),), 18.0, 6.0)


@scenario(
    transform="",
    source="JAX, keys of a dict that change their order: https://github.com/jax-ml/jax/issues/4085",
    rule="N2",
)
def container_types(h: Checked) -> None:
    """Containers keep their type, and dicts their order.

    Expect dicts in the order of their keys, lists, tuples, named tuples and dataclasses of the same class.
    """
    x = h.array(1.0)
    given: dict[str, Any] = {"z": [x], "a": (x,), "point": Point(x, "p"), "model": Model(x, 3), "empty": ({}, [], ())}
    result = adprotocol.non_differentiable(given)
    h.check(type(result) is dict, f"the result is {kind_of(result)}, not a dict")
    h.check(list(result) == list(given), f"the keys are {list(result)}, in place of {list(given)}")
    for key, value in given.items():
        got = result[key]
        h.check(type(got) is type(value), f"at {key!r} is {kind_of(got)}, not {kind_of(value)}")
    h.assert_equal(result["point"].x, 1.0, "the array of the named tuple")
    h.assert_equal(result["model"].w, 1.0, "the array of the dataclass")
    h.check(result["model"].layers == given["model"].layers, "a field of the dataclass is another")
    h.check(result["empty"] == given["empty"], f"the empty containers are {result['empty']!r:.60}")


@scenario(varies=True, rule="N2")
def nested_containers(h: Checked) -> None:
    """Every leaf is a constant, however deep it is.

    Expect x in a list, a tuple, a named tuple and a dataclass, each inside a dict, at 2: x^4 x, the gradient 16.
    """

    def f(x: Any) -> Any:
        made: Any = adprotocol.non_differentiable(
            {"list": [[x]], "deep": ({"t": (x,)},), "point": [Point(x, "p")], "model": (Model({"w": x}, 1),)}
        )
        product = made["list"][0][0] * made["deep"][0]["t"][0]
        return product * made["point"][0].x * made["model"][0].w["w"] * x

    h.assert_value_and_grad(f, (h.array(2.0),), 32.0, 16.0)


@scenario(
    needs=("grad", "node"),
    source="JAX, containers that users register: https://docs.jax.dev/en/latest/pytrees.html",
    rule="N2",
)
def registered_node(h: Checked) -> None:
    """A container that only the system's registry knows is walked too.

    Expect a node of (x, [x], "s") at 2: x ** 3 = 8, with the gradient 4; the class and the string are kept.
    """

    def f(x: Any) -> Any:
        given = h.node([x, [x], "s"])
        made = adprotocol.non_differentiable(given)
        h.check(type(made) is type(given), f"the node became {kind_of(made)}")
        first, (second,), name = made
        h.check(name == "s", f"the string became {name!r:.40}")
        return first * second * x

    h.assert_value_and_grad(f, (h.array(2.0),), 8.0, 4.0)


@scenario(
    needs=("grad", PROMOTION),
    source="JAX: integer leaves beside differentiated ones: https://github.com/jax-ml/jax/issues/15861",
    rule="N2",
)
def tracked_and_untracked(h: Checked) -> None:
    """A dict may hold tracked and untracked arrays, also of integers.

    Expect constants of x = 2, of 5 and of the integers (3, 4), multiplied with x: 2 * 5 * 3 * x is 60, with the
    gradient 30.
    """
    c, i = h.array(5.0), h.array([3, 4])

    def f(x: Any) -> Any:
        made = adprotocol.non_differentiable({"c": c, "x": x, "i": i})
        return made["x"] * made["c"] * made["i"][0] * x

    h.assert_value_and_grad(f, (h.array(2.0),), 60.0, 30.0)


@scenario(
    source="PyTorch, a stop in place where a new array was wanted: https://github.com/keras-team/keras-core/pull/417",
    rule="N2",
)
def container_is_not_changed(h: Checked) -> None:
    """The given container is not changed.

    After the constant of a dict and of a list in it was made, its x ** 2 at 3 still has the gradient 6.
    """

    def f(x: Any) -> Any:
        given = {"list": [x]}
        adprotocol.non_differentiable(given)
        h.assert_is(given["list"][0], x, "what the given list holds")
        return given["list"][0] * x

    h.assert_value_and_grad(f, (h.array(3.0),), 9.0, 6.0)


@scenario(transform="jvp", rule="N2")
def container_forward_mode(h: Checked) -> None:
    """The leaves of a container have no tangent.

    Expect {"a": [x], "b": x ** 2} gives a b x at 2: 16, with the tangent 8.
    """

    def f(x: Any) -> Any:
        made = adprotocol.non_differentiable({"a": [x], "b": x * x})
        return made["a"][0] * made["b"] * x

    h.assert_value_and_tangent(f, h.array(2.0), h.array(1.0), 16.0, 8.0)


@scenario(level=SHOULD, rule="N2")
def shared_leaf(h: Checked) -> None:
    """An array at two places is a constant at both, and is differentiated beside the container.

    Expect [x, x] and x beside it at 3: 27, with the gradient 9.
    """

    def f(x: Any) -> Any:
        first, second = adprotocol.non_differentiable([x, x])
        return first * second * x

    h.assert_value_and_grad(f, (h.array(3.0),), 27.0, 9.0)
