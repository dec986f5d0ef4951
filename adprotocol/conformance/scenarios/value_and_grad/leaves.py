"""Leaves that are easily mistaken: without elements, of two dtypes, equal to another, read by another name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.dtypes import assert_near
from adprotocol.conformance.scenarios.within_gradient.parameters import NEEDS

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_SHARED = (
    "PyTorch: parameters and identity: https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html"
)
_WATCHED = "TensorFlow: tapes watch trainable variables: https://www.tensorflow.org/guide/autodiff"

scenario: Decorator = defaults(
    "value_and_grad",
    source="JAX: dtypes that carry derivatives: https://github.com/jax-ml/jax/issues/15861",
    transform="grad",
    needs=("grad", "dtypes", "cast"),
)

_PARAMETERS = ("grad", "parameter")


@scenario(
    rule="T5", source="JAX: gradients and their dtypes: https://docs.jax.dev/en/latest/_autosummary/jax.grad.html"
)
def leaves_of_two_dtypes(h: Checked) -> None:
    """Gradients have the dtypes of their leaves, whatever that of the value.

    Expect w ** 2 * b with w of each floating-point dtype and b of the default one, at 2, 3, computed in either: slopes
    12, 4, each of the dtype of its leaf.
    """
    default = h.dtypes()[0]
    for dtype in h.dtypes():
        for of_value in (default, dtype):

            def loss(m: dict[str, Any], of_value: str = of_value) -> Any:
                w, b = h.cast(m["w"], of_value), h.cast(m["b"], of_value)
                return w * w * b

            model = {"w": h.cast(h.array(2.0), dtype), "b": h.cast(h.array(3.0), default)}
            gradient = adprotocol.grad(loss)(model)
            for name, want in (("w", 12.0), ("b", 4.0)):
                what = f"the gradient of {name}, of w of {dtype} with a value of {of_value},"
                h.assert_equal(h.cast(gradient[name], default), want, what)
                found, leaf = h.numpy(gradient[name]).dtype, h.numpy(model[name]).dtype
                h.check(found == leaf, f"{what} has dtype {found.name}, and the leaf {leaf.name}")


@scenario(
    rule="T5",
    needs=("grad", "sum"),
    source="PyTorch: zero-size tensors: https://docs.pytorch.org/docs/stable/generated/torch.empty.html",
)
def empty_leaf(h: Checked) -> None:
    """A leaf without elements takes a gradient without elements.

    Expect w ** 2 plus the sum of e, which has no elements and is tracked, at 3: 9, gradients 6 and one without
    elements, used or not.
    """
    model = {"w": h.array(3.0), "e": h.array([])}
    h.assert_is(adprotocol.trainable(model)["e"], model["e"], "what trainable returns at the empty array")
    for loss in (lambda m: m["w"] * m["w"] * h.digit(m["e"]) + h.sum(m["e"]), lambda m: m["w"] * m["w"]):
        value, gradient = adprotocol.value_and_grad(loss)(model)
        h.assert_equal(value, 9.0, "the value")
        h.assert_gradients(gradient, {"w": 6.0, "e": []})


@scenario(rule="T8", needs=_PARAMETERS, source=_SHARED)
def equal_parameters(h: Checked) -> None:
    """Two parameters of the same value are two leaves.

    Expect p ** 2 * q with two parameters of the value 3, p by two names: the gradients 18, None and 9, with p's flag
    off too; with one of them frozen 9 alone.
    """
    p, q = h.parameter(3.0, trains=True), h.parameter(3.0, trains=True)

    def loss(m: dict[str, Any]) -> Any:
        return m["p"] * m.get("too", p) * m["q"]

    found = adprotocol.grad(loss, backend=h.name)({"p": p, "too": p, "q": q})
    h.assert_gradients(found, {"p": 18.0, "too": None, "q": 9.0})
    only = adprotocol.grad(loss, where="q", backend=h.name)({"p": p, "q": q})
    h.assert_gradients(only, {"p": None, "q": 9.0}, "the gradient of q alone")
    p = h.parameter(3.0, trains=False)
    selected = adprotocol.grad(loss, where="*", backend=h.name)({"p": p, "too": p, "q": q})
    h.assert_gradients(selected, {"p": 18.0, "too": None, "q": 9.0}, "the gradient of one whose flag is off, selected,")


@scenario(level=SHOULD, rule="T8", needs=_PARAMETERS, source=_WATCHED)
def parameter_read_elsewhere(h: Checked) -> None:
    """A parameter that takes a gradient counts wherever the function reads it.

    Expect p ** 2 of the model times p read by another name, at 2: the gradient 3 p ** 2 = 12; 3 of 3 p, asked so; 1 of
    p itself; an error where that is guarded.
    """
    p = h.parameter(2.0, trains=True)
    gradient = adprotocol.grad(lambda m: m["p"] * m["p"] * p, backend=h.name)({"p": p})
    h.assert_gradients(gradient, {"p": 12.0})
    asked = adprotocol.grad(lambda m: h.probe(p) + 0.0 * m["p"], backend=h.name)({"p": p})
    h.assert_gradients(asked, {"p": 3.0}, "the gradient of what asks by the other name")
    with h.raises(errors.GradientPreventedError, words=["not this one"]):
        adprotocol.grad(lambda m: m["p"] * adprotocol.prevent_gradient(p, "not this one"), backend=h.name)({"p": p})
    value, gradient = adprotocol.value_and_grad(lambda m: m["p"], backend=h.name)({"p": p})
    h.assert_equal(value, 2.0, "the value of a function that returns its parameter")
    h.assert_gradients(gradient, {"p": 1.0}, "the gradient of that")


@scenario(
    rule="T5",
    needs=("grad", "sum", "operations"),
    source="TensorFlow: gradients of what is gathered: https://www.tensorflow.org/api_docs/python/tf/IndexedSlices",
)
def each_operation(h: Checked) -> None:
    """The gradient through each operation is an array to compute with, as the system's own.

    Expect twice the first element of the gradient of the sum of each operation that the harness names, at (2, 3), as
    the system gives it.
    """
    v = h.array([2.0, 3.0])
    for name, operation in h.operations().items():
        if h.numpy(operation(v)).dtype.kind != "f":
            continue

        def loss(v: Any, operation: Any = operation) -> Any:
            return h.sum(operation(v))

        want = h.numpy(h.grad(loss)(v))[0]
        gradient = adprotocol.grad(lambda m, loss=loss: loss(m["v"]), backend=h.name)({"v": v})["v"]
        h.assert_equal(2.0 * gradient[0], 2.0 * want, f"twice the first element after {name}")


@scenario(rule="T10")
def number_beside_each_dtype(h: Checked) -> None:
    """A Python float is a leaf beside an array of any floating-point dtype.

    Expect x n at 3 and the number 2.0: the gradients 2 and 3, for x of each floating-point dtype.
    """
    for dtype in h.dtypes():
        x = h.cast(h.array(3.0), dtype)
        value, gradient = adprotocol.value_and_grad(lambda m: m["x"] * m["n"])({"x": x, "n": 2.0})
        assert_near(h, value, 6.0, f"the value, {dtype}")
        assert_near(h, gradient["x"], 2.0, f"the gradient of the array, {dtype}")
        assert_near(h, gradient["n"], 3.0, f"the gradient of the number, {dtype}")


@scenario(rule="T1")
def each_dtype(h: Checked) -> None:
    """A leaf of each floating-point dtype takes a gradient of that dtype.

    Expect x ** 2 at 2 in a dict: value 4, gradient 4 of the dtype of x, for each floating-point dtype.
    """
    for dtype in h.dtypes():
        x = h.cast(h.array(2.0), dtype)
        value, gradient = adprotocol.value_and_grad(lambda m: m["x"] * m["x"])({"x": x, "n": 1})
        assert_near(h, value, 4.0, f"the value, {dtype}")
        assert_near(h, gradient["x"], 4.0, f"the gradient, {dtype}")
        h.check(
            h.numpy(gradient["x"]).dtype == h.numpy(x).dtype,
            f"the gradient of a leaf of {h.numpy(x).dtype} has dtype {h.numpy(gradient['x']).dtype}",
        )


@scenario(rule="T6", transform="", needs=("grad", *NEEDS), source=_WATCHED)
def frozen_parameter_asked(h: Checked) -> None:
    """A parameter that the call freezes is not tracked inside, whatever its flag says.

    Expect 3 p times 11 q at 2, 3, with where="p": 198, the gradient 99 in p and None for q, whose flag is on.
    """
    model = {"p": h.parameter(2.0, trains=True), "q": h.parameter(3.0, trains=True)}
    run = adprotocol.value_and_grad(lambda m: h.probe(m["p"]) * h.scale(m["q"], 7.0, 11.0), where="p", backend=h.name)
    value, gradient = run(model)
    h.assert_equal(value, 198.0, "the value")
    h.assert_gradients(gradient, {"p": 99.0, "q": None})
