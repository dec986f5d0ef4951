"""Paths: one dotted form for every kind of node, the same whatever is beside it, and never two leaves at one."""

import collections
import enum

import flax.core
import flax.struct
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey
from torch import nn
from tree_kinds import Attrs, Data, Eqx, JaxData, JaxKeys, Named, Optree, Slotted, Struct, TorchTree, paths

from adprotocol import NonDifferentiable, combine, grad, partition, trainable
from adprotocol.errors import SelectionError
from adprotocol.extend import tree_leaves


class SubNamed(Named):
    pass


class Plain:
    def __init__(self, a=1.0, b=2.0):
        self.a, self.b = a, b

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


FIELDS = [Data, Slotted, Attrs, Named, SubNamed, Eqx, Struct, JaxData, JaxKeys, Optree, TorchTree]


@pytest.mark.parametrize("cls", FIELDS)
def test_fields_have_their_names(cls):
    assert paths(cls()) == (["b", "a"] if cls in (Slotted, Named, SubNamed) else ["a", "b"])
    assert sorted(paths({"k": [cls(a=[1.0, 2.0], b={"x": 3.0})]})) == ["k.0.a.0", "k.0.a.1", "k.0.b.x"]
    assert trainable([cls()], where="*.b")[0].b == 2.0
    assert trainable([cls()], where="*.b")[0].a is None


class Colour(enum.Enum):
    RED = 1


CONTAINERS = [
    ([1.0, [2.0], []], ["0", "1.0"]),
    ((1.0, ((2.0,),)), ["0", "1.0.0"]),
    (collections.deque([1.0, {"a": 2.0}], maxlen=2), ["0", "1.a"]),
    ({"b": 1.0, "a": {"c": 2.0}, "e": {}}, ["a.c", "b"]),
    (collections.OrderedDict(b=1.0, a=2.0), ["b", "a"]),
    (collections.defaultdict(list, b=1.0, a=2.0), ["a", "b"]),
    ({2: 1.0, 10: 2.0}, ["2", "10"]),
    ({None: 1.0, ("p", 1): 2.0, Colour.RED: 3.0, 2.5: 4.0}, ["None", "('p', 1)", "Colour.RED", "2.5"]),
    ({"a.b": 1.0, "": 2.0, "ä x\n": 3.0}, ["", "a.b", "ä x\n"]),
    ({"a": None, "b": NonDifferentiable([1.0])}, ["a", "b"]),
    (flax.core.FrozenDict({"params": {"kernel": 1.0}}), ["params.kernel"]),
    (torch.ones(2, 2).max(0), ["values", "indices"]),
    ([np.ones(2), "s", Data("s", None)], ["0", "1", "2.a", "2.b"]),
]


@pytest.mark.parametrize(("tree", "expected"), CONTAINERS, ids=[type(tree).__name__ for tree, _ in CONTAINERS])
def test_containers_have_keys_and_positions(tree, expected):
    assert sorted(paths(tree)) == sorted(expected)
    if isinstance(tree, (list, tuple, collections.deque, collections.OrderedDict)):
        assert paths(tree) == expected


@pytest.mark.parametrize(
    "leaf", [1.0, np.ones(2), jnp.ones(2), torch.ones(2), None, NonDifferentiable(1.0)], ids=lambda v: type(v).__name__
)
def test_a_single_leaf_is_the_value_itself(leaf):
    assert paths(leaf) == [""]
    if not isinstance(leaf, NonDifferentiable) and leaf is not None:
        assert trainable(leaf, where=lambda path, value: value is leaf) is leaf
    with pytest.raises(SelectionError, match="for the value itself"):
        trainable(leaf, where=lambda path, value: None)


@jax.tree_util.register_pytree_with_keys_class
class Keys:
    """A node whose keys are its own affair: its metadata do not hold them."""

    def __init__(self, keys, value=1.0):
        self.keys, self.value = keys, value

    def tree_flatten_with_keys(self):
        return [(key, self.value) for key in self.keys], len(self.keys)

    @classmethod
    def tree_unflatten(cls, count, children):
        return cls([GetAttrKey(f"new{i}") for i in range(count)], next(iter(children), None))


class Strange:
    def __str__(self):
        return ".strange"


def test_keys_of_every_kind():
    keys = [GetAttrKey("a"), DictKey("b"), DictKey(3), SequenceKey(4), FlattenedIndexKey(5), Strange(), "plain"]
    assert paths(Keys(keys)) == ["a", "b", "3", "4", "5", "strange", "plain"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1, affine=False))
        self.heads = nn.ModuleDict({"mean": nn.Linear(1, 1, bias=False)})
        self.scales = nn.ParameterList([torch.ones(1)])
        self.more = nn.ParameterDict({"x": torch.ones(1)})
        self.noise = nn.Parameter(torch.ones(1))


def test_modules_of_torch_have_qualified_names():
    net = Net()
    names = [name for name, _ in (*net.named_parameters(), *net.named_buffers())]
    assert sorted(paths(net)) == sorted(names)
    assert "layers.1.running_mean" in names
    assert sorted(paths({"k": [Data(net, 1.0)]})) == sorted(["k.0.b", *(f"k.0.a.{name}" for name in names)])
    assert paths([Eqx(nn.Linear(1, 1))])[-1] == "0.b"


# The same form whatever is beside it.


def test_structures_that_are_equal_but_for_the_order_of_keys_keep_their_own():
    for tree in ({"a": 1.0, "b": 2.0}, {"b": 2.0, "a": 1.0}):
        assert trainable(tree, where="a") == {"a": 1.0, "b": None}
    for keys in ("ab", "ba", "ab"):
        assert paths(collections.OrderedDict.fromkeys(keys, 1.0)) == list(keys)
    for keys in ((1j, 2j), (2j, 1j)):
        assert paths(dict.fromkeys(keys, 1.0)) == [str(key) for key in keys]


class Part(str, enum.Enum):  # noqa: UP042  (that of StrEnum is its text anyway)
    ENCODER = "encoder"


def test_keys_that_are_equal_have_each_their_own_path_whatever_was_met_before():
    for key in (1, True, 1.0, True, 1):
        for tree in ({key: 1.0}, collections.OrderedDict({key: 1.0}), collections.defaultdict(list, {key: 1.0})):
            assert paths([tree]) == [f"0.{key}"]
            assert trainable(tree, where=str(key)) == {key: 1.0}
    # A string is its own text.
    for key in ("encoder", Part.ENCODER, np.str_("encoder"), "encoder"):
        for tree in ({key: [1.0]}, collections.OrderedDict({key: [1.0]})):
            assert paths(tree) == ["encoder.0"]
            assert [type(kept) for kept in trainable(tree, where={"encoder": True})] == [type(key)]
    compiled = torch.compile(lambda tree: trainable(tree, where="encoder"), backend="eager", fullgraph=True)
    assert compiled({Part.ENCODER: torch.ones(1), "head": torch.ones(1)})["head"] is None


# Metadata without a hash, or without a comparison.


@jax.tree_util.register_pytree_with_keys_class
class Static(Plain):
    """A node with what it was given as b for metadata."""

    def tree_flatten_with_keys(self):
        return [(GetAttrKey("weight"), self.a)], self.b

    @classmethod
    def tree_unflatten(cls, b, children):
        return cls(*children, b)


class Unequal:
    __hash__ = None

    def __eq__(self, other):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "make",
    [lambda: [1], lambda: {"a": 1}, lambda: np.ones(2), lambda: jnp.ones(2), Unequal],
    ids=["list", "dict", "numpy", "jax", "own"],
)
def test_static_metadata_need_no_hash_and_no_comparison(make):
    for _ in range(3):
        tree = {"s": Static([1.0, 3], make())}
        params, rest = partition(tree)
        assert params["s"].b is rest["s"].b is tree["s"].b
        assert paths(tree) == ["s.weight.0", "s.weight.1"]
        assert trainable(tree, where="s.weight.0")["s"].a == [1.0, None]
        assert combine(params, rest)["s"].a == [1.0, 3]
        assert grad(lambda tree: tree["s"].a[0] ** 2.0, backend="autograd")(tree)["s"].a == [2.0, None]


@pytest.mark.parametrize(
    ("tree", "twice"),
    [
        ({"a": {"b": 1.0}, "a.b": 2.0}, "a.b"),
        ({1: 1.0, "1": 2.0}, "1"),
        pytest.param(Keys([GetAttrKey("a"), DictKey("a")]), "a", id="keys"),
    ],
    ids=repr,
)
def test_a_pattern_selects_every_leaf_at_a_path(tree, twice):
    assert paths(tree) == [twice, twice]
    params, rest = partition(tree, where=twice)
    assert (tree_leaves((params,)), tree_leaves((rest,))) == ([1.0, tree_leaves((tree,))[1]], [None, None])
    assert tree_leaves((combine(params, rest),)) == tree_leaves((tree,))


def test_an_error_names_the_paths_that_are_like_the_one_asked_for_or_else_the_first_and_five_at_most():
    layers = {f"layer{i}": 1.0 for i in range(9)}
    for where, begin in (("layer", "'layer"), ("zzz", "'layer0'")):
        with pytest.raises(SelectionError) as caught:
            trainable({"a": 1.0, **layers} if where == "layer" else layers, where=where)
        found = str(caught.value).partition("the nearest paths are ")[2].partition(". ")[0].split(", ")
        assert len(found) == 5
        assert found[0].startswith(begin)
        assert "'a'" not in found
