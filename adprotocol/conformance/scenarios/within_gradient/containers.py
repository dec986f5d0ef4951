"""The query about containers, and about values that are no arrays of the system."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NamedTuple

import adprotocol
from adprotocol import errors
from adprotocol.conformance import nesting
from adprotocol.conformance.scenario import SHOULD, defaults

if TYPE_CHECKING:
    from collections.abc import Callable

    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_TREES = "JAX: argnums shaped as the tree, for parameters are containers: https://github.com/jax-ml/jax/issues/3875"
_LABELS = "pytreeclass: leaves of a tree that are not differentiated: https://github.com/ASEM000/pytreeclass/issues/21"
_CANONICAL = "PyTorch: a canonical way to ask for a derivative: https://github.com/pytorch/pytorch/issues/84565"

scenario: Decorator = defaults("within_gradient", rule="W3", source=_TREES)


class Pair(NamedTuple):
    """A named tuple that no framework knows."""

    first: Any
    second: Any


@dataclasses.dataclass(frozen=True)
class Model:
    """A dataclass that no framework knows."""

    name: str
    weight: Any
    parts: Any = ()


# Containers of one value, and of things that are never tracked.
_CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "a list": lambda v: [v],
    "a tuple": lambda v: (1, v),
    "a dict": lambda v: {"a": None, "b": v},
    "a named tuple": lambda v: Pair("text", v),
    "a dataclass": lambda v: Model("m", v),
    "nested containers": lambda v: {"a": [1.5, (None, Model("m", 0, [Pair(v, "text")]))]},
    "a list of many": lambda v: [*([0.0] * 200), {"last": v}],
}


@scenario(transform=("grad", "jvp", "grad of jit"))
def containers(h: Checked, transforms: str) -> None:
    """A container is tracked if a leaf is, under {transforms}.

    For each container 3 x if it holds x, and ten times 5 x if it holds a constant: 53 x, whose derivative is 53.

    Expect 3 x for containers that hold x, plus 10 times 5 x for those that hold a constant: the derivative 53.
    """
    c = h.array(4.0)
    want = nesting.expected(transforms, lambda x: [53 * x, 53.0])(2.0)[0]
    for name, make in _CONTAINERS.items():

        def f(x: Any, make: Any = make) -> Any:
            return h.probe_by(x, make(x)) + 10.0 * h.probe_by(x, make(c))

        h.assert_equal(h.nest(transforms, f)(h.array(2.0)), want, f"with {name}")


@scenario()
def plain_containers(h: Checked) -> None:
    """Without AD no container is tracked, and an empty one never is; without any there is no answer.

    Expect False for empty containers, and for containers of plain values; an error for nothing, and for a list in
    itself.
    """
    c = h.array(4.0)
    empties: tuple[Any, ...] = ([], (), {}, [[], {"a": ()}], Pair([], None))
    for empty in empties:
        h.assert_is(adprotocol.within_gradient(empty), False, f"the answer for {empty}")  # noqa: FBT003
    with h.raises(TypeError):
        adprotocol.within_gradient(*empties[0])
    endless: list[Any] = [c]
    endless.append(endless)
    with h.raises(errors.TreeError):
        adprotocol.within_gradient(endless)
    for name, make in _CONTAINERS.items():
        h.assert_equal(h.probe_by(c, make(c)), 20.0, f"with {name} of a plain array")


@scenario(
    transform="grad",
    needs=("grad", "node"),
    source="JAX: custom pytree nodes: https://docs.jax.dev/en/latest/custom_pytrees.html",
)
def registered_node(h: Checked) -> None:
    """A container of a class that the system's own registry knows is tracked if a child is.

    Expect 3 x for a node that holds x, plus 10 times 5 x for one that holds a constant: 106, gradient 53.
    """
    c = h.array(4.0)

    def f(x: Any) -> Any:
        return h.probe_by(x, h.node([c, x])) + 10.0 * h.probe_by(x, [h.node([c, 2])])

    h.assert_value_and_grad(f, [h.array(2.0)], 106.0, 53.0)


@scenario(transform="grad")
def several_values(h: Checked) -> None:
    """One tracked value among several makes the answer True.

    Expect 3 x where x is the first of several, 10 times 3 x where it is the last, 100 times 5 x where none is: 1066.
    """
    c = h.array(4.0)

    def f(x: Any) -> Any:
        return h.probe_by(x, x, c) + 10.0 * h.probe_by(x, c, 1, None, x) + 100.0 * h.probe_by(x, c, c, "text")

    h.assert_value_and_grad(f, [h.array(2.0)], 1066.0, 533.0)


@scenario(rule="W9", transform="grad", source=_LABELS)
def labelled_leaf(h: Checked) -> None:
    """A leaf that is labelled non-differentiable is not tracked; its neighbours are.

    Expect 5 x for a label of x, and 10 times that for it in a container; 100 times 3 x where x stands beside it: in all
    355 x, 710 at 2.
    """

    def f(x: Any) -> Any:
        label = adprotocol.NonDifferentiable(x)
        return (
            h.probe_by(x, label) + 10.0 * h.probe_by(x, {"a": [label]}) + 100.0 * h.probe_by(x, {"a": [label], "b": x})
        )

    h.assert_value_and_grad(f, [h.array(2.0)], 710.0, 355.0)


@scenario(rule="W8", source=_CANONICAL)
def other_values(h: Checked) -> None:
    """Numbers, strings, None, functions, types and NumPy arrays are never tracked.

    Expect False for each, also inside of a gradient.
    """
    import numpy as np  # noqa: PLC0415  (--list does without)

    others = (1, 2.5, 1j, True, "text", b"bytes", None, len, other_values, lambda: None, int, range(3), ...)
    arrays = (np.ones(2), np.float64(1.0), np.arange(3), np.array([True]), np.array(["a"], dtype=object))

    def check(x: Any) -> Any:
        for value in (*others, *arrays):
            h.assert_is(adprotocol.within_gradient(value), False, f"the answer for {value!r:.40}")  # noqa: FBT003
        return h.probe(x)

    h.assert_equal(check(h.array(2.0)), 10.0)
    if h.has("grad"):
        h.assert_value_and_grad(check, [h.array(2.0)], 6.0, 3.0)


@scenario(
    level=SHOULD,
    rule="W8",
    transform="grad",
    source="autograd: NumPy arrays of boxes, of dtype object: https://github.com/HIPS/autograd/issues/459",
)
def object_array(h: Checked) -> None:
    """A NumPy array of objects is tracked if an element is.

    Expect 3 x for a NumPy array of objects that holds x, 10 times 5 x for one that holds a constant: 106, and 53.
    """
    import numpy as np  # noqa: PLC0415  (--list does without)

    c = h.array(4.0)

    def holding(value: Any) -> Any:
        made = np.empty(2, dtype=object)
        made[1] = value
        return made

    def f(x: Any) -> Any:
        return h.probe_by(x, holding(x)) + 10.0 * h.probe_by(x, holding(c))

    h.assert_value_and_grad(f, [h.array(2.0)], 106.0, 53.0)


class ForeignArray:
    """An array of a framework that nobody has written a plugin for."""

    shape: tuple[int, ...] = ()
    dtype = "float32"


class ForeignBuffer:
    """Another one, which shows by the protocol for exchange alone what it is."""

    def __dlpack__(self) -> Any:
        """Refuse to be read."""
        raise NotImplementedError


@scenario(rule="W8", source=_CANONICAL)
def unclaimed_array(h: Checked) -> None:
    """An array that no plugin claims is an error, since False might be wrong.

    Expect an error of adprotocol that names the type and the remedy, alone and beside an array of the system.
    """
    for cls in (ForeignArray, ForeignBuffer):
        for values in ((cls(),), (h.array(2.0), [cls()])):
            with h.raises(adprotocol.ADProtocolError, words=[cls.__name__, "plugin", "NumPy"]):
                adprotocol.within_gradient(*values)
