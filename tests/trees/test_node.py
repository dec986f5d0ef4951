"""Kinds of node: how each class is taken apart and put together again, past its constructor, or refused by name."""

import dataclasses
import functools
import traceback
import typing
from typing import Any, NamedTuple

import attrs
import flax.struct
import jax
import jax.numpy as jnp
import optree
import pytest
import torch
from torch.fx.immutable_collections import immutable_list
from torch.utils import _pytree
from tree_kinds import EVERYWHERE, paths

from adprotocol import (
    combine,
    grad,
    non_differentiable,
    partition,
    trainable,
    within_gradient,
)
from adprotocol.errors import OpaqueValueError, TreeError

# Dataclasses and attrs classes, whatever their options.


@dataclasses.dataclass
class Mutable:
    a: Any
    n: Any = 3


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    n: Any = 3


@dataclasses.dataclass(frozen=True, slots=True, weakref_slot=True)
class FrozenSlots:
    a: Any
    n: Any = 3


@dataclasses.dataclass(kw_only=True, slots=True)
class KeywordOnly:
    n: Any = 3
    a: Any


@dataclasses.dataclass
class NotInit:
    a: Any
    n: Any = dataclasses.field(init=False, default=3)


@dataclasses.dataclass(slots=True)
class NotInitSlots:
    a: Any
    n: Any = dataclasses.field(init=False)

    def __post_init__(self):
        self.n = 3


@dataclasses.dataclass
class Checked:
    a: Any
    n: Any = 3

    def __post_init__(self):
        assert self.a is not None
        assert isinstance(self.n, int)


@dataclasses.dataclass
class OwnNew:
    a: Any
    n: Any = 3

    def __new__(cls, a, n=3):
        return super().__new__(cls)


@dataclasses.dataclass
class Immutable:
    a: Any
    n: Any = 3

    def __init__(self, a, n=3):
        object.__setattr__(self, "a", a)
        object.__setattr__(self, "n", n)

    def __setattr__(self, name, value):
        raise AttributeError(name)


class Undecorated(Frozen):
    pass


@attrs.define
class AttrsDefine:
    a: Any
    n: Any = 3


@attrs.frozen(kw_only=True)
class AttrsFrozen:
    n: Any = 3
    a: Any


@attrs.define(slots=False)
class AttrsChecked:
    a: Any = attrs.field(validator=attrs.validators.not_(attrs.validators.instance_of(type(None))))
    n: Any = attrs.field(default="3", converter=int, on_setattr=attrs.setters.validate)


KINDS = [
    Mutable, Frozen, FrozenSlots, KeywordOnly, NotInit, NotInitSlots, Checked, OwnNew, Immutable,
    Undecorated, AttrsDefine, AttrsFrozen, AttrsChecked,
]  # fmt: skip


@pytest.mark.parametrize("cls", KINDS)
def test_a_dataclass_is_rebuilt_past_its_constructor(cls):
    x = jnp.ones(2)
    tree = cls(a=x)
    params, rest = partition(tree)
    joined = combine(params, rest)
    assert type(params) is type(rest) is type(joined) is cls
    assert params.a is x
    assert rest.n == 3
    assert params.n is rest.a is None
    assert joined.a is x
    assert joined.n == 3
    assert tree.a is x
    gradient = grad(lambda tree: (tree.a**2).sum() * tree.n)(tree)
    assert type(gradient) is cls
    assert gradient.a.tolist() == [6.0, 6.0]
    assert gradient.n is None


def test_post_init_is_not_run_again_and_what_it_added_is_kept():
    @dataclasses.dataclass
    class Counting:
        a: Any
        scale: dataclasses.InitVar[float] = 2.0
        shared: typing.ClassVar[float] = 7.0
        later: Any = dataclasses.field(init=False)
        unset: Any = dataclasses.field(init=False)

        def __post_init__(self, scale):
            self.later, self.runs, self.more = self.a * scale, getattr(self, "runs", 0) + 1, [5.0]

    tree = Counting(1.0)
    assert paths(tree) == ["a", "later", "runs", "more.0"]
    result = trainable(tree)
    assert vars(result) == {"a": 1.0, "later": 2.0, "runs": None, "more": [5.0]}
    assert combine(result, tree).runs == 1
    assert trainable(tree, where="more.*").more == [5.0]


def test_cached_properties_are_computed_anew():
    @dataclasses.dataclass
    class Cached:
        a: Any

        @functools.cached_property
        def double(self):
            return self.a * 2

    @attrs.define
    class CachedAttrs:
        a: Any

        @functools.cached_property
        def double(self):
            return self.a * 2

    for cls in (Cached, CachedAttrs):
        tree = cls(1.0)
        assert tree.double == 2.0
        assert paths(tree) == ["a"]
        joined = combine(cls(3.0), tree)
        assert joined.double == 6.0
        assert grad(lambda tree: tree.double, backend="autograd")(tree).a == 2.0


class Slot:
    __slots__ = ("extra", "hidden")


class PrivateSlot:
    __slots__ = ("__hidden", "extra")

    @property
    def hidden(self):
        return self.__hidden

    @hidden.setter
    def hidden(self, value):
        self.__hidden = value


@pytest.mark.parametrize(
    ("decorate", "base"),
    [(dataclasses.dataclass(slots=True), Slot), (dataclasses.dataclass, PrivateSlot), (attrs.define, Slot)],
)
def test_slots_of_a_base_class_are_kept(decorate, base):
    cls = decorate(type("Made", (base,), {"__annotations__": {"a": Any}}))
    tree = cls(1.0)
    assert paths(tree) == ["a"]
    tree.hidden, tree.extra = torch.ones(1, requires_grad=True), 3
    assert within_gradient(tree) is True
    constant = non_differentiable(tree)
    assert constant.hidden.requires_grad is False
    assert (constant.a, constant.extra) == (1.0, 3)
    assert trainable(tree).hidden is tree.hidden


@dataclasses.dataclass
class WithProperty:
    a: Any
    b: Any = 2.0

    @property
    def a(self):
        return self._a

    @a.setter
    def a(self, value):
        self._a = value


@dataclasses.dataclass
class WithItems(dict):
    a: Any


@pytest.mark.parametrize("make", [WithProperty, WithItems])
def test_a_class_that_holds_more_than_fields_is_no_structure(make):
    assert paths([make(1.0), 1.0]) == ["0", "1"]
    with pytest.raises(OpaqueValueError, match=f"{make.__name__} at '0', which holds a torch Tensor"):
        trainable([make(torch.ones(1))])


class Pair(NamedTuple):
    a: Any
    n: Any = 3


class Validated(Pair):
    def __new__(cls, a, n=3):
        if a is None:
            raise ValueError("no a")
        return super().__new__(cls, a, n)


class FromOne(Pair):
    def __new__(cls, a):
        return super().__new__(cls, a, 3)


@pytest.mark.parametrize("cls", [Validated, FromOne])
def test_a_named_tuple_with_a_constructor_of_its_own_is_rebuilt_or_refused(cls):
    tree = {"k": [cls(jnp.ones(1))]}
    try:
        _, rest = partition(tree)
    except TreeError as error:
        assert "the dict given to adprotocol has a node that cannot be rebuilt" in str(error)  # noqa: PT017
        return
    assert rest["k"][0] == (None, 3)
    assert type(rest["k"][0]) is cls


# What is registered with a library of trees.


class Node:
    def __init__(self, a, n=3):
        self.a, self.n = a, n

    def tree_flatten(self):
        return (self.a,), self.n

    @classmethod
    def tree_unflatten(cls, n, children):
        return cls(*children, n)


def in_jax(cls):
    return jax.tree_util.register_pytree_node_class(cls)


def in_optree(cls):
    return optree.register_pytree_node_class(cls, namespace=EVERYWHERE)


def in_torch(cls):
    _pytree.register_pytree_node(
        cls, lambda value: (list(value.tree_flatten()[0]), value.n), lambda children, n: cls(*children, n)
    )
    return cls


REGISTRIES = pytest.mark.parametrize("register", [in_jax, in_optree, in_torch])


@REGISTRIES
def test_a_registered_class_is_a_node_and_its_metadata_stay(register):
    cls = type("Made", (Node,), {})
    x = jnp.ones(1)
    assert trainable([cls(3)]) == [None]  # a leaf as yet
    register(cls)
    params, rest = partition([cls(x, n=5.0)])
    assert type(params[0]) is type(rest[0]) is cls
    assert params[0].a is x
    assert rest[0].a is None
    assert params[0].n == rest[0].n == combine(params, rest)[0].n == 5.0
    assert paths([cls(x)]) == ["0.0"]


@REGISTRIES
@pytest.mark.parametrize("question", [within_gradient, non_differentiable, trainable, lambda tree: trainable([tree])])
def test_the_registration_of_a_dataclass_holds_whatever_was_asked_first(register, question):
    cls = dataclasses.make_dataclass("Made", [("a", Any), ("n", Any, 3.0)], bases=(Node,), init=True)
    register(cls)
    question(cls(1.0))
    assert len(paths(cls(1.0))) == 1
    result = trainable({"k": cls(1.0, n=5.0)}, where=lambda path, leaf: False)["k"]
    assert (result.a, result.n) == (None, 5.0)


class Refuses(Node):
    """Takes arrays only, as many do."""

    def __init__(self, a, n=3):
        if not hasattr(a, "shape"):
            raise TypeError(f"a is {a!r}, no array")
        super().__init__(a, n)


class Softly(Node):
    """Puts a default in the place of None, which would pass for a gradient, or for a leaf that is trained."""

    def __init__(self, a=None, n=3):
        super().__init__(jnp.zeros(1) if a is None else a, n)


CALLS = {
    "trainable": lambda tree: trainable(tree, where="x"),
    "partition": lambda tree: partition(tree, where="x"),
    "grad": grad(lambda tree: tree["x"].sum(), where="x"),
}


@REGISTRIES
@pytest.mark.parametrize("call", CALLS)
def test_a_constructor_that_refuses_none_is_refused_with_its_error(register, call):
    cls = register(type("Made", (Refuses,), {}))
    refusing = cls(jnp.ones(1))
    for part in ([1, refusing], Mutable({"y": refusing}), refusing):
        with pytest.raises(TreeError, match=r"cannot be rebuilt .*a is None, no array") as caught:
            CALLS[call]({"x": jnp.ones(1), "k": part})
        frames = traceback.extract_tb(caught.value.__cause__.__traceback__)
        assert frames[-1].name == "__init__"  # of the class that refuses
    with pytest.raises(TreeError, match=r"the Made given to adprotocol has a node that .*a is None, no array"):
        partition(cls(jnp.ones(1)))


@REGISTRIES
@pytest.mark.parametrize("call", CALLS)
def test_a_constructor_that_replaces_none_is_refused(register, call):
    cls = register(type("Made", (Softly,), {}))
    with pytest.raises(TreeError, match=r"cannot be rebuilt.*ValueError: Made puts Array.* in the place of None"):
        CALLS[call]({"x": jnp.ones(1), "k": [1, cls(jnp.ones(1))]})
    # Where nothing is left out, nothing is replaced.
    assert grad(lambda tree: (tree.a**2).sum())(cls(jnp.ones(1))).a.tolist() == [2.0]


@flax.struct.dataclass
class StructRefuses:
    a: Any

    def __post_init__(self):
        assert self.a is not None


def test_a_flax_struct_that_refuses_none_is_refused():
    with pytest.raises(TreeError, match=r"cannot be rebuilt from its leaves \(AssertionError"):
        trainable([{"k": StructRefuses(3)}])


def test_a_class_registered_in_a_namespace_of_its_own_is_no_node():
    cls = optree.register_pytree_node_class("theirs")(type("Made", (Node,), {}))
    with pytest.raises(OpaqueValueError, match=r"Made at '0', which holds a jax ArrayImpl"):
        trainable([cls(jnp.ones(1))])


def test_a_shape_is_a_constant_and_keeps_its_class():
    tree = {"shape": torch.Size([2, 3]), "w": torch.ones(1)}
    assert trainable(tree)["shape"] is None
    assert partition(tree)[1]["shape"] is tree["shape"]
    assert type(non_differentiable(tree)["shape"]) is torch.Size
    gradient = grad(lambda tree: tree["w"].sum() * tree["shape"].numel())(tree)
    assert gradient["w"].tolist() == [6.0]


def test_lists_of_fx_are_nodes():
    params, rest = partition(immutable_list([torch.ones(1), 3]))
    assert type(params) is type(rest) is immutable_list
    assert (rest[0], rest[1], params[1]) == (None, 3, None)
