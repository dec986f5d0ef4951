"""The traversal in plain Python, for a compiler that traces Python and cannot enter optree.

Leaves, their order and their names are those of optree, whose registry says which
classes are nodes. A treespec of this module is valid in the graph that is being
traced, and is never compared with one of optree's.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from adprotocol._trees.node import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Entries:
    """Hold what optree's registry has for the classes that were met."""


ENTRIES = Entries()


class Treespec:
    """Describe a structure without its leaves; `cls` is None for a leaf."""

    def __init__(
        self,
        cls: type | None,
        children: list[Treespec],
        names: tuple[Any, ...],
        metadata: Any,
        rebuild: Callable[[Any, list[Any]], Any],
    ) -> None:
        self.type = cls
        self.own = children
        self.names = names
        self.metadata = metadata
        self.rebuild = rebuild
        self.num_leaves: int = 1 if cls is None else sum([child.num_leaves for child in children])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Treespec) or self.type is not other.type or len(self.own) != len(other.own):
            return False
        # The order of the keys of a dict is no part of its structure.
        same = self.names == other.names if self.type is dict else self.metadata == other.metadata
        return bool(same) and all(map(operator.eq, self.own, other.own))

    def __hash__(self) -> int:
        return hash((self.type, self.names))

    def __repr__(self) -> str:
        if self.type is None:
            return "*"
        inner = [f"{name}={child!r}" for name, child in zip(self.names, self.own, strict=True)]
        return f"{self.type.__name__}({', '.join(inner)})"

    def paths(self) -> list[tuple[Any, ...]]:
        """Return the path of each leaf."""
        if self.type is None:
            return [()]
        return [(name, *path) for name, child in zip(self.names, self.own, strict=True) for path in child.paths()]

    def unflatten(self, leaves: Sequence[Any]) -> Any:
        """Return the structure with these leaves."""
        if self.type is None:
            return leaves[0]
        built: list[Any] = []
        start = 0
        for child in self.own:
            built.append(child.unflatten(leaves[start : start + child.num_leaves]))
            start += child.num_leaves
        return self.rebuild(self.metadata, built)


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None) -> tuple[list[Any], Treespec]:
    """Return the leaves in order, ``None`` among them, and the treespec."""
    leaves: list[Any] = []
    return leaves, _flatten(tree, is_leaf, leaves)


def _flatten(tree: Any, is_leaf: Callable[[Any], bool] | None, leaves: list[Any]) -> Treespec:
    if (is_leaf is not None and is_leaf(tree)) or not is_node(type(tree)):
        leaves.append(tree)
        return Treespec(None, [], (), None, _list)
    children, names, metadata, rebuild = one_level(tree)
    specs = [_flatten(child, is_leaf, leaves) for child in children]
    return Treespec(type(tree), specs, names, metadata, rebuild)


def one_level(tree: Any) -> tuple[list[Any], tuple[Any, ...], Any, Any]:
    """Return the children of a node, their names, its metadata, and what rebuilds it."""
    if type(tree) in (list, tuple):
        return list(tree), tuple(range(len(tree))), None, _list if type(tree) is list else _tuple
    if type(tree) is dict:
        keys = in_order(tuple(tree))
        return [tree[key] for key in keys], keys, (tuple(tree), keys), _dict
    if isinstance(tree, tuple):
        rebuild = _named_tuple if is_named_tuple(type(tree)) else _struct_sequence
        return list(tree), fields_of(type(tree)), type(tree), rebuild
    entry = getattr(ENTRIES, entry_of(type(tree)))
    found = entry.flatten_func(tree)
    children = list(found[0])
    names = range(len(children)) if len(found) == 2 or found[2] is None else found[2]  # noqa: PLR2004
    return children, tuple(names), found[1], entry.unflatten_func


def _list(_metadata: Any, children: list[Any]) -> Any:
    return list(children)


def _tuple(_metadata: Any, children: list[Any]) -> Any:
    return tuple(children)


def _dict(metadata: Any, children: list[Any]) -> Any:
    given, flattened = metadata
    return {key: children[flattened.index(key)] for key in given}


def _named_tuple(cls: Any, children: list[Any]) -> Any:
    return cls(*children)


def _struct_sequence(cls: Any, children: list[Any]) -> Any:
    return cls(children)


# The rest runs while the compiler traces; what it returns is a constant.


def is_node(cls: type) -> bool:
    """Tell whether optree flattens the instances of a class."""
    import optree  # noqa: PLC0415

    if cls is type(None):
        return False
    return optree.register_pytree_node.get(cls, namespace=NAMESPACE) is not None or (
        optree.is_namedtuple_class(cls) or optree.is_structseq_class(cls)
    )


def is_named_tuple(cls: type) -> bool:
    """Tell whether a class is a named tuple."""
    import optree  # noqa: PLC0415

    return bool(optree.is_namedtuple_class(cls))


def fields_of(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of a named tuple, or of a struct sequence."""
    import optree  # noqa: PLC0415

    return tuple(optree.namedtuple_fields(cls) if is_named_tuple(cls) else optree.structseq_fields(cls))


def in_order(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the keys of a dict in the order of optree."""
    import optree  # noqa: PLC0415

    tree: Any = dict.fromkeys(keys)
    return tuple(optree.tree_flatten_one_level(tree, none_is_leaf=True)[2])


def entry_of(cls: type) -> str:
    """Return the attribute of `ENTRIES` that has the functions of a class.

    A compiler guards on an attribute by itself, on a dict as a whole.
    """
    import optree  # noqa: PLC0415

    entry = optree.register_pytree_node.get(cls, namespace=NAMESPACE)
    for name, known in vars(ENTRIES).items():
        if known is entry:
            return name
    name = f"entry_{len(vars(ENTRIES))}"
    setattr(ENTRIES, name, entry)
    return name
