"""`non_differentiable` on containers: rebuilt as they were, with constants in place of arrays alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import adprotocol
from adprotocol.conformance.harness import PROMOTION
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.errors import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_ARRAYS = "JAX: what is no array is refused or left alone: https://github.com/jax-ml/jax/pull/2750"

scenario: Decorator = defaults(
    "non_differentiable",
    rule="N2",
    source="JAX: a stop that did not look into containers did nothing: https://github.com/jax-ml/jax/pull/892",
    transform="grad",
)


class Point(NamedTuple):
    """A named tuple."""

    x: Any
    name: str


@dataclasses.dataclass(frozen=True)
class Model:
    """A frozen dataclass."""

    w: Any
    layers: int


@scenario(transform="", source=_ARRAYS)
def mixed_leaves(h: Checked) -> None:
    """Leaves that are not arrays come back as the identical object, functions undecorated.

    An int, a bool, a float, a string, None, a function and a class come back as the identical objects.
    """
    leaves = [10**30, True, 2.5, "a" * 50, None, mixed_leaves, Point]
    result = adprotocol.non_differentiable({"array": h.array([1.0, 2.0]), "leaves": leaves})
    h.assert_equal(result["array"], [1.0, 2.0], "the array")
    for got, leaf in zip(result["leaves"], leaves, strict=True):
        h.assert_is(got, leaf, f"the leaf {leaf!r:.20}")


@scenario(source=_ARRAYS)
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


@scenario(transform="", source="JAX, keys of a dict that change their order: https://github.com/jax-ml/jax/issues/4085")
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


@scenario(varies=True)
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
    needs=("grad", "node"), source="JAX, containers that users register: https://docs.jax.dev/en/latest/pytrees.html"
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
    source="PyTorch, a stop in place where a new array was wanted: https://github.com/keras-team/keras-core/pull/417"
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


@scenario(transform="jvp")
def container_forward_mode(h: Checked) -> None:
    """The leaves of a container have no tangent.

    Expect {"a": [x], "b": x ** 2} gives a b x at 2: 16, with the tangent 8.
    """

    def f(x: Any) -> Any:
        made = adprotocol.non_differentiable({"a": [x], "b": x * x})
        return made["a"][0] * made["b"] * x

    h.assert_value_and_tangent(f, h.array(2.0), h.array(1.0), 16.0, 8.0)


@scenario(level=SHOULD)
def shared_leaf(h: Checked) -> None:
    """An array at two places is a constant at both, and is differentiated beside the container.

    Expect [x, x] and x beside it at 3: 27, with the gradient 9.
    """

    def f(x: Any) -> Any:
        first, second = adprotocol.non_differentiable([x, x])
        return first * second * x

    h.assert_value_and_grad(f, (h.array(3.0),), 27.0, 9.0)
