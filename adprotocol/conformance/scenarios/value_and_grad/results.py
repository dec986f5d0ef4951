"""`value_and_grad`: values, gradients and auxiliary output in closed form, and what a call does to the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.models import Layer, Pair

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults("value_and_grad", rule="T5", needs=("grad",))


_AUX = "JAX: has_aux leaks tracers: https://github.com/jax-ml/jax/issues/1950"
_IN_PLACE = (
    "PyTorch: an update in place of a result corrupts the input: https://github.com/pytorch/pytorch/issues/197893"
)
_UNUSED = "PyTorch: zeros instead of None for unused inputs: https://github.com/pytorch/pytorch/issues/44189"


@scenario(source=_AUX)
def results_untracked(h: Checked) -> None:
    """After the call nothing it returned is tracked: not the value, the auxiliary output or the gradient.

    within_gradient is False on value, gradient and auxiliary output, leaf included; the values are right.
    """

    def loss(m: dict[str, Any]) -> Any:
        return m["w"] * m["w"], {"leaf": m["w"], "in": [m["w"] * 4.0, Layer(Pair(m["w"] * 5.0, "text"))]}

    found = adprotocol.value_and_grad(loss, has_aux=True, backend=h.name)({"w": h.array(2.0)})
    (value, aux), gradient = found
    for name, part in (("value", value), ("auxiliary output", aux), ("gradient", gradient)):
        h.assert_untracked(adprotocol.within_gradient(part), f"the {name} after the call")
    h.assert_equal(aux["leaf"], 2.0, "the leaf in the auxiliary output")
    h.assert_equal(aux["in"][0], 8.0, "the array in a list in the auxiliary output")
    h.assert_equal(aux["in"][1].weight.first, 10.0, "the array in a named tuple in a dataclass in the auxiliary output")


@scenario(
    rule="T6",
    source="PennyLane: in_backprop: https://docs.pennylane.ai/en/stable/code/api/pennylane.math.in_backprop.html",
)
def answers_inside(h: Checked) -> None:
    """Inside the function, `within_gradient` is True for what is differentiated and False for what is frozen.

    3 w + 5 b at (1, 1) is 8, with the gradient 3 for w and None for the frozen b.
    """
    model = {"w": h.array(1.0), "b": h.array(1.0)}
    run = adprotocol.value_and_grad(lambda m: h.probe(m["w"]) + h.probe(m["b"]), where="w", backend=h.name)
    value, gradient = run(model)
    h.assert_equal(value, 8.0, "the value")
    h.assert_gradients(gradient, {"w": 3.0, "b": None})


@scenario(rule="T6", source=_AUX)
def asked_in_aux(h: Checked) -> None:
    """What is computed for the auxiliary output is asked about as the value is.

    Expect beside w ** 2 the auxiliary output 3 w and 11 b, at 2 and 5: 6 and 55, with the gradient 4 for w.
    """

    def loss(m: dict[str, Any]) -> Any:
        return m["w"] * m["w"], (h.probe(m["w"]), h.scale(m["b"], 7.0, 11.0))

    model = {"w": h.array(2.0), "b": h.array(5.0)}
    (value, (followed, frozen)), gradient = adprotocol.value_and_grad(loss, has_aux=True, where="w", backend=h.name)(
        model
    )
    h.assert_equal(value, 4.0, "the value")
    h.assert_equal(followed, 6.0, "of what takes a gradient")
    h.assert_equal(frozen, 55.0, "of what is frozen")
    h.assert_gradients(gradient, {"w": 4.0, "b": None})


@scenario(
    level=SHOULD,
    rule="T6",
    source="PyTorch: checkpoint runs the function twice: https://docs.pytorch.org/docs/stable/checkpoint.html",
)
def called_once(h: Checked) -> None:
    """The function runs once: its side effects are not repeated.

    Expect one call of the function for each call of the gradient.
    """
    calls = []

    def loss(m: dict[str, Any]) -> Any:
        calls.append(1)
        return m["w"] * m["w"]

    run = adprotocol.value_and_grad(loss, backend=h.name)
    h.check(run.__name__ == "loss", f"the name of the gradient is {run.__name__!r}")
    for count in (1, 2):
        value, gradient = run({"w": h.array(3.0), "n": 1})
        h.assert_equal(value, 9.0, "the value")
        h.assert_gradients(gradient, {"w": 6.0, "n": None})
        h.check(len(calls) == count, f"the function ran {len(calls)} times in {count} calls")


@scenario(
    source="PyTorch: functional_call corrupts the original parameters: https://github.com/pytorch/pytorch/pull/195593"
)
def inputs_unchanged(h: Checked) -> None:
    """A call does not change the model.

    The model has the identical leaves, with the same values, untracked.
    """
    w, b = h.array([1.0, 2.0]), h.array(3.0)
    layer = Layer(weight=w, scale=b)
    model = {"layer": layer, "list": [b]}
    adprotocol.grad(lambda m: m["layer"].weight[1] * m["list"][0] * m["layer"].scale, backend=h.name)(model)
    h.assert_is(model["layer"], layer, "the dataclass in the model")
    h.assert_is(layer.weight, w, "the leaf of the dataclass")
    h.assert_is(layer.scale, b, "the frozen leaf of the dataclass")
    h.assert_is(model["list"][0], b, "the leaf of the list")  # type: ignore[index]
    h.assert_equal(w, [1.0, 2.0], "the values of the leaf")
    h.assert_untracked(adprotocol.within_gradient(model), "the model after the call")


@scenario(level=SHOULD, source=_IN_PLACE)
def memory_of_its_own(h: Checked) -> None:
    """An update in place of one gradient changes no other gradient, and no leaf.

    After 9 is written to the gradient of one leaf, those of the others, and the leaves, are as before.
    """
    values = {"a": [1.0, 2.0], "b": [3.0, 4.0], "c": [5.0, 6.0], "unused": [0.0, 0.0]}
    model = {name: h.array(value) for name, value in values.items()}

    def loss(m: dict[str, Any]) -> Any:
        total = m["a"] + m["b"] + m["c"] * m["b"]
        return total[0] + total[1]

    gradient = adprotocol.grad(loss, backend=h.name)(model)
    h.assert_gradients(gradient, {"a": [1.0, 1.0], "b": [6.0, 7.0], "c": [3.0, 4.0], "unused": [0.0, 0.0]})
    for changed in ("a", "c", "unused"):
        try:
            gradient[changed][0] = 9.0
        except (TypeError, ValueError):
            return  # its arrays do not change
    h.assert_gradients(gradient, {"a": [9.0, 1.0], "b": [6.0, 7.0], "c": [9.0, 4.0], "unused": [9.0, 0.0]})
    for name, leaf in model.items():
        h.assert_equal(leaf, values[name], f"the leaf {name}")


@scenario(source="optax: trees of parameters: https://github.com/google-deepmind/optax/issues/290")
def many_leaves(h: Checked) -> None:
    """In a structure of 200 leaves each gradient is at its own place.

    Expect the sum of (k + 1) w_k over 200 leaves, doubled if it is untracked: the gradient k + 1 for the even ones,
    None for the odd ones.
    """
    import numpy as np

    model = [{"w": h.array(1.0), "k": k} for k in range(200)]

    def loss(layers: list[dict[str, Any]]) -> Any:
        total = 0.0
        for layer in layers:
            total = total + (layer["k"] + 1.0) * layer["w"]
        return h.scale(total, 1.0, 2.0)

    def even(path: str, _: Any) -> bool:
        layer, name = path.split(".")
        return name == "w" and int(layer) % 2 == 0

    value, gradient = adprotocol.value_and_grad(loss, where=even, backend=h.name)(model)
    h.assert_equal(value, 20100.0, "the value")
    found = [layer["w"] for layer in gradient]
    h.check(all(slope is None for slope in found[1::2]), "a frozen leaf has a gradient")
    slopes = np.array([h.numpy(slope) for slope in found[::2]])
    h.assert_equal(slopes, np.arange(1.0, 200.0, 2.0), "the gradients of the even leaves")


def line(model: dict[str, Any], x: Any) -> Any:
    """Return (w x + b) ** 2 of a model {"w": ..., "b": ...}."""
    prediction = model["w"] * x + model["b"]
    return prediction * prediction


@scenario(source="JAX: value_and_grad: https://docs.jax.dev/en/latest/_autosummary/jax.value_and_grad.html")
def closed_form(h: Checked) -> None:
    """Value and gradient of a function of a dict are right, and so is `grad` alone.

    (2 x + 1) ** 2 at 3 is 49, with the gradient 42 for the weight and 14 for the offset.
    """
    model = {"w": h.array(2.0), "b": h.array(1.0)}
    value, gradient = adprotocol.value_and_grad(line, backend=h.name)(model, h.array(3.0))
    h.assert_equal(value, 49.0, "the value")
    h.assert_gradients(gradient, {"w": 42.0, "b": 14.0})
    h.assert_gradients(adprotocol.grad(line, backend=h.name)(model, h.array(3.0)), {"w": 42.0, "b": 14.0})


@scenario(source="JAX: grad: https://docs.jax.dev/en/latest/101/transformations.html")
def bare_array(h: Checked) -> None:
    """A bare array is a structure too: its gradient is an array.

    x0 x0 + 3 x1 at (2, 5) is 19, with the gradient (4, 3).
    """
    value, gradient = adprotocol.value_and_grad(lambda x: x[0] * x[0] + 3.0 * x[1], backend=h.name)(h.array([2.0, 5.0]))
    h.assert_equal(value, 19.0, "the value")
    h.assert_equal(gradient, [4.0, 3.0], "the gradient")


@scenario(source="JAX: cotangents have the types of the inputs: https://github.com/jax-ml/jax/issues/2663")
def shape_and_dtype(h: Checked) -> None:
    """Each gradient has the shape and the dtype of its leaf.

    Expect gradients of the shape and dtype of a scalar, a vector and a matrix.
    """
    model = {"scalar": h.array(2.0), "vector": h.array([1.0, 2.0]), "matrix": h.array([[1.0, 2.0], [3.0, 4.0]])}

    def loss(m: dict[str, Any]) -> Any:
        return m["scalar"] * m["vector"][1] * m["matrix"][1, 0]

    value, gradient = adprotocol.value_and_grad(loss, backend=h.name)(model)
    h.assert_equal(value, 12.0, "the value")
    h.assert_gradients(gradient, {"scalar": 6.0, "vector": [0.0, 6.0], "matrix": [[0.0, 0.0], [4.0, 0.0]]})
    for name, leaf in model.items():
        found, expected = h.numpy(gradient[name]).dtype, h.numpy(leaf).dtype
        h.check(found == expected, f"the gradient at {name!r} has dtype {found}; {expected} was expected")


@scenario(source="JAX: float0 as the gradient of an integer: https://github.com/jax-ml/jax/pull/4039")
def mixed_leaves(h: Checked) -> None:
    """What takes no gradient has None, and not integer zeros, in the gradient, and its value in the function.

    Expect w ** 3 at 2: the gradient is 12 for w, and None for int, bool, str, None, a function and integer arrays.
    """
    model = {"w": h.array(2.0), "n": 3, "on": True, "s": "x", "no": None, "act": abs, "steps": h.array([1, 2])}

    def loss(m: dict[str, Any]) -> Any:
        return m["w"] ** m["n"] if m["on"] and m["s"] == "x" and m["no"] is None else m["w"]

    value, gradient = adprotocol.value_and_grad(loss, backend=h.name)(model)
    h.assert_equal(value, 8.0, "the value")
    h.assert_gradients(gradient, {"w": 12.0, "n": None, "on": None, "s": None, "no": None, "act": None, "steps": None})


@scenario(rule="T4", source="JAX: dataclasses as pytrees: https://github.com/jax-ml/jax/issues/2371")
def nested_containers(h: Checked) -> None:
    """The gradient has the structure of the model: lists, named tuples and dataclasses.

    Expect a b c at (2, 3, 5): the gradients 15, 10 and 6 in a list of a named tuple and a dataclass, None else.
    """
    model = [Pair(h.array(2.0), "s"), Layer(weight=[h.array(3.0), 1], scale=None), (h.array(5.0),)]

    def loss(m: list[Any]) -> Any:
        return m[0].first * m[1].weight[0] * m[2][0]

    gradient = adprotocol.grad(loss, backend=h.name)(model)
    h.check(
        type(gradient) is list
        and [type(part) for part in gradient] == [Pair, Layer, tuple]
        and gradient[0].second is None
        and gradient[1].weight[1] is None,
        f"the gradient is {gradient!r:.200}",
    )
    h.assert_equal(gradient[0].first, 15.0, "the gradient in a named tuple")
    h.assert_equal(gradient[1].weight[0], 10.0, "the gradient in a list in a dataclass")
    h.assert_equal(gradient[2][0], 6.0, "the gradient in a tuple")


@scenario(
    rule="T4",
    needs=("grad", "node"),
    source="JAX: a registered class that cannot be rebuilt: https://github.com/jax-ml/jax/issues/25486",
)
def node(h: Checked) -> None:
    """The gradient for a container of the system's own registry is such a container.

    Expect w b at (2, 3): the gradient is a node of the same class with 3 and None.
    """
    model = h.node([h.array(2.0), 3])

    def loss(made: Any) -> Any:
        w, b = made
        return w * b

    gradient = adprotocol.grad(loss, backend=h.name)(model)
    h.assert_is(type(gradient), type(model), "the class of the gradient")
    first, second = list(gradient)
    h.assert_equal(first, 3.0, "the gradient in the node")
    h.assert_is(second, None, "what the node has for the integer")


@scenario(source=_UNUSED)
def zeros_for_unused(h: Checked) -> None:
    """A leaf that takes a gradient and is not used has zeros.

    The gradient of w ** 2 is zeros, of its shape, for a vector that the function ignores.
    """
    model = {"w": h.array(3.0), "ignored": h.array([1.0, 2.0]), "number": h.array(4.0)}
    gradient = adprotocol.grad(lambda m: m["w"] * m["w"], backend=h.name)(model)
    h.assert_gradients(gradient, {"w": 6.0, "ignored": [0.0, 0.0], "number": 0.0})


@scenario(source=_UNUSED)
def constant_function(h: Checked) -> None:
    """A function that uses no leaf has a gradient of zeros.

    Expect the values 7 and 5 with zeros, for a Python float and for an array of the closure.
    """
    model, five = {"w": h.array([1.0, 2.0])}, h.array(5.0)
    for function, expected in ((lambda _: 7.0, 7.0), (lambda _: five, 5.0)):
        value, gradient = adprotocol.value_and_grad(function, backend=h.name)(model)
        h.assert_equal(value, expected, "the value")
        h.assert_gradients(gradient, {"w": [0.0, 0.0]})


@scenario(
    rule="N1",
    source="JAX: grad should leave out what is not differentiable: https://github.com/jax-ml/jax/issues/15861",
)
def constant_result(h: Checked) -> None:
    """What `non_differentiable` makes constant has no part in the gradient.

    Expect the value 9 with the gradient 0 of a result made constant, and 3 of c w with c the constant of w, at 3.
    """
    model = {"w": h.array(3.0)}
    value, gradient = adprotocol.value_and_grad(
        lambda m: adprotocol.non_differentiable(m["w"] * m["w"]), backend=h.name
    )(model)
    h.assert_equal(value, 9.0, "the value")
    h.assert_gradients(gradient, {"w": 0.0})
    gradient = adprotocol.grad(lambda m: adprotocol.non_differentiable(m["w"]) * m["w"], backend=h.name)(model)
    h.assert_gradients(gradient, {"w": 3.0})


@scenario(source="JAX: has_aux: https://docs.jax.dev/en/latest/_autosummary/jax.value_and_grad.html")
def has_aux(h: Checked) -> None:
    """With `has_aux` what the function returns beside the value comes back as it is.

    Expect ((49, {prediction: 7, name, None, n}), gradient), and from grad (gradient, aux); an error without aux.
    """
    model = {"w": h.array(2.0), "b": h.array(1.0)}

    def loss(m: dict[str, Any], x: Any) -> Any:
        return line(m, x), {"prediction": m["w"] * x + m["b"], "name": "line", "none": None, "n": 3}

    (value, aux), gradient = adprotocol.value_and_grad(loss, has_aux=True, backend=h.name)(model, h.array(3.0))
    h.assert_equal(value, 49.0, "the value")
    h.assert_equal(aux["prediction"], 7.0, "the array in the auxiliary output")
    h.check((aux["name"], aux["none"], aux["n"]) == ("line", None, 3), f"the auxiliary output is {aux!r:.200}")
    h.assert_gradients(gradient, {"w": 42.0, "b": 14.0})
    with h.raises(errors.OutputError):
        adprotocol.grad(line, has_aux=True, backend=h.name)(model, h.array(3.0))
    gradient, aux = adprotocol.grad(loss, has_aux=True, where="b", backend=h.name)(model, h.array(3.0))
    h.assert_gradients(gradient, {"w": None, "b": 14.0})
    h.assert_equal(aux["prediction"], 7.0, "the array in the auxiliary output of grad")
