"""`value_and_grad`: what a call does to the model, and what it leaves of its results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.models import Layer, Pair

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_AUX = "JAX: has_aux leaks tracers: https://github.com/jax-ml/jax/issues/1950"
_IN_PLACE = (
    "PyTorch: an update in place of a result corrupts the input: https://github.com/pytorch/pytorch/issues/197893"
)

scenario: Decorator = defaults("value_and_grad", rule="T5", needs=("grad",))


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
    import numpy as np  # noqa: PLC0415  (--list does without)

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
