"""`partition` and `combine`: a structure in two parts, and together again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable, errors
from adprotocol.conformance.scenario import SHOULD, scenario
from adprotocol.conformance.scenarios.structures import Head, Layer, Pair
from adprotocol.errors import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

_PARTITION = "Equinox: partition and combine: https://docs.kidger.site/equinox/api/manipulation"
_MAML = "C. Finn, P. Abbeel, S. Levine: Model-agnostic meta-learning, ICML 2017: https://arxiv.org/abs/1703.03400"
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


@dataclass
class _Line:
    """A model that is called."""

    slope: Any
    offset: Any
    name: str = "line"

    def __call__(self, x: Any) -> Any:
        return self.slope * x + self.offset


@scenario(
    "trainable/combine-like",
    rule="T12",
    source=_MAML,
    expects="a line with slope 6, offset 1 and its name, which maps 5 to 31; the model still maps 5 to 16",
)
def combine_like(h: Checked) -> None:
    """`combine` with `like` gives something that is called as the model is, and leaves the model alone."""
    model = _Line(h.array(3.0), h.array(1.0))
    chosen, rest = adprotocol.partition(model, where="slope")
    made = adprotocol.combine(replace(chosen, slope=h.array(6.0)), rest, like=model)
    h.same(type(made), _Line, "the class of what combine returns")
    h.same(made.name, model.name, "a field that is no array")
    h.equal(made(h.array(5.0)), 31.0, "the new model")
    h.equal(model(h.array(5.0)), 16.0, "the model")


@scenario(
    "trainable/combine-like-missing",
    rule="T12",
    level=SHOULD,
    source=_MAML,
    expects="TreeError that names 'offset'",
)
def combine_like_missing(h: Checked) -> None:
    """A leaf that no structure has is an error with its path, and no None in the model."""
    model = _Line(h.array(3.0), h.array(1.0))
    chosen, _ = adprotocol.partition(model, where="slope")
    with h.raises(errors.TreeError, words=["'offset'"]):
        adprotocol.combine(chosen, like=model)


@scenario(
    "value_and_grad/adapted-model",
    rule="T12",
    transform="grad of grad",
    source=_MAML,
    expects="r r after one step of size 1/16 of r = a x + b - y for a = 3, b = 1, x = 2, y = 4: 9 / 64 * 9, gradients "
    "9 / 64 times 12 in a and 6 in b",
)
def adapted_model(h: Checked) -> None:
    """The gradient through a step of the model's own gradient reaches the model."""
    x, y = h.array(2.0), h.array(4.0)

    def loss(model: Any) -> Any:
        r = model(x) - y
        return r * r

    def after_step(model: Any) -> Any:
        slopes = adprotocol.grad(loss, backend=h.name)(model)
        chosen, rest = adprotocol.partition(model)
        moved = replace(chosen, slope=chosen.slope - slopes.slope / 16.0, offset=chosen.offset - slopes.offset / 16.0)
        return loss(adprotocol.combine(moved, rest, like=model))

    # The residual is linear in a and b: a step multiplies it by 1 - 2 (x x + 1) / 16 = 3 / 8.
    value, gradient = adprotocol.value_and_grad(after_step, backend=h.name)(_Line(h.array(3.0), h.array(1.0)))
    h.equal(value, 9.0 / 64.0 * 9.0, "the loss after the step")
    h.equal(gradient.slope, 9.0 / 64.0 * 12.0, "the gradient in a")
    h.equal(gradient.offset, 9.0 / 64.0 * 6.0, "the gradient in b")
