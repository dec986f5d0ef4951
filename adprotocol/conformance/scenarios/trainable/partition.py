"""`partition` and `combine`, and the selection `where` of a call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import NonDifferentiable, errors
from adprotocol.conformance.scenario import SHOULD, Decorator, defaults
from adprotocol.conformance.scenarios.models import Affine, Head, Layer, Pair
from adprotocol.conformance.scenarios.trainable.leaves import selected
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


scenario: Decorator = defaults("trainable", rule="T3")


_PARTITION = "Equinox: partition and combine: https://docs.kidger.site/equinox/api/manipulation"
_FREEZE = "optax: partition and merge by hand, an easy source of bugs: "
_FREEZE += "https://github.com/google-deepmind/optax/issues/290"
_NONE = "JAX: None is a node without children, and not a leaf: https://docs.jax.dev/en/latest/pytrees.html"
_MAML = "C. Finn, P. Abbeel, S. Levine: Model-agnostic meta-learning, ICML 2017: https://arxiv.org/abs/1703.03400"
_FROZEN = "optax: how to freeze parameters: https://github.com/google-deepmind/optax/issues/290"
_PREFIX = "Equinox: a filter is a prefix of the structure: https://docs.kidger.site/equinox/api/manipulation"
_MASKED = "optax: what is not selected by a mask is updated all the same: "
_MASKED += "https://github.com/google-deepmind/optax/issues/159"


@scenario(source=_PARTITION, rule="T4")
def partition_round_trip(h: Checked) -> None:
    """`combine` of what `partition` returns has the identical leaves at their places.

    Each leaf is in one part, and combine gives the identical leaves.
    """
    leaves = [h.array(1.0), h.array([2.0, 3.0]), h.array(4), "name", h.array(5.0)]
    tree = {"head": Head(leaves[0], leaves[1]), "rest": [Pair(leaves[2], leaves[3]), leaves[4]]}

    def flat(part: Any) -> list[Any]:
        pair, last = part["rest"]
        return [part["head"].weight, part["head"].bias, pair.first, pair.second, last]

    trained, rest = adprotocol.partition(tree)
    joined = adprotocol.combine(trained, rest)
    expected = [True, False, False, False, True]
    for i, (leaf, mine) in enumerate(zip(leaves, expected, strict=True)):
        h.assert_is(flat(trained)[i], leaf if mine else None, f"leaf {i} of the trainable part")
        h.assert_is(flat(rest)[i], None if mine else leaf, f"leaf {i} of the rest")
        h.assert_is(flat(joined)[i], leaf, f"leaf {i} of the whole")
    h.assert_is(type(joined["head"]), Head, "the class of a node of the whole")


@scenario(source=_FREEZE)
def partition_where(h: Checked) -> None:
    """`partition` takes `where` as `trainable` does.

    Expect the selected leaf in one part, the others in the other.
    """
    tree = {"ab": h.array(1.0), "b": h.array(2.0)}
    chosen, rest = adprotocol.partition(tree, where="b")
    h.assert_is(chosen["ab"], None, "what is not selected, in the first part")
    h.assert_is(chosen["b"], tree["b"], "what is selected, in the first part")
    h.assert_is(rest["ab"], tree["ab"], "what is not selected, in the rest")
    h.assert_is(rest["b"], None, "what is selected, in the rest")


@scenario(rule="T1", needs=("parameter",), source=_FREEZE)
def partition_parameters(h: Checked) -> None:
    """Parameters are parted by their flags, and stay the same objects.

    Expect the parameter whose flag is on in one part, the other in the rest, both identical.
    """
    tree = [h.parameter(1.0, trains=False), h.parameter([2.0, 3.0], trains=True)]
    chosen, rest = adprotocol.partition(tree)
    h.assert_is(chosen[0], None, "the frozen parameter, in the trainable part")
    h.assert_is(chosen[1], tree[1], "the trained parameter, in the trainable part")
    h.assert_is(rest[0], tree[0], "the frozen parameter, in the rest")
    h.assert_is(rest[1], None, "the trained parameter, in the rest")


@scenario(
    needs=("node",),
    source="JAX: a registered class that cannot be rebuilt: https://github.com/jax-ml/jax/issues/25486",
    rule="T4",
)
def partition_node(h: Checked) -> None:
    """A container of the system's own registry is parted and put together.

    Expect a node of the same class with the identical children.
    """
    array = h.array(1.0)
    made = h.node([array, "text"])
    chosen, rest = adprotocol.partition([made])
    h.check([child is None for child in chosen[0]] == [False, True], f"the trainable part is {list(chosen[0])!r:.200}")
    h.check([child is None for child in rest[0]] == [True, False], f"the rest is {list(rest[0])!r:.200}")
    (joined,) = adprotocol.combine(chosen, rest)
    h.assert_is(type(joined), type(made), "the class of the node")
    first, second = list(joined)
    h.assert_is(first, array, "the array in the node")
    h.check(second == "text", f"the text in the node became {second!r}")


@scenario(
    rule="N4", source="JAX, static is not the same as not differentiable: https://github.com/jax-ml/jax/issues/2912"
)
def partition_label(h: Checked) -> None:
    """A labelled leaf, which cannot be hashed, goes with what takes no gradient, and comes back as a label.

    Expect a label of (2, 3) in the rest and not in the trainable part, and a label of (2, 3) in what combine gives, and
    tree_map.
    """
    tree = {"w": h.array(1.0), "scale": [NonDifferentiable(h.array([2.0, 3.0]))]}
    chosen, rest = adprotocol.partition(tree)
    (doubled,) = adprotocol.tree_map(lambda leaf: 2.0 * leaf, tree)["scale"]
    h.check(isinstance(doubled, NonDifferentiable), f"tree_map gave {kind_of(doubled)} for a label")
    h.assert_is(chosen["scale"][0], None, "the label, in the trainable part")
    h.assert_is(rest["w"], None, "the weight, in the rest")
    for name, (label,) in (("the rest", rest["scale"]), ("the whole", adprotocol.combine(chosen, rest)["scale"])):
        h.check(isinstance(label, NonDifferentiable), f"the label in {name} is {kind_of(label)}")
        h.assert_equal(label.value, [2.0, 3.0], f"the value of the label in {name}")


@scenario(source=_PARTITION, rule="T4")
def combine_first_wins(h: Checked) -> None:
    """`combine` takes each leaf from the first structure that has it: new leaves over an old model.

    Expect the new weight, and all else of the old model.
    """
    old = Layer(h.array(1.0), h.array(2.0))
    new = Layer(h.array(3.0))
    found = adprotocol.combine(new, old)
    h.assert_is(found.weight, new.weight, "the leaf that both have")
    h.assert_is(found.scale, old.scale, "the leaf that the second alone has")


@scenario(level=SHOULD, source=_PARTITION, rule="T4")
def combine_differing(h: Checked) -> None:
    """Structures that differ are an error that names the difference.

    Expect TreeError that names 'b'.
    """
    with h.raises(errors.TreeError, words=["'b'"]):
        adprotocol.combine({"a": h.array(1.0), "b": h.array(2.0)}, {"a": h.array(3.0)})


@scenario(level=SHOULD, source="docs/structures.md, What a structure is", rule="T4")
def cyclic(h: Checked) -> None:
    """A structure that contains itself is an error, and does not hang.

    Expect TreeError.
    """
    tree: dict[str, Any] = {"w": h.array(1.0)}
    tree["self"] = tree
    with h.raises(errors.TreeError):
        adprotocol.trainable(tree)


@scenario(rule="T9", transform="grad", varies=True, source=_FREEZE)
def partition_inside_grad(h: Checked) -> None:
    """Parts keep what is being differentiated: `combine` loses no derivative.

    The gradient of w ** 2 * b at (3, 2) with respect to w is 12, and to b 9, through both parts.
    """
    w, b = h.array(3.0), h.array(2.0)

    def loss(tree: dict[str, Any]) -> Any:
        chosen, rest = adprotocol.partition(tree, where="w")
        whole = adprotocol.combine(chosen, rest, like=tree)
        return whole["w"] * whole["w"] * whole["b"]

    h.assert_equal(h.grad(lambda w: loss({"w": w, "b": b, "n": 1}))(w), 12.0, "the gradient of the selected leaf")
    h.assert_equal(h.grad(lambda b: loss({"w": w, "b": b, "n": 1}))(b), 9.0, "the gradient of the other leaf")


@scenario(rule="T9", transform="jit", source="docs/structures.md, With optax")
def partition_inside_jit(h: Checked) -> None:
    """A structure of traced leaves is parted and put together.

    w ** 2 * b at (3, 2) is 18, through both parts.
    """

    def loss(w: Any, b: Any) -> Any:
        tree = {"w": w, "b": adprotocol.NonDifferentiable(b), "n": 1}
        chosen, rest = adprotocol.partition(tree)
        h.assert_is(chosen["w"], w, "the traced leaf, in the trainable part")
        h.assert_is(chosen["b"], None, "the labelled leaf, in the trainable part")
        whole = adprotocol.combine(chosen, rest)
        return whole["w"] * whole["w"] * whole["b"]

    h.assert_equal(h.jit(loss)(h.array(3.0), h.array(2.0)), 18.0)


@scenario(rule="T12", source=_MAML)
def combine_like(h: Checked) -> None:
    """`combine` with `like` gives something that is called as the model is, and leaves the model alone.

    Expect a line with slope 6, offset 1 and its name, which maps 5 to 31; the model still maps 5 to 16.
    """
    model = Affine(h.array(3.0), h.array(1.0))
    chosen, rest = adprotocol.partition(model, where="slope")
    made = adprotocol.combine(replace(chosen, slope=h.array(6.0)), rest, like=model)
    h.assert_is(type(made), Affine, "the class of what combine returns")
    h.assert_is(made.name, model.name, "a field that is no array")
    h.assert_equal(made(h.array(5.0)), 31.0, "the new model")
    h.assert_equal(model(h.array(5.0)), 16.0, "the model")


@scenario(level=SHOULD, rule="T12", source=_MAML)
def combine_like_missing(h: Checked) -> None:
    """A leaf that no structure has is an error with its path, and no None in the model.

    Expect TreeError that names 'offset'.
    """
    model = Affine(h.array(3.0), h.array(1.0))
    chosen, _ = adprotocol.partition(model, where="slope")
    with h.raises(errors.TreeError, words=["'offset'"]):
        adprotocol.combine(chosen, like=model)


@scenario(rule="T13", source=_NONE)
def tree_map(h: Checked) -> None:
    """`tree_map` keeps classes, labels and None; where another structure has None, the function gets it.

    Expect w - 2 g = 1 at (2, 0.5), the label with its 4, None for None; then ten times each, 40 in a label.
    """
    model: dict[str, Any] = {"head": Head(h.array(2.0), NonDifferentiable(h.array(4.0))), "rest": [None]}
    gradient: dict[str, Any] = {"head": Head(h.array(0.5), None), "rest": [None]}
    stepped = adprotocol.tree_map(lambda w, g: w if g is None else w - 2.0 * g, model, gradient)
    scaled = adprotocol.tree_map(lambda w: 10.0 * w, model)
    for made, weight, bias in ((stepped, 1.0, 4.0), (scaled, 20.0, 40.0)):
        head = made["head"]
        h.assert_is(type(head), Head, "the class of a node")
        h.assert_equal(head.weight, weight, "a leaf")
        h.assert_is(type(head.bias), NonDifferentiable, "the class of a labelled leaf")
        h.assert_equal(head.bias.value, bias, "the value in a label")
        h.assert_is(made["rest"][0], None, "None")


@scenario(source=_FROZEN)
def where_pattern(h: Checked) -> None:
    """A pattern covers the whole dotted path, and * matches dots.

    '*.w' selects a.w and b.c.0.w, not the w at the top; 'w' selects that one alone; 'a' names no leaf.
    """
    tree: dict[str, Any] = {
        "w": h.array(0.0),
        "a": {"w": h.array(1.0), "b": h.array(2.0)},
        "b": {"c": [{"w": h.array(3.0)}]},
    }
    found = adprotocol.trainable(tree, where="*.w")
    h.assert_is(found["w"], None, "the leaf without a dot in its path")
    h.assert_is(found["a"]["w"], tree["a"]["w"], "the leaf at 'a.w'")
    h.assert_is(found["a"]["b"], None, "the leaf at 'a.b'")
    h.assert_is(found["b"]["c"][0]["w"], tree["b"]["c"][0]["w"], "the leaf at 'b.c.0.w'")
    found = adprotocol.trainable(tree, where="w")
    h.assert_is(found["w"], tree["w"], "the leaf at 'w'")
    h.assert_is(found["a"]["w"], None, "the leaf whose path ends with the pattern")
    with h.raises(errors.SelectionError, words=["'a'"]):
        adprotocol.trainable(tree, where="a")


@scenario(source=_FROZEN)
def where_patterns(h: Checked) -> None:
    """Several patterns select what one of them matches.

    ['layers.0.*', 'scale'] selects the first layer and the scale, 'layer*' both; 'nothing' is an error.
    """
    first, second, scale = h.array(1.0), h.array(2.0), h.array(3.0)
    tree = {"layers": [{"w": first}, {"w": second}], "scale": scale}
    with h.raises(errors.SelectionError, words=["nothing"]):
        adprotocol.trainable(tree, where=["layers.0.*", "nothing"])
    found = adprotocol.trainable(tree, where=["layer*", "scale"])
    h.assert_is(found["layers"][1]["w"], second, "the leaf below what the first pattern names")
    found = adprotocol.trainable(tree, where=["layers.0.*", "scale"])
    h.assert_is(found["layers"][0]["w"], first, "the leaf that the first pattern matches")
    h.assert_is(found["layers"][1]["w"], None, "the leaf that no pattern matches")
    h.assert_is(found["scale"], scale, "the leaf that the second pattern matches")


@scenario(source="Equinox: filters are functions of the leaf: https://docs.kidger.site/equinox/api/manipulation")
def where_predicate(h: Checked) -> None:
    """A predicate gets the path and the leaf of every leaf, and decides.

    The predicate gets each dotted path with the leaf itself; leaves for which it is True are selected.
    """
    tree = {"a": h.array(1.0), "b": h.array([1.0, 2.0]), "n": 3, "s": "text"}
    inner = [h.array(1.0), h.array(2.0)]
    found = adprotocol.trainable({"inner": inner}, lambda path, _: path == "inner.1")
    h.assert_is(found["inner"][0], None, "what trainable returned at 'inner.0'")
    h.assert_is(found["inner"][1], inner[1], "what trainable returned at 'inner.1'")
    seen: dict[str, Any] = {}

    def chosen(path: str, leaf: Any) -> bool:
        seen[path] = leaf
        return path == "b"

    selected(h, tree, ["b"], chosen)
    h.check(list(seen) == list(tree), f"the predicate was asked about {list(seen)}; {list(tree)} was expected")
    for path, leaf in tree.items():
        h.assert_is(seen[path], leaf, f"the leaf given to the predicate for {path!r}")


@scenario(
    source="Equinox: a mask of the structure of the model: https://docs.kidger.site/equinox/examples/frozen_layer"
)
def where_mask(h: Checked) -> None:
    """A mask of bools in the structure of the model selects leaves.

    Expect the leaves where the mask has True.
    """
    tree = {"a": h.array(1.0), "b": h.array(2.0), "n": 3}
    selected(h, tree, ["b"], {"a": False, "b": True, "n": False})


@scenario(source=_PREFIX)
def where_prefix_mask(h: Checked) -> None:
    """A bool in a mask stands for all that is below it.

    Expect all leaves below True, none below False.
    """
    a, b, c = h.array(1.0), h.array(2.0), h.array(3.0)
    found = adprotocol.trainable({"x": [a, {"w": b}], "y": (c,)}, where={"x": True, "y": False})
    h.assert_is(found["x"][0], a, "a leaf below True")
    h.assert_is(found["x"][1]["w"], b, "a leaf further below True")
    h.assert_is(found["y"][0], None, "a leaf below False")


@scenario(source="Flux: layers frozen after the model is made: https://github.com/FluxML/Flux.jl/issues/1931")
def where_replaces_declarations(h: Checked) -> None:
    """`where` decides instead of `__trainable__` and field metadata, for this call only.

    Expect the fields that the classes freeze are selected, those that they train are None.
    """
    tree: dict[str, Any] = {"head": Head(h.array(1.0), h.array(2.0)), "layer": Layer(h.array(3.0), h.array(4.0))}
    found = adprotocol.trainable(tree, where=["head.bias", "layer.scale"])
    h.assert_is(found["head"].bias, tree["head"].bias, "the selected field that its class leaves out")
    h.assert_is(found["layer"].scale, tree["layer"].scale, "the selected field that its metadata freeze")
    h.assert_is(found["head"].weight, None, "the declared field that is not selected")
    after = adprotocol.trainable(tree)
    h.assert_is(after["head"].bias, None, "the field that its class leaves out, in the next call")


@scenario(
    needs=("parameter",),
    source="PyTorch: requires_grad of parameters: https://docs.pytorch.org/docs/stable/notes/autograd.html",
)
def where_replaces_flags(h: Checked) -> None:
    """`where` decides instead of the flags of parameters, which stay as they are.

    Expect the parameter whose flag is off is selected, the one whose flag is on is None.
    """
    tree = {"on": h.parameter(1.0, trains=True), "off": h.parameter(2.0, trains=False)}
    selected(h, tree, ["off"], "off")
    selected(h, tree, ["on"])


@scenario(level=SHOULD, source=_PREFIX)
def where_beside_none(h: Checked) -> None:
    """Where the structure has None, a selection says nothing, and is no error.

    The arrays are selected; None stays None.
    """
    tree = {"w": h.array(1.0), "bias": None}
    selected(h, tree, ["w"], "*")
    selected(h, tree, ["w"], where=True)


@scenario(source="GPflow: setting trainable without effect: https://github.com/GPflow/GPflow/issues/1184")
def where_without_match(h: Checked) -> None:
    """A pattern that matches nothing is an error, which names it and the nearest path.

    Expect SelectionError that names the pattern and the path 'kernel.variance'.
    """
    tree = {"kernel": {"variance": h.array(1.0)}, "offset": h.array(2.0)}
    with h.raises(errors.SelectionError, words=["*.varience", "kernel.variance"]):
        adprotocol.trainable(tree, where=["offset", "*.varience"])


@scenario(source=_MASKED)
def where_other_structure(h: Checked) -> None:
    """A mask of another structure is an error that names what it lacks, or has in excess.

    Expect SelectionError that names 'bias', and one that names 'c'.
    """
    tree = {"weight": h.array(1.0), "bias": h.array(2.0)}
    with h.raises(errors.SelectionError, words=["bias"]):
        adprotocol.trainable(tree, where={"weight": True})
    with h.raises(errors.SelectionError, words=["'c'"]):
        adprotocol.trainable(tree, where={"weight": True, "bias": False, "c": True})


@scenario(source="JAX: grad of integers should be an error: https://github.com/jax-ml/jax/issues/424")
def where_selects_integers(h: Checked) -> None:
    """A selected leaf that can take no gradient is an error that names it, in each form of `where`.

    Expect SelectionError that names 'inner.steps', for a name, a mask and a predicate; a pattern that selects "w" too
    passes over it.
    """
    tree = {"inner": {"w": h.array(1.0), "steps": h.array(3)}}
    for where in ("inner.steps", {"inner": True}, lambda path, leaf: bool(path)):
        with h.raises(errors.SelectionError, words=["inner.steps"]):
            adprotocol.trainable(tree, where=where)
    h.assert_is(adprotocol.trainable(tree, where="inner.*")["inner"]["steps"], None)


@scenario(source="docs/structures.md, Who decides")
def where_selects_label(h: Checked) -> None:
    """A selected leaf that is labelled NonDifferentiable is an error: a label always holds.

    Expect SelectionError that names 'c'.
    """
    tree = {"w": h.array(1.0), "c": adprotocol.NonDifferentiable(h.array(2.0))}
    with h.raises(errors.SelectionError, words=["'c'"]):
        adprotocol.trainable(tree, where=["w", "c"])


@scenario(level=SHOULD, source="Numba: an array as a predicate: https://github.com/numba/numba/issues/4230")
def where_predicate_without_bool(h: Checked) -> None:
    """A predicate that returns something else than a bool is an error that names the leaf.

    Expect SelectionError that names 'b'.
    """
    tree = {"a": h.array(1.0), "b": h.array(2.0)}
    with h.raises(errors.SelectionError, words=["'b'"]):
        adprotocol.trainable(tree, where=lambda path, leaf: leaf if path == "b" else True)


@scenario(rule="T9", transform="grad", varies=True, source=_FROZEN)
def where_inside_grad(h: Checked) -> None:
    """Leaves that are being differentiated are selected like any others.

    The gradient of a b at (3, 3) through the selected leaf alone is 3.
    """

    def product(x: Any) -> Any:
        tree = {"a": x * 1.0, "b": x * 1.0}
        found = adprotocol.trainable(tree, where="a")
        h.assert_is(found["a"], tree["a"], "the selected leaf")
        h.assert_is(found["b"], None, "the leaf that is not selected")
        return found["a"] * adprotocol.non_differentiable(tree["b"])

    h.assert_equal(h.grad(product)(h.array(3.0)), 3.0, "the gradient")
