"""`NonDifferentiable`, the label: an array to compute with, a constant to every derivative and transformation."""

from __future__ import annotations

import copy
import operator
import pickle
from typing import Any

import adprotocol
from adprotocol import NonDifferentiable
from adprotocol.conformance.checks import Absent, Checked
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.messages import kind_of

scenario: Decorator = defaults(
    "non_differentiable",
    rule="N4",
    transform="grad",
    source="JAX, a type for what is not to be differentiated: https://github.com/jax-ml/jax/issues/2588",
)


@scenario(transform="")
def label_arithmetic(h: Checked) -> None:
    """Arithmetic with a label on either side gives the plain array.

    Expect + - * / ** and neg of a label of 6, an array or a number, with 2, an array of 2 and a label of 2, on either
    side.
    """
    for held, label in (("array", NonDifferentiable(h.array(6.0))), ("number", NonDifferentiable(6.0))):
        for kind, two in (("number", 2.0), ("array", h.array(2.0)), ("label", NonDifferentiable(h.array(2.0)))):
            results = {
                "+": (label + two, two + label, 8.0, 8.0),
                "-": (label - two, two - label, 4.0, -4.0),
                "*": (label * two, two * label, 12.0, 12.0),
                "/": (label / two, two / label, 3.0, 1.0 / 3.0),
                "**": (label**two, two**label, 36.0, 64.0),
            }
            for name, (left, right, want_left, want_right) in results.items():
                for side, got, want in (("left", left, want_left), ("right", right, want_right)):
                    what = f"{name} with a {kind}, the label of an {held} on the {side},"
                    h.check(not isinstance(got, NonDifferentiable), f"{what} gives a label")
                    h.assert_equal(got, want, what)
        h.assert_equal(-label, -6.0, "the negative")


@scenario("label-{name}keeps-dtype", transform="", params={"": {"numbers": (6, 4)}, "of-a-number-": {"numbers": (6,)}})
def label_dtype(h: Checked, numbers: tuple[int, ...]) -> None:
    """An operator gives the dtype that it gives with the array in the label, on whichever side that is.

    The label is of a vector, also of one of one element, which frameworks may take for a number. Expect the sum,
    difference and product with a vector, of floats and of integers.
    """
    for number in (float, int):
        pair, one = (h.array([number(item) for item in given]) for given in ((3, 2), numbers))
        for operate in (operator.add, operator.sub, operator.mul):
            for side, got, want in (
                ("left", operate(NonDifferentiable(one), pair), operate(one, pair)),
                ("right", operate(pair, NonDifferentiable(one)), operate(pair, one)),
            ):
                what = f"{operate.__name__} of {number.__name__}s, the label on the {side},"
                h.assert_equal(got, h.numpy(want), what)
                found, due = h.numpy(got).dtype, h.numpy(want).dtype
                h.check(found == due, f"{what} has dtype {found.name}; {due.name} was expected")


@scenario(transform="")
def label_comparison_and_indexing(h: Checked) -> None:
    """Comparisons and indices of a label give plain arrays.

    Expect a label of (1, 2, 3) compares elementwise with numbers and arrays, has a length and yields its elements.
    """
    array = h.array([1.0, 2.0, 3.0])
    label = NonDifferentiable(array)
    h.assert_equal(label > 1.5, [False, True, True], "label > 1.5")
    h.assert_equal(label <= array, [True, True, True], "label <= array")
    h.assert_equal(label == 2.0, [False, True, False], "label == 2")
    h.assert_equal(label == array, [True, True, True], "label == its array")
    h.assert_equal(label != NonDifferentiable(array), [False, False, False], "label != a label of the same")
    h.assert_equal(label[1], 2.0, "label[1]")
    h.assert_equal(label[1:], [2.0, 3.0], "label[1:]")
    h.check(not hasattr(array, "__len__") or len(label) == 3, "its length is not 3")
    h.assert_equal([h.numpy(element).item() for element in label], [1.0, 2.0, 3.0], "its elements")


@scenario(varies=True)
def label_of_tracked(h: Checked) -> None:
    """A label may hold a value being differentiated: no gradient passes through any way out of it.

    Expect NonDifferentiable(x) x, and with its value, and on the right, at 3: 9, with the gradient 3.
    """
    x = h.array(3.0)
    h.assert_value_and_grad(lambda x: NonDifferentiable(x) * x, (x,), 9.0, 3.0, "label * x")
    h.assert_value_and_grad(lambda x: x * NonDifferentiable(x), (x,), 9.0, 3.0, "x * label")
    h.assert_value_and_grad(lambda x: NonDifferentiable(x).value * x, (x,), 9.0, 3.0, "label.value * x")
    v = h.array([3.0, 4.0])
    h.assert_value_and_grad(lambda v: NonDifferentiable(v)[0] * v[1], (v,), 12.0, [0.0, 3.0], "label[0]")


@scenario(
    transform="grad of grad",
    source="JAX: nested gradients are all stopped: https://docs.jax.dev/en/latest/_autosummary/jax.lax.stop_gradient.html",
)
def label_at_every_level(h: Checked) -> None:
    """The value in a label is constant for all surrounding gradients.

    The gradient in y of label(x * y) * y * x at x = 2, y = 3 is 6 * x = 12, and its derivative in x is 6.
    """

    def inner(x: Any) -> Any:
        return h.grad(lambda y: NonDifferentiable(x * y) * y * x)(h.array(3.0))

    h.assert_value_and_grad(inner, (h.array(2.0),), 12.0, 6.0)


@scenario(
    transform="jvp",
    source="PyTorch: detach, unlike no_grad, stops forward mode: https://github.com/pytorch/pytorch/issues/72202",
)
def label_forward_mode(h: Checked) -> None:
    """A value taken out of a label has no tangent.

    Expect NonDifferentiable(x ** 2) x at 2: 8, with the tangent 4.
    """
    h.assert_value_and_tangent(lambda x: NonDifferentiable(x * x) * x, h.array(2.0), h.array(1.0), 8.0, 4.0)


@scenario()
def label_closed_over_by_grad(h: Checked) -> None:
    """The system's own gradient closes over a structure that holds a label made outside.

    Expect with {"w": x, "scale": NonDifferentiable(5)}: scale w ** 2 at 3 is 45, with the gradient 30.
    """
    scale = NonDifferentiable(h.array(5.0))

    def f(x: Any) -> Any:
        model = {"w": x, "scale": scale}
        return model["scale"] * model["w"] * model["w"]

    h.assert_value_and_grad(f, (h.array(3.0),), 45.0, 30.0)


@scenario(level=SHOULD)
def label_in_native_grad(h: Checked) -> None:
    """If the system's own gradient takes structures, it takes one with a labelled float, and gives zero there.

    Expect grad of scale w ** 2 for {"scale": NonDifferentiable(5), "w": 3}: 30 at w, and 0 at scale, in a label or not.
    """
    given = {"scale": NonDifferentiable(h.array(5.0)), "w": h.array(3.0)}
    try:
        h.grad(lambda m: m["scale"] * m["w"])({"scale": h.array(5.0), "w": h.array(3.0)})
    except Exception as error:
        reason = "its gradient takes no structures"
        raise Absent(reason) from error
    gradient = h.grad(lambda m: m["scale"] * m["w"] * m["w"])(given)
    h.assert_equal(gradient["w"], 30.0, "the gradient at w")
    h.assert_equal(gradient["scale"], 0.0, "the gradient at the label")


@scenario(
    transform="grad of {way}",
    source="JAX, static is not the same as not differentiable: https://github.com/jax-ml/jax/issues/2912",
)
def label_closed_over(h: Checked, way: str) -> None:
    """A jitted function may close over a label of a differentiated value, and make its own.

    Expect a label of x closed over, times a label made inside, times x, under {way} at 2: 8, the gradient 4.
    """

    def f(x: Any) -> Any:
        label = NonDifferentiable(x)
        return h.trace(way, lambda y: label * NonDifferentiable(y) * y)(x)

    h.assert_value_and_grad(f, (h.array(2.0),), 8.0, 4.0)


@scenario(
    level=SHOULD,
    transform="jit",
    source="Equinox, static fields and stop_gradient: https://github.com/patrick-kidger/equinox/issues/958",
)
def label_traced_once(h: Checked) -> None:
    """Another value in a label does not cause another trace.

    Expect {"scale": NonDifferentiable(s), "w": 2} under jit gives 2 s for s = 3, 4, 5, of one trace.
    """
    traces: list[str] = []

    def f(m: Any) -> Any:
        traces.append("traced")
        return m["scale"] * m["w"]

    w = h.array(2.0)
    try:
        plain = h.jit(f)
        plain({"scale": h.array(3.0), "w": w})
        plain({"scale": h.array(4.0), "w": w})
    except Exception as error:
        reason = "its jit takes no structures"
        raise Absent(reason) from error
    if len(traces) != 1:
        reason = "its jit traces, or repeats effects, without a label as well"
        raise Absent(reason)
    traces.clear()
    jitted = h.jit(f)
    for s in (3.0, 4.0, 5.0):
        h.assert_equal(jitted({"scale": NonDifferentiable(h.array(s)), "w": w}), 2.0 * s, f"the result for {s}")
    h.check(len(traces) == 1, f"the function was traced {len(traces)} times for three values of a label")


@scenario(
    transform="grad of vmap",
    source="PyTorch, vmap hides what is tracked: https://github.com/pytorch/pytorch/issues/158610",
)
def label_under_vmap(h: Checked) -> None:
    """Labels inside vmap hold rows, and labels from outside are closed over.

    Expect rows of label(a) * a * label(x) * x for a = x and 2 x: their sum, 5 x ** 4, is 405 at 3, with the gradient 10
    x ** 3 = 270, since neither label has a derivative.
    """

    def f(x: Any) -> Any:
        outside = NonDifferentiable(x)
        return h.sum_of_rows(lambda a: NonDifferentiable(a) * a * (outside * x), h.array([1.0, 2.0]) * x)

    h.assert_value_and_grad(f, (h.array(3.0),), 405.0, 270.0)


@scenario(source="GPJax, a wrapper inside of another wrapper: https://github.com/thomaspinder/GPJax/issues/766")
def label_of_label(h: Checked) -> None:
    """A label of a label acts as one label, and the constant of a label is still a label.

    Expect NonDifferentiable(NonDifferentiable(x)) x at 3: 9, with the gradient 3; its value is a plain array.
    """

    def f(x: Any) -> Any:
        label = NonDifferentiable(NonDifferentiable(x))
        h.check(not isinstance(label.value, NonDifferentiable), "the value of a label of a label is a label")
        constant = adprotocol.non_differentiable(label)
        h.check(isinstance(constant, NonDifferentiable), f"its constant is {kind_of(constant)}")
        return constant * x

    h.assert_value_and_grad(f, (h.array(3.0),), 9.0, 3.0)


@scenario(
    level=SHOULD,
    transform="",
    source="Paddle, deepcopy for layers and tensors: https://github.com/PaddlePaddle/Paddle/pull/29387",
)
def label_copies(h: Checked) -> None:
    """A label is copied and pickled as its array is, and need not be hashable.

    Copy, deepcopy and pickle of a label of (1, 2) give a label of (1, 2), if those of the array do.
    """
    array = h.array([1.0, 2.0])
    ways: dict[str, Any] = {
        "copy": copy.copy,
        "deepcopy": copy.deepcopy,
        "pickle": lambda value: pickle.loads(pickle.dumps(value)),  # noqa: S301
    }
    label = NonDifferentiable(array)
    ran = []
    for name, way in ways.items():
        try:
            way(array)
        except Exception:  # noqa: BLE001, S112  (the array's own concern)
            continue
        made = way({"label": label})["label"]
        h.check(isinstance(made, NonDifferentiable), f"{name} of a label gives {kind_of(made)}")
        h.assert_equal(made.value, [1.0, 2.0], f"the value after {name}")
        ran.append(name)
    if not ran:
        reason = "its arrays can be neither copied nor pickled"
        raise Absent(reason)
