"""The traversal in plain Python, which compilers trace, agrees with optree's."""

import collections
import dataclasses
import time
import typing

import optree
import pytest

import adprotocol
from adprotocol._trees import node, path, traversal, treespec


class Pair(typing.NamedTuple):
    one: object
    two: object


@dataclasses.dataclass
class Layer:
    w: object
    b: object


class Plain:
    def __init__(self, *parts):
        self.parts = parts


optree.register_pytree_node(Plain, lambda x: (x.parts, None), lambda _, parts: Plain(*parts), namespace=node.NAMESPACE)

TREES = [
    1.0,
    None,
    [],
    {"b": 1, "a": [2, (3, None)], "c": {}},
    {2: "x", 1: "y"},
    {"a": 1, 2: "mixed"},
    collections.OrderedDict(z=1, a=2),
    collections.defaultdict(list, z=1, a=2),
    collections.deque([1, 2], maxlen=3),
    Pair(1, {"z": (2,)}),
    time.struct_time(range(9)),
    [Layer(1, Layer(2, None)), {"k": Pair(3, 4)}],
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_leaves_names_and_what_is_rebuilt_are_those_of_optree(tree):
    wanted, spec = traversal.tree_flatten(tree)
    found, own = treespec.flatten(tree, None)
    assert found == wanted
    assert own.num_leaves == len(wanted)
    assert path.compute(tree, own, named_tuples=False).of_leaves == path.paths_of(tree, spec).of_leaves
    new = list(range(len(wanted)))
    rebuilt, other = own.unflatten(new), spec.unflatten(new)
    assert type(rebuilt) is type(other)
    assert rebuilt == other
    if isinstance(tree, dict) and not isinstance(tree, collections.defaultdict):  # sorted by optree 0.13
        assert list(rebuilt) == list(other)


def test_a_class_without_names_has_positions():
    found, own = treespec.flatten(Plain(1, [2]), None)
    assert (found, own.paths()) == ([1, 2], [(0,), (1, 0)])
    assert own.unflatten([3, 4]).parts == (3, [4])


def test_equality_is_that_of_optree():
    specs = [(treespec.flatten(tree, None)[1], traversal.tree_flatten(tree)[1]) for tree in TREES]
    specs.append((treespec.flatten({"c": {}, "a": [0, (0, 0)], "b": 0}, None)[1], traversal.tree_flatten(TREES[3])[1]))
    for one, native in specs:
        for other, other_native in specs:
            assert (one == other) is (native == other_native)
            assert one != other or hash(one) == hash(other)


def test_a_predicate_stops_the_traversal():
    tree = {"a": [1, 2], "b": (3,)}
    found, own = treespec.flatten(tree, lambda part: isinstance(part, list))
    assert found == [[1, 2], 3]
    assert own.paths() == [("a",), ("b", 0)]


def test_a_class_that_is_registered_anew_is_looked_up_anew():
    class Late:
        def __init__(self, a):
            self.a = a

    def functions(name):
        return lambda x: ((x.a,), None, (name,)), lambda _, parts: Late(*parts)

    names = []
    for name in ("first", "second"):
        optree.register_pytree_node(Late, *functions(name), namespace=node.NAMESPACE)
        names += treespec.flatten(Late(1), None)[1].paths()
        optree.unregister_pytree_node(Late, namespace=node.NAMESPACE)
    assert names == [("first",), ("second",)]
    assert treespec.flatten(Late(1), None)[1].paths() == [()]


def test_it_is_shown():
    assert repr(treespec.flatten({"a": [1, None]}, None)[1]) == "dict(a=list(0=*, 1=*))"
    assert adprotocol.trainable({"a": 1.0}) == {"a": 1.0}
