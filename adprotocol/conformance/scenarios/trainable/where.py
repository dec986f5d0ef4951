"""`where`: patterns, predicates and masks select the leaves of one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import adprotocol
from adprotocol import errors
from adprotocol.conformance.scenario import SHOULD, defaults
from adprotocol.conformance.scenarios.models import Head, Layer
from adprotocol.conformance.scenarios.trainable.leaves import selected

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked
    from adprotocol.conformance.scenario import Decorator


_FREEZE = "optax: how to freeze parameters: https://github.com/google-deepmind/optax/issues/290"
_PREFIX = "Equinox: a filter is a prefix of the structure: https://docs.kidger.site/equinox/api/manipulation"
_MASKED = "optax: what is not selected by a mask is updated all the same: "
_MASKED += "https://github.com/google-deepmind/optax/issues/159"

scenario: Decorator = defaults("trainable", rule="T3")


@scenario(source=_FREEZE)
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


@scenario(source=_FREEZE)
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

    Expect SelectionError that names 'inner.steps', for a pattern, a mask and a predicate.
    """
    tree = {"inner": {"w": h.array(1.0), "steps": h.array(3)}}
    for where in ("inner.*", {"inner": True}, lambda path, leaf: bool(path)):  # noqa: ARG005
        with h.raises(errors.SelectionError, words=["inner.steps"]):
            adprotocol.trainable(tree, where=where)


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


@scenario(rule="T9", transform="grad", varies=True, source=_FREEZE)
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
