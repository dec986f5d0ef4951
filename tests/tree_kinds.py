"""One class of each kind of node, with a declared field `a` and a field `b` that is not; and the paths of leaves."""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import attrs
import equinox as eqx
import flax.struct
import jax
import optree
from jax.tree_util import GetAttrKey
from torch.utils import _pytree

from adprotocol import trainable

EVERYWHERE = optree.register_pytree_node_class.__globals__["__GLOBAL_NAMESPACE"]


def paths(tree):
    """Return the paths of all leaves, in order."""
    seen = []
    trainable(tree, where=lambda path, leaf: seen.append(path) or False)
    return seen


def taken(tree, where=None):
    """Return the paths of what takes a gradient, in order."""
    seen = []
    trainable(trainable(tree, where), where=lambda path, leaf: (leaf is not None and seen.append(path)) or False)
    return seen


@dataclasses.dataclass
class Data:
    a: Any = 1.0
    b: Any = 2.0
    __trainable__ = ("a",)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Slotted:
    b: Any = 2.0
    a: Any = 1.0
    __trainable__: ClassVar = ["a"]


@attrs.define
class Attrs:
    a: Any = 1.0
    b: Any = 2.0
    __trainable__ = ("a",)


class Named(NamedTuple):
    b: Any = 2.0
    a: Any = 1.0
    __trainable__ = frozenset({"a"})


class Eqx(eqx.Module):
    a: Any = 1.0
    b: Any = 2.0
    static: Any = eqx.field(static=True, default=3.0)
    __trainable__ = ("a",)


@flax.struct.dataclass
class Struct:
    a: Any = 1.0
    b: Any = 2.0
    static: Any = flax.struct.field(pytree_node=False, default=3.0)
    __trainable__ = ("a",)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class JaxData:
    a: Any = 1.0
    b: Any = 2.0
    static: Any = dataclasses.field(default=3.0, metadata={"static": True})
    __trainable__ = ("a",)


class Plain:
    __trainable__ = ("a",)

    def __init__(self, a=1.0, b=2.0):
        self.a, self.b = a, b


@jax.tree_util.register_pytree_with_keys_class
class JaxKeys(Plain):
    def tree_flatten_with_keys(self):
        return ((GetAttrKey("a"), self.a), (GetAttrKey("b"), self.b)), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@optree.register_pytree_node_class(namespace=EVERYWHERE)
class Optree(Plain):
    def tree_flatten(self):
        return (self.a, self.b), None, ("a", "b")

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@dataclasses.dataclass
class TorchTree:
    a: Any = 1.0
    b: Any = 2.0
    __trainable__ = ("a",)


_pytree.register_dataclass(TorchTree)
