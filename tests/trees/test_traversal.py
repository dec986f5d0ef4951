"""The traversal in plain Python agrees with optree's, over generated structures."""

import collections
import dataclasses
import time
import typing

import attrs
import optree
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adprotocol._trees.traversal import Flattened, tree_flatten, tree_leaves, tree_unflatten
from adprotocol._trees.treespec import paths, treespecs_equal


class Pair(typing.NamedTuple):
    one: object
    two: object


@dataclasses.dataclass
class Layer:
    w: object
    b: object


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    a: object


@attrs.define(eq=True)
class Attrs:
    x: object
    y: object = None


class Plain:
    """A node by optree's registry, without names for its children."""

    def __init__(self, *parts):
        self.parts = parts

    def __eq__(self, other):
        return type(other) is Plain and self.parts == other.parts

    __hash__ = None


NAMESPACE = "reference"
optree.register_pytree_node(Plain, lambda x: (x.parts, None), lambda _, parts: Plain(*parts), namespace="adprotocol")
optree.register_pytree_node(Plain, lambda x: (x.parts, None), lambda _, parts: Plain(*parts), namespace=NAMESPACE)
for _cls, _names in ((Layer, ("w", "b")), (Slotted, ("a",)), (Attrs, ("x", "y"))):
    optree.register_pytree_node(
        _cls,
        lambda x, names=_names: ([getattr(x, name) for name in names], None, names),
        lambda _, parts, cls=_cls: cls(*parts),
        namespace=NAMESPACE,
    )

LEAVES = st.one_of(st.none(), st.integers(), st.text(max_size=2), st.booleans())
KEYS = (st.text("abc", min_size=1, max_size=2), st.integers(0, 9))


def nodes(children):
    two = st.tuples(children, children)
    dicts = st.one_of([st.dictionaries(keys, children, max_size=3) for keys in KEYS])
    return st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        dicts,
        dicts.map(collections.OrderedDict),
        dicts.map(lambda items: collections.defaultdict(list, items)),
        st.lists(children, max_size=3).map(lambda items: collections.deque(items, maxlen=4)),
        two.map(lambda items: Pair(*items)),
        two.map(lambda items: Layer(*items)),
        two.map(lambda items: Attrs(*items)),
        children.map(Slotted),
        two.map(lambda items: Plain(*items)),
        st.just(time.struct_time(range(9))),
    )


TREES = st.recursive(LEAVES, nodes, max_leaves=12)


def reference(tree):
    return optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)


@given(TREES)
def test_leaves_names_and_what_is_rebuilt_are_those_of_optree(tree):
    wanted, spec = reference(tree)
    found, own = tree_flatten(tree)
    assert found == wanted
    assert tree_leaves((tree,)) == wanted
    names = [".".join(map(str, accessor_names(accessor))) for accessor in spec.accessors()]
    assert paths(own) == names
    new = [object() for _ in wanted]
    rebuilt, other = tree_unflatten(own, new, tree), spec.unflatten(new)
    assert type(rebuilt) is type(other)
    assert rebuilt == other
    if type(rebuilt) is dict:
        assert list(rebuilt) == list(tree)  # the order of the keys is kept


def accessor_names(accessor):
    return [
        entry.field if hasattr(entry, "field") and issubclass(entry.type, tuple) else entry.entry for entry in accessor
    ]


@given(TREES, TREES)
def test_equality_is_that_of_optree(one, other):
    for left, right in ((one, other), (one, one)):
        wanted = reference(left)[1] == reference(right)[1]
        assert treespecs_equal(Flattened(left).treespec, Flattened(right).treespec) is wanted


def test_the_order_of_the_keys_of_a_dict_is_no_part_of_its_structure():
    one, other = {"a": 1, "b": 2}, {"b": 3, "a": 4}
    assert treespecs_equal(Flattened(one).treespec, Flattened(other).treespec)
    assert tree_leaves((other,)) == [4, 3]


def test_keys_of_several_types():
    assert tree_leaves(({2: "x", 1: "y"}, {"a": 1, 2: "mixed"})) == ["y", "x", 1, "mixed"]


def test_a_treespec_is_a_constant():
    spec = Flattened({"a": [1, Pair(2, None)]}).treespec
    assert spec == (
        dict, (("a",), ("a",)), ("a",), ((list, None, (0, 1), (None, (Pair, None, ("one", "two"), (None, None)))),),
    )  # fmt: skip
    assert hash(spec) == hash(Flattened({"a": [3, Pair(4, 5)]}).treespec)


@pytest.mark.parametrize("tree", [1.0, None, "text"])
def test_a_leaf_has_the_treespec_none(tree):
    assert Flattened(tree).treespec is None
