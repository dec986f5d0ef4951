"""A treespec: a structure without its leaves, as a nested tuple.

Of a node it is ``(class, metadata, names of the children in paths, treespecs of the children)``, of a leaf None; unpack
it by these names. So it holds only classes, keys and constants: a compiler can keep it, and hashing and comparing it
call no Python function. A named tuple would take a sixth longer to flatten a structure.

The class `Viewed` stands for an object that is shown as a container, its one child; the metadata are its view. A label
that was opened is a node too, whose one child is the value in it.
"""

from __future__ import annotations

from collections import defaultdict

from adprotocol._dispatch.binding import LABEL
from adprotocol._dispatch.table import lookup
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.messages import nearest, quoted, shown, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from adprotocol.hookspecs import View

    Node = tuple[type, Any, tuple[Any, ...], tuple["Treespec", ...]]
    Treespec = Node | None


# The parts of a leaf, as if it were a node.
LEAF: Any = (None, None, (), ())


class Viewed:
    """The class of the node for an object that is shown as a container."""


def build(treespec: Treespec, leaves: Iterator[Any], show: Callable[[Any, Any], Any] | None = None) -> Any:
    """Return a structure with the next of the leaves.

    `show` makes a value of a view and its filled container; of a label, whose metadata are None, and the leaves in it.
    """
    if treespec is None:
        return next(leaves)
    if show is not None and is_label(treespec):  # not rebuilt, for a class may refuse other leaves
        return show(None, [next(leaves) for _ in range(count_leaves(treespec))])
    cls, metadata, _, children = treespec
    built = []
    for child in children:
        built.append(next(leaves) if child is None else build(child, leaves, show))  # noqa: PERF401  (one frame less per level)
    unflatten = None if cls is Viewed else lookup(cls).unflatten
    if unflatten is not None:
        return unflatten(metadata, built)
    if show is not None:
        return show(metadata, built[0])
    return built[0] if cls is Viewed else cls(built[0])


def build_unlabelled(treespec: Treespec, leaves: Sequence[Any]) -> Any:
    """Return a structure with these leaves, and None in place of each label."""
    return build(treespec, iter(leaves), lambda _metadata, _value: None)


def map_nodes(function: Callable[..., Treespec], treespec: Treespec) -> Treespec:
    """Return a treespec with what `function` returns in place of each node, given its parts, the new children last."""
    if treespec is None:
        return None
    cls, metadata, names, children = treespec
    return function(cls, metadata, names, tuple([child and map_nodes(function, child) for child in children]))


def without_views(treespec: Treespec) -> Treespec:
    """Return the treespec in which each view is its container, as in results."""
    return map_nodes(lambda cls, *parts: parts[-1][0] if cls is Viewed else (cls, *parts), treespec)


def children_of(treespec: Treespec) -> tuple[Treespec, ...]:
    """Return the treespecs of the children; none of a leaf."""
    _, _, _, children = treespec or LEAF
    return children


def is_label(treespec: Treespec) -> bool:
    """Return whether a treespec is that of a label that was opened."""
    cls, _, _, _ = treespec or LEAF
    return cls not in (None, Viewed) and lookup(cls).kind is LABEL


def labelled_leaves(treespec: Treespec, *, within: bool = False) -> list[bool]:
    """Return for each leaf of a structure whether it is in a label."""
    if treespec is None:
        return [within]
    inside = within or is_label(treespec)
    return [labelled for child in children_of(treespec) for labelled in labelled_leaves(child, within=inside)]


def treespecs_equal(one: Treespec, other: Treespec) -> bool:
    """Return whether two treespecs are equal; those whose static fields cannot be compared (arrays) are not."""
    if one is None or other is None:
        return one is other
    if not same_node(one, other):
        return False
    for child, other_child in zip(children_of(one), children_of(other), strict=True):
        if child is not other_child and not treespecs_equal(child, other_child):
            return False
    return True


def same_node(one: Node, other: Node) -> bool:
    """Return whether two outermost nodes are alike; the order of the keys of a dict is not part of its structure."""
    cls, metadata, names, _ = one
    other_cls, other_metadata, other_names, _ = other
    # Before 2.13 Dynamo of PyTorch does not trace `!=` of tuples.
    if not (cls is other_cls and names == other_names):
        return False
    if cls is defaultdict:
        return bool(metadata[0] is other_metadata[0])
    return cls is dict or same_constant(metadata, other_metadata)


def difference(one: Treespec, other: Treespec, name: str, other_name: str, above: str = "") -> str:
    """Say where and how two treespecs, of structures with these names, differ first; `above` is their path."""
    cls, metadata, names, children = one or LEAF
    other_cls, other_metadata, other_names, other_children = other or LEAF
    if one is not None and other is not None:
        sides = (names, name), (other_names, other_name)
        for (keys, has), (other_keys, lacks) in (sides, sides[::-1]):
            for key in keys:
                if key not in other_keys:
                    here = f"{above}.{text(key)}".lstrip(".")
                    near = nearest(text(key), map(text, other_keys))
                    return f"{quoted(here)} is in {has} and not in {lacks} (the nearest there are {near})"
        if same_node(one, other):
            for key, child, other_child in zip(names, children, other_children, strict=True):
                if not treespecs_equal(child, other_child):
                    return difference(child, other_child, name, other_name, f"{above}.{text(key)}".lstrip("."))
    kinds = ["a leaf" if node is None else with_article(node.__qualname__) for node in (cls, other_cls)]
    if kinds[0] == kinds[1]:  # static fields, the length of a deque
        kinds = [f"{kinds[0]} with the data {shown(static, 100)}" for static in (metadata, other_metadata)]
    return f"{quoted(above)} is {kinds[0]} in {name} and {kinds[1]} in {other_name}"


def same_constant(one: Any, other: Any) -> bool:
    """Return whether two values that are not arrays are the same: by identity, or by an equality that is a bool."""
    if one is other:
        return True
    try:
        answer = one == other
    # The comparison of a user's objects, arrays among them, may raise anything.
    except Exception:  # noqa: BLE001
        return False
    return answer if type(answer) is bool else False


def count_leaves(treespec: Treespec) -> int:
    """Return the number of leaves."""
    if treespec is None:
        return 1
    return sum([count_leaves(child) for child in children_of(treespec)])


def text(name: Any) -> str:
    """Return the name of a child as text; a string is its own, also a member of an Enum, which equals it as a key."""
    return name[:] if isinstance(name, str) else str(name)  # Dynamo does not trace str.__str__ of a member


def paths(treespec: Treespec, above: str = "", views: list[tuple[str, View]] | None = None) -> list[str]:
    """Return the path of each leaf: the names of the nodes above it, joined by dots; add each view with its path."""
    if treespec is None:
        return [above]
    cls, metadata, names, children = treespec
    if cls is Viewed:
        if views is not None:
            views.append((above, metadata))
        return paths(children[0], above, views)
    prefix = f"{above}." if above else ""
    below: list[str] = []
    for name, child in zip(names, children, strict=True):
        if child is None:
            below.append(f"{prefix}{text(name)}")
        else:
            below.extend(paths(child, f"{prefix}{text(name)}", views))
    return below
