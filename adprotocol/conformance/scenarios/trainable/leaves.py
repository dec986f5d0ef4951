"""Which leaves take gradients, by their kind and by declarations."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.models import Head, Layer, Network, Pair

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance.checks import Checked


_INTEGERS = "JAX: grad should leave out what is not differentiable: https://github.com/jax-ml/jax/issues/15861"

scenario: Decorator = defaults("trainable", rule="T1", source=_INTEGERS)


def selected(h: Checked, tree: dict[str, Any], names: Sequence[str], where: Any = None) -> None:
    """Check that of the entries of a dict those in `names` are left, as the identical objects, and None else."""
    found = adprotocol.trainable(tree, where)
    h.check(isinstance(found, dict) and list(found) == list(tree), f"trainable returned {found!r:.200}")
    for name, leaf in tree.items():
        h.assert_is(found[name], leaf if name in names else None, f"what trainable returned at {name!r}")


@scenario(source="Equinox: filters by is_inexact_array: https://docs.kidger.site/equinox/all-of-equinox/")
def float_arrays(h: Checked) -> None:
    """Floating-point arrays of any shape and dtype take gradients.

    Expect a scalar, a vector, a matrix and an array without elements are returned as the identical objects, and so is
    one of each floating-point dtype.
    """
    values: dict[str, Any] = {"scalar": 1.0, "vector": [1.0, 2.0], "matrix": [[1.0], [2.0]], "empty": []}
    tree = {name: h.array(value) for name, value in values.items()}
    if h.has("dtypes", "cast"):
        tree |= {dtype: h.cast(h.array(1.0), dtype) for dtype in h.dtypes()}
    selected(h, tree, list(tree))


@scenario(
    source="Haiku: the counter of a batch norm breaks grad: https://github.com/google-deepmind/dm-haiku/issues/513"
)
def integer_arrays(h: Checked) -> None:
    """Integer arrays take no gradient.

    Expect None at the integers, the identical array beside them.
    """
    selected(h, {"w": h.array(1.0), "steps": h.array(3), "index": h.array([0, 1])}, ["w"])


@scenario()
def boolean_arrays(h: Checked) -> None:
    """Boolean arrays take no gradient.

    Expect None at the booleans, the identical array beside them.
    """
    selected(h, {"w": h.array(1.0), "mask": h.array([True, False]), "one": h.array([True])[0]}, ["w"])


@scenario(level=SHOULD, source="JAX: trees of real and complex leaves: https://github.com/jax-ml/jax/issues/7157")
def complex_arrays(h: Checked) -> None:
    """Complex arrays take gradients.

    Expect the identical arrays: one of NumPy, and one of the system if it has such.
    """
    import numpy as np

    tree = {"w": h.array(1.0), "numpy": np.array([1.0 + 2.0j])}
    with contextlib.suppress(TypeError, ValueError, NotImplementedError):
        tree["own"] = h.array(1.0 + 2.0j)
    selected(h, tree, list(tree))


@scenario(
    source="JAX: grad with respect to anything that is not differentiable: https://github.com/jax-ml/jax/issues/2215"
)
def python_values(h: Checked) -> None:
    """A Python float takes a gradient; an integer, bool, string, None and a function beside it do not.

    Of float, int, bool, str, None and a function beside an array, the float and the array are left.
    """
    tree = {"w": h.array(1.0), "lr": 0.5, "n": 3, "on": True, "name": "x", "no": None, "act": abs}
    selected(h, tree, ["w", "lr"])


@scenario(
    source="scarlet2: stop_gradient instead of static parameters: https://github.com/pmelchior/scarlet2/issues/32"
)
def label(h: Checked) -> None:
    """An array labelled NonDifferentiable takes no gradient.

    Expect None at the label and at its copy, the identical array beside them.
    """
    c = adprotocol.NonDifferentiable(h.array(2.0))
    selected(h, {"w": h.array(1.0), "c": c, "copy": copy.copy(c)}, ["w"])


@scenario(
    needs=("parameter",),
    source="PyTorch: parameters and requires_grad: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
def parameter_flags(h: Checked) -> None:
    """A parameter takes a gradient if its own flag says so.

    Expect the identical parameter whose flag is on, None for the one whose flag is off.
    """
    on, off = h.parameter(1.0, trains=True), h.parameter(2.0, trains=False)
    selected(h, {"on": on, "off": off, "array": h.array(3.0)}, ["on", "array"])


@scenario(
    needs=("parameter",),
    source="PyTorch: Tensor.detach: https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
)
def constant_of_a_parameter(h: Checked) -> None:
    """The constant of a parameter is an array, which takes a gradient, whatever the flag of the parameter says.

    Expect the constants of two parameters, one with its flag off, as they are.
    """
    made = {str(flag): adprotocol.non_differentiable(h.parameter(1.0, trains=flag)) for flag in (True, False)}
    selected(h, made, list(made))


@scenario(rule="T4", source="JAX: dataclasses as pytrees: https://github.com/jax-ml/jax/issues/2371")
def nested_containers(h: Checked) -> None:
    """Dataclasses, named tuples, dicts, lists and tuples nest in any way, without registration.

    The structure is kept, with the identical arrays at its floating-point leaves and None else.
    """
    a, b, c = h.array(1.0), h.array([2.0, 3.0]), h.array(4.0)
    tree: dict[str, Any] = {"list": [Pair(a, 1), (Layer(b), "s")], "net": Network(body=a, head=Pair(c, 2))}
    tree["warm"] = Network(body=a, head=b, warm=True)
    found = adprotocol.trainable(tree)
    h.check(list(found) == ["list", "net", "warm"], f"the dict became {found!r:.200}")
    pair, inner = found["list"]
    h.check(type(pair) is Pair and type(inner) is tuple, f"the list became {found['list']!r:.200}")
    h.assert_is(pair.first, a, "an array in a named tuple")
    h.assert_is(pair.second, None, "an integer in a named tuple")
    h.assert_is(inner[0].weight, b, "an array in a dataclass in a tuple")
    h.assert_is(inner[1], None, "a string in a tuple")
    h.assert_is(found["net"].head.first, c, "an array in a frozen, slotted dataclass")
    h.assert_is(found["net"].body, None, "an array that this dataclass freezes")
    h.assert_is(found["warm"].body, a, "an array that another of its class does not")


@scenario(
    rule="T4",
    needs=("node",),
    source="JAX: a registered class that cannot be rebuilt: https://github.com/jax-ml/jax/issues/25486",
)
def node(h: Checked) -> None:
    """A container of the system's own registry is walked like any other.

    Expect a node of the same class, with the identical array and None.
    """
    array = h.array(1.0)
    made = h.node([array, 3])
    found = adprotocol.trainable({"node": made})["node"]
    h.assert_is(type(found), type(made), "the class of the node")
    first, second = list(found)
    h.assert_is(first, array, "the array in the node")
    h.assert_is(second, None, "the integer in the node")


def _hiding(array: Any) -> Any:
    made = type("Hiding", (), {})()
    made.weight = array
    return made


@scenario(
    level=SHOULD,
    rule="T4",
    source="JAX: a mapping that is not registered is a leaf, silently: https://github.com/jax-ml/jax/issues/40517",
)
def hidden_arrays(h: Checked) -> None:
    """An object that hides arrays is refused, rather than frozen without a word.

    Expect OpaqueValueError.
    """
    import numpy as np

    array = h.array(1.0)
    h.absent_if(isinstance(array, np.ndarray), "its arrays are NumPy's, which are constants")
    with h.raises(errors.OpaqueValueError, words=["Hiding"]):
        adprotocol.trainable({"w": h.array(2.0), "hiding": _hiding(array)})


@scenario(rule="T9", transform="grad", varies=True)
def inside_grad(h: Checked) -> None:
    """A leaf that is being differentiated takes a gradient, stays tracked in the result, and does not hide.

    Expect the tracked leaf itself: the gradient of x ** 2 at 3 is 6, through the result; an error for one in hiding.
    """

    def square(x: Any) -> Any:
        tree = {"w": x, "n": 2}
        found = adprotocol.trainable(tree)
        h.assert_is(found["w"], x, "the tracked leaf")
        h.assert_is(found["n"], None, "the integer beside it")
        with h.raises(errors.OpaqueValueError, words=["Hiding"]):
            adprotocol.trainable([x, _hiding(x)])
        return found["w"] * adprotocol.combine(found, tree)["w"]

    h.assert_equal(h.grad(square)(h.array(3.0)), 6.0, "the gradient")


@scenario(rule="T9", transform="jit", source="docs/structures.md, With native transformations")
def inside_jit(h: Checked) -> None:
    """A leaf that is being traced takes a gradient if it is floating-point.

    Expect the traced leaf itself: x ** 2 at 3 is 9, through the result; integers that are traced are None.
    """

    def square(x: Any, n: Any) -> Any:
        found = adprotocol.trainable({"w": x, "n": n})
        h.assert_is(found["w"], x, "the traced leaf")
        h.assert_is(found["n"], None, "the traced integer beside it")
        return found["w"] * found["w"]

    h.assert_equal(h.jit(square)(h.array(3.0), h.array(2)), 9.0)


@scenario(
    rule="T2",
    source="Optimisers.jl: trainable fields of custom types: https://github.com/FluxML/Optimisers.jl/issues/84",
)
def declared(h: Checked) -> None:
    """A class names the fields that take gradients in `__trainable__`.

    The declared weight is left, the bias is None.
    """
    head = Head(h.array(1.0), h.array(2.0))
    found = adprotocol.trainable(head)
    h.assert_is(type(found), Head, "the class of the result")
    h.assert_is(found.weight, head.weight, "the declared field")
    h.assert_is(found.bias, None, "the other field")


@scenario(
    rule="T2", source="Flux: layers frozen after the model is made: https://github.com/FluxML/Flux.jl/issues/1931"
)
def declared_by_instance(h: Checked) -> None:
    """A property `__trainable__` decides for each instance, and for all that is below a field.

    The body is None while it is cold, and left when it is warm.
    """
    body, head = [h.array(1.0), {"w": h.array(2.0)}], h.array(3.0)
    cold = adprotocol.trainable(Network(body=body, head=head))
    h.check(cold.body == [None, {"w": None}], f"the cold body is {cold.body!r:.200}")
    h.assert_is(cold.head, head, "the head")
    warm = adprotocol.trainable(Network(body=body, head=head, warm=True))
    h.assert_is(warm.body[0], body[0], "the warm body")
    h.assert_is(warm.body[1]["w"], body[1]["w"], "the warm body, further down")


@scenario(
    rule="T2", source="GPflow: a parameter made with trainable=False: https://github.com/GPflow/GPflow/issues/1646"
)
def field_metadata(h: Checked) -> None:
    """The metadata {"trainable": False} of a dataclass field freeze it.

    The field without metadata is left, the other is None.
    """
    layer = Layer(h.array(1.0), h.array(2.0))
    found = adprotocol.trainable({"layer": layer})["layer"]
    h.assert_is(found.weight, layer.weight, "the field without metadata")
    h.assert_is(found.scale, None, "the field that its metadata freeze")


@scenario(rule="T2", source="docs/structures.md, Who decides")
def declarations_agree(h: Checked) -> None:
    """What one declaration on the way down freezes stays frozen, whatever the others say.

    Expect None at a field frozen by one of two declarations, in an inner and in an outer class.
    """
    head = Head(Layer(h.array(1.0), h.array(2.0)), Layer(h.array(3.0), h.array(4.0)))
    found = adprotocol.trainable(head)
    h.assert_is(found.weight.weight, head.weight.weight, "the field that all declarations train")
    h.assert_is(found.weight.scale, None, "the field that the inner class freezes")
    h.assert_is(found.bias.weight, None, "the field below one that the outer class freezes")


@scenario(
    level=SHOULD,
    rule="T2",
    source="GPflow: two ways to set trainable, one without effect: https://github.com/GPflow/GPflow/issues/1184",
)
def unknown_declaration(h: Checked) -> None:
    """A declared name that is no field is an error that names it.

    Expect DeclarationError that names 'wieght', declared in the class or registered for it.
    """
    names = ("wieght",)
    in_class: Callable[[Any], None] = lambda cls: setattr(cls, "__trainable__", names)  # noqa: E731
    for declare in (in_class, lambda cls: adprotocol.register_trainable(cls, names)):
        layer = dataclasses.make_dataclass("Misspelt", ["weight"])
        with h.raises(errors.DeclarationError, words=["wieght"]):
            declare(layer)
            adprotocol.trainable(layer(h.array(1.0)))


@scenario(
    level=SHOULD,
    rule="T2",
    source="Optimisers.jl: trainable fields of custom types: https://github.com/FluxML/Optimisers.jl/issues/84",
)
def registered(h: Checked) -> None:
    """`register_trainable` declares the fields of a class that one does not own.

    Expect before the registration both fields, then the registered one alone, at last an error for 'scale'.
    """
    cls: Any = dataclasses.make_dataclass("Foreign", ["weight", "bias"])
    made = cls(h.array(1.0), h.array(2.0))
    h.assert_is(adprotocol.trainable(made).bias, made.bias, "a field before the registration")
    adprotocol.register_trainable(cls, ["weight"])
    found = adprotocol.trainable(made)
    h.assert_is(found.weight, made.weight, "the registered field")
    h.assert_is(found.bias, None, "the other field")
    with h.raises(errors.DeclarationError, words=["scale"]):
        adprotocol.register_trainable(cls, ["weight", "scale"])
        adprotocol.trainable(made)
