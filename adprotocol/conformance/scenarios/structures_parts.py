"""`partition` and `combine`: a structure in two parts, and together again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable, errors
from adprotocol.conformance.scenario import SHOULD, scenario
from adprotocol.conformance.scenarios.structures import Head, Layer, Pair
from adprotocol.errors import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_PARTITION = "Equinox: partition and combine: https://docs.kidger.site/equinox/api/manipulation"
_LABEL = "JAX, static is not the same as not differentiable: https://github.com/jax-ml/jax/issues/2912"
_FREEZE = "optax: partition and merge by hand, an easy source of bugs: "
_FREEZE += "https://github.com/google-deepmind/optax/issues/290"


@scenario(
    "trainable/partition-round-trip",
    rule="T4",
    source=_PARTITION,
    expects="each leaf is in one part, and combine gives the identical leaves",
)
def round_trip(h: Checked) -> None:
    """`combine` of what `partition` returns has the identical leaves at their places."""
    leaves = [h.array(1.0), h.array([2.0, 3.0]), h.array(4), "name", h.array(5.0)]
    tree = {"head": Head(leaves[0], leaves[1]), "rest": [Pair(leaves[2], leaves[3]), leaves[4]]}

    def flat(part: Any) -> list[Any]:
        pair, last = part["rest"]
        return [part["head"].weight, part["head"].bias, pair.first, pair.second, last]

    trained, rest = adprotocol.partition(tree)
    joined = adprotocol.combine(trained, rest)
    expected = [True, False, False, False, True]
    for i, (leaf, mine) in enumerate(zip(leaves, expected, strict=True)):
        h.same(flat(trained)[i], leaf if mine else None, f"leaf {i} of the trainable part")
        h.same(flat(rest)[i], None if mine else leaf, f"leaf {i} of the rest")
        h.same(flat(joined)[i], leaf, f"leaf {i} of the whole")
    h.same(type(joined["head"]), Head, "the class of a node of the whole")


@scenario(
    "trainable/partition-where",
    rule="T3",
    source=_FREEZE,
    expects="the selected leaf in one part, the others in the other",
)
def partition_where(h: Checked) -> None:
    """`partition` takes `where` as `trainable` does."""
    tree = {"a": h.array(1.0), "b": h.array(2.0)}
    chosen, rest = adprotocol.partition(tree, where="b")
    h.same(chosen["a"], None, "what is not selected, in the first part")
    h.same(chosen["b"], tree["b"], "what is selected, in the first part")
    h.same(rest["a"], tree["a"], "what is not selected, in the rest")
    h.same(rest["b"], None, "what is selected, in the rest")


@scenario(
    "trainable/partition-parameters",
    rule="T1",
    needs=("parameter",),
    source=_FREEZE,
    expects="the parameter whose flag is on in one part, the other in the rest, both identical",
)
def partition_parameters(h: Checked) -> None:
    """Parameters are parted by their flags, and stay the same objects."""
    tree = [h.parameter(1.0, trains=False), h.parameter([2.0, 3.0], trains=True)]
    chosen, rest = adprotocol.partition(tree)
    h.same(chosen[0], None, "the frozen parameter, in the trainable part")
    h.same(chosen[1], tree[1], "the trained parameter, in the trainable part")
    h.same(rest[0], tree[0], "the frozen parameter, in the rest")
    h.same(rest[1], None, "the trained parameter, in the rest")


@scenario(
    "trainable/partition-node",
    rule="T4",
    needs=("node",),
    source="JAX: a registered class that cannot be rebuilt: https://github.com/jax-ml/jax/issues/25486",
    expects="a node of the same class with the identical children",
)
def partition_node(h: Checked) -> None:
    """A container of the system's own registry is parted and put together."""
    array = h.array(1.0)
    made = h.node([array, "text"])
    chosen, rest = adprotocol.partition([made])
    h.holds([child is None for child in chosen[0]] == [False, True], f"the trainable part is {list(chosen[0])!r:.200}")
    h.holds([child is None for child in rest[0]] == [True, False], f"the rest is {list(rest[0])!r:.200}")
    (joined,) = adprotocol.combine(chosen, rest)
    h.same(type(joined), type(made), "the class of the node")
    first, second = list(joined)
    h.same(first, array, "the array in the node")
    h.holds(second == "text", f"the text in the node became {second!r}")


@scenario(
    "trainable/partition-label",
    rule="N4",
    source=_LABEL,
    expects="a label of (2, 3) in the rest and not in the trainable part, and a label of (2, 3) in what combine gives",
)
def partition_label(h: Checked) -> None:
    """A labelled leaf, which cannot be hashed, goes with what takes no gradient, and comes back as a label."""
    tree = {"w": h.array(1.0), "scale": [NonDifferentiable(h.array([2.0, 3.0]))]}
    chosen, rest = adprotocol.partition(tree)
    h.same(chosen["scale"][0], None, "the label, in the trainable part")
    h.same(rest["w"], None, "the weight, in the rest")
    for name, (label,) in (("the rest", rest["scale"]), ("the whole", adprotocol.combine(chosen, rest)["scale"])):
        h.holds(isinstance(label, NonDifferentiable), f"the label in {name} is {kind_of(label)}")
        h.equal(label.value, [2.0, 3.0], f"the value of the label in {name}")


@scenario(
    "trainable/combine-first-wins",
    rule="T4",
    source=_PARTITION,
    expects="the new weight, and all else of the old model",
)
def first_wins(h: Checked) -> None:
    """`combine` takes each leaf from the first structure that has it: new leaves over an old model."""
    old = Layer(h.array(1.0), h.array(2.0))
    new = Layer(h.array(3.0))
    found = adprotocol.combine(new, old)
    h.same(found.weight, new.weight, "the leaf that both have")
    h.same(found.scale, old.scale, "the leaf that the second alone has")


@scenario(
    "trainable/combine-differing",
    level=SHOULD,
    rule="T4",
    source=_PARTITION,
    expects="TreeError that names 'b'",
)
def differing(h: Checked) -> None:
    """Structures that differ are an error that names the difference."""
    with h.raises(errors.TreeError, words=["'b'"]):
        adprotocol.combine({"a": h.array(1.0), "b": h.array(2.0)}, {"a": h.array(3.0)})


@scenario(
    "trainable/cyclic",
    level=SHOULD,
    rule="T4",
    source="docs/structures.md, What a structure is",
    expects="TreeError",
)
def cyclic(h: Checked) -> None:
    """A structure that contains itself is an error, and does not hang."""
    tree: dict[str, Any] = {"w": h.array(1.0)}
    tree["self"] = tree
    with h.raises(errors.TreeError):
        adprotocol.trainable(tree)


@scenario(
    "trainable/partition-inside-grad",
    rule="T9",
    transform="grad",
    source=_FREEZE,
    expects="the gradient of w w b at (3, 2) with respect to w is 12, and to b 9, through both parts",
    varies=True,
)
def inside_grad(h: Checked) -> None:
    """Parts keep what is being differentiated: `combine` loses no derivative."""
    w, b = h.array(3.0), h.array(2.0)

    def loss(tree: dict[str, Any]) -> Any:
        chosen, rest = adprotocol.partition(tree, where="w")
        whole = adprotocol.combine(chosen, rest)
        return whole["w"] * whole["w"] * whole["b"]

    h.equal(h.grad(lambda w: loss({"w": w, "b": b, "n": 1}))(w), 12.0, "the gradient of the selected leaf")
    h.equal(h.grad(lambda b: loss({"w": w, "b": b, "n": 1}))(b), 9.0, "the gradient of the other leaf")


@scenario(
    "trainable/partition-inside-jit",
    rule="T9",
    transform="jit",
    source="docs/structures.md, With optax",
    expects="w w b at (3, 2) is 18, through both parts",
)
def inside_jit(h: Checked) -> None:
    """A structure of traced leaves is parted and put together."""

    def loss(w: Any, b: Any) -> Any:
        tree = {"w": w, "b": adprotocol.NonDifferentiable(b), "n": 1}
        chosen, rest = adprotocol.partition(tree)
        h.same(chosen["w"], w, "the traced leaf, in the trainable part")
        h.same(chosen["b"], None, "the labelled leaf, in the trainable part")
        whole = adprotocol.combine(chosen, rest)
        return whole["w"] * whole["w"] * whole["b"]

    h.equal(h.jit(loss)(h.array(3.0), h.array(2.0)), 18.0)
