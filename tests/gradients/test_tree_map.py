"""`tree_map`: every structure, labels, None, and typed results."""

import dataclasses

import pytest
from ad_backends import close, on_every_backend

from adprotocol import NonDifferentiable, grad, partition, steepest_ascent, tree_map
from adprotocol.errors import TreeError


@dataclasses.dataclass(frozen=True)
class Model:
    w: object
    scale: object
    order: int | None = None


def test_a_label_is_a_node_and_stays_one():
    mapped = tree_map(lambda leaf: 10 * leaf, Model(1.0, NonDifferentiable(2.0)))
    assert type(mapped) is Model
    assert (mapped.w, mapped.order) == (10.0, None)
    assert isinstance(mapped.scale, NonDifferentiable)
    assert mapped.scale.value == 20.0


def test_a_structure_in_a_label_is_mapped_leaf_by_leaf():
    mapped = tree_map(lambda leaf, g: (leaf, g), {"a": NonDifferentiable({"b": [1.0, 2.0]})}, {"a": None})
    assert isinstance(mapped["a"], NonDifferentiable)
    assert mapped["a"].held == {"b": [(1.0, None), (2.0, None)]}


def test_a_module_gives_a_dict():
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    module = torch.nn.Linear(2, 1)
    doubled = tree_map(lambda p: 2.0 * p, module)
    assert list(doubled) == ["weight", "bias"]
    assert torch.equal(doubled["bias"], 2.0 * module.bias)
    params, _ = partition(module)
    same = tree_map(lambda p, d: d - p, module, tree_map(lambda p: 2.0 * p, params))
    assert torch.equal(same["weight"], module.weight)


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"x": 1}, r"'y' is in tree and not in argument 2"),
        ({"x": 1, "y": 2, "z": 3}, r"'z' is in argument 2 and not in tree"),
        ([1, 2], r"'x' is in tree and not in argument 2"),
    ],
)
def test_other_structures_are_refused_by_the_path(other, what):
    with pytest.raises(TreeError, match=f"tree_map was given structures that do not match: {what}"):
        tree_map(lambda a, b: a, {"x": 1, "y": 2}, other)


def test_nodes_that_are_leaves_are_mapped_as_a_whole():
    tree = {"pair": (1.0, 2.0), "list": [3.0, None]}
    swapped = tree_map(lambda leaf: leaf[::-1] if isinstance(leaf, tuple) else -leaf, tree, is_leaf=is_tuple)
    assert swapped == {"pair": (2.0, 1.0), "list": [-3.0, None]}
    sums = tree_map(lambda a, b: a + b, tree, tree, is_leaf=is_tuple)
    assert sums == {"pair": (1.0, 2.0, 1.0, 2.0), "list": [6.0, None]}


def is_tuple(node):
    return isinstance(node, tuple)


def test_none_and_labels_may_be_leaves():
    tree = {"w": 1.0, "n": None, "label": NonDifferentiable(2.0)}
    filled = tree_map(lambda leaf: 0.0 if leaf is None else leaf, tree, is_leaf=lambda node: node is None)
    assert filled["n"] == 0.0
    assert filled["label"].held == 2.0
    plain = tree_map(
        lambda leaf: leaf.held if isinstance(leaf, NonDifferentiable) else leaf,
        tree,
        is_leaf=lambda node: isinstance(node, NonDifferentiable),
    )
    assert plain == {"w": 1.0, "n": None, "label": 2.0}


@on_every_backend
def test_steepest_ascent_is_one_direction_on_every_framework(ad):
    def distance(p):
        return abs(p["z"] - (1.0 + 2.0j)) ** 2 + (p["r"] - 3.0) ** 2

    def slopes(p):
        return steepest_ascent(grad(distance, where={"z": True, "r": True, "n": False})(p))

    start = {"z": ad.make(0.5 + 0.0j), "r": ad.make(0.0), "n": 2}
    first = slopes(start)
    assert close(first["z"], -1.0 - 4.0j)
    assert close(first["r"], -6.0)
    assert first["n"] is None
    params = {name: value for name, value in start.items() if name != "n"}
    for _ in range(60):
        params = tree_map(lambda p, slope: p - 0.2 * slope, params, steepest_ascent(grad(distance)(params)))
    assert close(params["z"], 1.0 + 2.0j)
    assert close(params["r"], 3.0)
    # Inside another derivative, which has the convention of the framework.
    outer = ad.derivative(lambda z: abs(z - 0.2 * slopes({**start, "z": z})["z"]))(ad.make(0.5 + 1.0j))
    assert close(steepest_ascent(outer), 0.26832816 + 0.53665631j)
