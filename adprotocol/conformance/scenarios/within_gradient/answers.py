"""Asking: what an answer is, for containers and for what is no array too, and what asking leaves behind: nothing."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import adprotocol
from adprotocol import errors
from adprotocol.conformance import nesting
from adprotocol.conformance.checks import Checked
from adprotocol.conformance.scenario import MAY, SHOULD, Decorator, defaults
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable


scenario: Decorator = defaults(
    "within_gradient",
    source="PyTorch: a canonical way to ask for a derivative: https://github.com/pytorch/pytorch/issues/84565",
    rule="W3",
)


_BOOLS = "PennyLane: a traced value where a bool is needed: https://github.com/PennyLaneAI/pennylane/issues/6932"
_TREES = "JAX: argnums shaped as the tree, for parameters are containers: https://github.com/jax-ml/jax/issues/3875"
_LABELS = "pytreeclass: leaves of a tree that are not differentiated: https://github.com/ASEM000/pytreeclass/issues/21"


@scenario(rule="W7", transform="grad", needs=("grad", "counter"))
def asking_runs_no_derivative(h: Checked) -> None:
    """Asking about a value adds no derivative computation.

    Expect as many runs of the derivative of a function whose result is asked about, and not used, as without asking.
    """

    def runs(*, ask: bool) -> int:
        identity, count = h.counter()

        def f(x: Any) -> Any:
            y = identity(x)
            return h.probe(x, y) if ask else 3.0 * x

        h.assert_equal(h.grad(f)(h.array(2.0)), 3.0, "the gradient")
        return int(count())

    with_asking, without = runs(ask=True), runs(ask=False)
    h.check(with_asking == without, f"asking made {with_asking} runs of the derivative, and not {without}")


@scenario(rule="W7", transform=("jit", "grad", "jvp", "grad of jit", "grad of grad", "grad of checkpoint"))
def asking_changes_nothing(h: Checked, transforms: str) -> None:
    """Asking changes neither value nor derivative under {transforms}.

    Value and derivative of x x x are the same with 20 questions in between: 8 and 12 at 2.

    Expect the value and derivative of x ** 3.
    """
    x = h.array(2.0)

    def f(x: Any) -> Any:
        y = x * x
        for value in (x, y, [x, y]) * 7:
            h.query(value)
        return y * x

    h.assert_equal(h.nest(transforms, f)(x), nesting.expected(transforms, lambda x: [x**3, 3 * x**2, 6 * x])(2.0)[0])
    h.assert_equal(x, 2.0, "the argument afterwards")


def _chooses_by_if(h: Checked, transforms: str) -> None:
    """Choose 3 x x in a gradient and 5 x x else by a Python `if`, for which the answer must be a bool."""

    def f(x: Any) -> Any:
        answer = adprotocol.within_gradient({"x": x})
        if not isinstance(answer, bool):
            msg = f"the answer is {kind_of(answer)}, and not a bool, in eager code"
            raise TypeError(msg)
        return 3.0 * x * x if answer else 5.0 * x * x

    k = 3.0 if nesting.differentiates(transforms) else 5.0
    h.assert_equal(
        h.nest(transforms, f)(h.array(2.0)),
        nesting.expected(transforms, lambda x: [k * x * x, 2 * k * x, 2 * k])(2.0)[0],
    )


@scenario(rule="W4", source=_BOOLS)
def a_bool_outside(h: Checked) -> None:
    """The answer is a bool outside AD.

    Expect 3 x ** 2 in a gradient, 5 x ** 2 else, by a Python if.
    """
    _chooses_by_if(h, "")


@scenario(
    level=SHOULD,
    rule="W4",
    transform=("grad", "jvp", "vmap", "vmap of grad", "grad of vmap", "grad of jvp"),
    source=_BOOLS,
)
def a_bool(h: Checked, transforms: str) -> None:
    """The answer is a bool under {transforms}.

    Expect 3 x ** 2 in a gradient, 5 x ** 2 else, by a Python if.
    """
    _chooses_by_if(h, transforms)


@scenario(level=MAY, rule="W4", transform="grad")
def explain(h: Checked) -> None:
    """`explain` returns the answer and names the plugin.

    Expect text with the name of the plugin and the answer for x, True, False or staged; False for a number; and then 3
    x, or 5 x under jit and vmap.
    """

    def f(x: Any) -> Any:
        text = adprotocol.explain(x, 1.0)
        answer = adprotocol.within_gradient(x)
        for word in (h.name, str(answer) if isinstance(answer, bool) else "staged", "False"):
            h.check(word in text, f"the explanation lacks {word!r}: {text}")
        return h.probe(x)

    h.assert_value_and_grad(f, [h.array(2.0)], 6.0, 3.0)
    # Where somebody else decides, an answer has no truth.
    for way in filter(h.has, ("jit", "vmap")):
        found = getattr(h, way)(f)(h.array([2.0]) if way == "vmap" else h.array(2.0))
        h.assert_equal(found, [10.0] if way == "vmap" else 10.0, f"under {way}")


@scenario(level=SHOULD, rule="W4", transform="grad")
def explain_why(h: Checked) -> None:
    """`explain` gives another reason for True than for False.

    Expect a reason for x plain, which is False, and another in a gradient, where it is True.
    """
    h.require_hook("explain")
    known: list[tuple[Any, str]] = []

    def f(x: Any) -> Any:
        known.append((adprotocol.within_gradient(x), adprotocol.explain(x).partition(" (")[2]))
        return x * x

    f(h.array(3.0))
    h.assert_equal(h.grad(f)(h.array(3.0)), 6.0, "the gradient")
    (plain, before), (answer, reason) = known
    h.check(before and reason and (before != reason or plain is answer), f"{plain} and {answer} because {before}")


@scenario(level=MAY, rule="W9")
def explain_what_has_no_derivative(h: Checked) -> None:
    """`explain` has a text for arrays whose dtype has no derivative.

    Expect text with the answer, False, for an integer, a boolean and a vector of integers.
    """
    for value in (1, True, [1, 2]):
        text = adprotocol.explain(h.array(value))
        h.check("False" in text, f"the explanation of {value} lacks the answer: {text}")


@scenario(
    rule="W1",
    needs=("devices",),
    source="PyTorch: gradients that are wrong on one device, where the input takes none: "
    "https://github.com/pytorch/pytorch/issues/183825",
)
def every_device(h: Checked) -> None:
    """The answers are the same on every device of this machine.

    Expect 5 x outside; 3 x times 11 c inside, at 2, 1: 66, gradient 33; on each device.
    """
    for device in h.devices():
        there = Checked(type(h.harness)(device))
        x, c = there.array(2.0), there.array(1.0)
        there.assert_equal(there.probe(x), 10.0, f"the layer on {device}")
        if there.has("grad"):
            f = functools.partial(_layers, there, c)
            there.assert_value_and_grad(f, [x], 66.0, 33.0, f"on {device}")


@scenario(
    rule="W1",
    transform="grad of jit",
    needs=("grad", "jit", "devices"),
    source="PyTorch: gradients that are wrong on one device, where the input takes none: "
    "https://github.com/pytorch/pytorch/issues/183825",
)
def every_device_under_jit(h: Checked) -> None:
    """The answers in a jitted function are the same on every device of this machine.

    Expect 3 x times 11 c inside, at 2, 1: 66, gradient 33; on each device.
    """
    for device in h.devices():
        there = Checked(type(h.harness)(device))
        x, c = there.array(2.0), there.array(1.0)
        there.assert_value_and_grad(there.jit(functools.partial(_layers, there, c)), [x], 66.0, 33.0, f"on {device}")


def _layers(h: Checked, c: Any, x: Any) -> Any:
    return h.probe(x) * h.scale(c, 7.0, 11.0)


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


@scenario(transform=("grad", "jvp", "grad of jit"), source=_TREES)
def containers(h: Checked, transforms: str) -> None:
    """A container is tracked if a leaf is, under {transforms}.

    For each container 3 x if it holds x, and ten times 5 x if it holds a constant: 53 x, whose derivative is 53.

    Expect 3 x for containers that hold x, plus 10 times 5 x for those that hold a constant: the derivative 53.
    """
    c = h.array(4.0)
    want = nesting.expected(transforms, lambda x: [53 * x, 53.0])(2.0)[0]
    for name, make in _CONTAINERS.items():

        def f(x: Any, make: Any = make) -> Any:
            return h.probe(x, make(x)) + 10.0 * h.probe(x, make(c))

        h.assert_equal(h.nest(transforms, f)(h.array(2.0)), want, f"with {name}")


@scenario(source=_TREES)
def plain_containers(h: Checked) -> None:
    """Without AD no container is tracked, and an empty one never is; without any there is no answer.

    Expect False for empty containers, and for containers of plain values; an error for nothing, and for a list in
    itself.
    """
    c = h.array(4.0)
    empties: tuple[Any, ...] = ([], (), {}, [[], {"a": ()}], Pair([], None))
    for empty in empties:
        h.assert_is(adprotocol.within_gradient(empty), False, f"the answer for {empty}")
    with h.raises(TypeError):
        adprotocol.within_gradient(*empties[0])
    endless: list[Any] = [c]
    endless.append(endless)
    with h.raises(errors.TreeError):
        adprotocol.within_gradient(endless)
    for name, make in _CONTAINERS.items():
        h.assert_equal(h.probe(c, make(c)), 20.0, f"with {name} of a plain array")


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
        return h.probe(x, h.node([c, x])) + 10.0 * h.probe(x, [h.node([c, 2])])

    h.assert_value_and_grad(f, [h.array(2.0)], 106.0, 53.0)


@scenario(transform="grad", source=_TREES)
def several_values(h: Checked) -> None:
    """One tracked value among several makes the answer True.

    Expect 3 x where x is the first of several, 10 times 3 x where it is the last, 100 times 5 x where none is: 1066.
    """
    c = h.array(4.0)

    def f(x: Any) -> Any:
        return h.probe(x, x, c) + 10.0 * h.probe(x, c, 1, None, x) + 100.0 * h.probe(x, c, c, "text")

    h.assert_value_and_grad(f, [h.array(2.0)], 1066.0, 533.0)


@scenario(rule="W9", transform="grad", source=_LABELS)
def labelled_leaf(h: Checked) -> None:
    """A leaf that is labelled non-differentiable is not tracked; its neighbours are.

    Expect 5 x for a label of x, and 10 times that for it in a container; 100 times 3 x where x stands beside it: in all
    355 x, 710 at 2.
    """

    def f(x: Any) -> Any:
        label = adprotocol.NonDifferentiable(x)
        return h.probe(x, label) + 10.0 * h.probe(x, {"a": [label]}) + 100.0 * h.probe(x, {"a": [label], "b": x})

    h.assert_value_and_grad(f, [h.array(2.0)], 710.0, 355.0)


@scenario(rule="W8")
def other_values(h: Checked) -> None:
    """Numbers, strings, None, functions, types and NumPy arrays are never tracked.

    Expect False for each, also inside of a gradient.
    """
    import numpy as np

    others = (1, 2.5, 1j, True, "text", b"bytes", None, len, other_values, lambda: None, int, range(3), ...)
    arrays = (np.ones(2), np.float64(1.0), np.arange(3), np.array([True]), np.array(["a"], dtype=object))

    def check(x: Any) -> Any:
        for value in (*others, *arrays):
            h.assert_is(adprotocol.within_gradient(value), False, f"the answer for {value!r:.40}")
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
    import numpy as np

    c = h.array(4.0)

    def holding(value: Any) -> Any:
        made = np.empty(2, dtype=object)
        made[1] = value
        return made

    def f(x: Any) -> Any:
        return h.probe(x, holding(x)) + 10.0 * h.probe(x, holding(c))

    h.assert_value_and_grad(f, [h.array(2.0)], 106.0, 53.0)


class ForeignArray:
    """An array of a framework that nobody has written a plugin for."""

    shape: tuple[int, ...] = ()
    dtype = "float32"

    def __add__(self, other: Any) -> Any:
        """Refuse to add."""
        return NotImplemented


class ForeignBuffer:
    """Another one, which shows by the protocol for exchange alone what it is."""

    def __dlpack__(self) -> Any:
        """Refuse to be read."""
        raise NotImplementedError


@scenario(rule="W8")
def unclaimed_array(h: Checked) -> None:
    """An array that no plugin claims is an error, since False might be wrong.

    Expect an error of adprotocol that names the type and the remedy, alone and beside an array of the system.
    """
    for cls in (ForeignArray, ForeignBuffer):
        for values in ((cls(),), (h.array(2.0), [cls()])):
            with h.raises(adprotocol.ADProtocolError, words=[cls.__name__, "plugin", "NumPy"]):
                adprotocol.within_gradient(*values)


@scenario(rule="W3", transform="grad")
def several_as_each(h: Checked) -> None:
    """Of several values the answer is True if it is for one of them, whatever their order, also under the switch.

    Expect in a gradient in x, with an array c and the constant k of x, True for each pair that has x, else False; under
    the system's switch, if it has one, False for all.
    """
    c = h.array(2.0)

    def asked(x: Any) -> Any:
        k = adprotocol.non_differentiable(x * x)
        pairs = ((x, c), (c, x), (k, x), (2.0 * x, k), (c, k), (k, c), (k, k, c, k, 3.0 * x))
        return sum((10.0**i * h.digit(*pair) for i, pair in enumerate(pairs)), start=0.0)

    h.assert_equal(h.grad(lambda x: x * asked(x))(c), 1001111.0, "the gradient, whose digits are the answers,")
    if h.has("no_grad"):
        found = h.grad(lambda x: x * x + h.no_grad(asked)(x))(c)
        h.assert_equal(found, 4.0, "the gradient of x ** 2 beside answers under the switch")
        h.assert_equal(h.grad(lambda x: x * h.no_grad(asked)(x))(c), 0.0, "the gradient of x times answers under it")
