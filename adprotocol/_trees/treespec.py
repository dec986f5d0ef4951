"""A treespec: a structure without its leaves, as a nested tuple.

Of a node it is ``(class, metadata, names of the children, treespecs of the
children)``, of a leaf None. So it holds classes, keys and constants alone: a compiler
can keep it, and hashing and comparing it call no Python function. The class `Viewed`
stands for an object that is shown as a container, its one child; the metadata are its view.
"""

from __future__ import annotations

from collections import defaultdict

from adprotocol._dispatch.table import lookup
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.messages import nearest, quoted, shown, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from adprotocol.hookspecs import View

Treespec = Any


class Viewed:
    """The class of the node for an object that is shown as a container."""


def build(treespec: Treespec, leaves: Iterator[Any], show: Callable[[View, Any], Any] | None = None) -> Any:
    """Return a structure with the next of the leaves; `show` makes a view and its filled container a value."""
    if treespec is None:
        return next(leaves)
    cls, metadata, _, children = treespec
    built = []
    for child in children:
        built.append(next(leaves) if child is None else build(child, leaves, show))  # noqa: PERF401  (a frame less a level)
    if cls is Viewed:
        return built[0] if show is None else show(metadata, built[0])
    unflatten = lookup(cls).unflatten
    return cls(*built) if unflatten is None else unflatten(metadata, built)  # a label has none


def split(treespec: Treespec, leaf: Callable[[], Any], taken: Callable[[], bool]) -> tuple[Any, Any]:
    """Return a structure with the next of the leaves that are taken, and one with the others; None elsewhere."""
    if treespec is None:
        return (leaf(), None) if taken() else (None, leaf())
    cls, metadata, names, children = treespec
    # Both are made in one go, and a dict in place: half the time of `build` twice.
    one: Any
    two: Any
    if cls is dict:
        one, two = dict.fromkeys(metadata[0]), dict.fromkeys(metadata[0])
    else:
        one, two = [None] * len(children), [None] * len(children)
        names = range(len(children))
    i = 0
    for child in children:
        if child is None:
            (one if taken() else two)[names[i]] = leaf()
        else:
            one[names[i]], two[names[i]] = split(child, leaf, taken)
        i += 1  # noqa: SIM113  (faster)
    if cls is dict or cls is list:
        return one, two
    unflatten = lookup(cls).unflatten
    return unflatten(metadata, one), unflatten(metadata, two)  # type: ignore[misc]


def without_views(treespec: Treespec) -> Treespec:
    """Return the treespec in which each view is its container, as in results."""
    if treespec is None:
        return None
    cls, metadata, names, children = treespec
    shown = [None if child is None else without_views(child) for child in children]
    return shown[0] if cls is Viewed else (cls, metadata, names, tuple(shown))


def treespecs_equal(one: Treespec, other: Treespec) -> bool:
    """Return whether two treespecs are equal; those whose static fields cannot be compared (arrays) are not."""
    if one is None or other is None:
        return one is other
    if not same_node(one, other):
        return False
    for child, beside in zip(one[3], other[3], strict=True):
        if child is not beside and not treespecs_equal(child, beside):
            return False
    return True


def same_node(one: Treespec, other: Treespec) -> bool:
    """Return whether two outermost nodes are alike; the order of the keys of a dict is no part of its structure."""
    # Before 2.13 Dynamo of PyTorch does not trace `!=` of tuples.
    if not (one[0] is other[0] and one[2] == other[2]):
        return False
    if one[0] is defaultdict:
        return bool(one[1][0] is other[1][0])
    return one[0] is dict or same_constant(one[1], other[1])


def difference(one: Treespec, other: Treespec, name: str, other_name: str, above: str = "") -> str:
    """Say where and how two treespecs, of structures with these names, differ first; `above` is their path."""
    nodes = (one, name), (other, other_name)
    if one is not None and other is not None:
        for (node, has), (beside, lacks) in (nodes, nodes[::-1]):
            for key in node[2]:
                if key not in beside[2]:
                    here = f"{above}.{text(key)}".lstrip(".")
                    near = nearest(text(key), map(text, beside[2]))
                    return f"{quoted(here)} is in {has} and not in {lacks} (the nearest there are {near})"
        if same_node(one, other):
            for key, child, beside in zip(one[2], one[3], other[3], strict=True):
                if not treespecs_equal(child, beside):
                    return difference(child, beside, name, other_name, f"{above}.{text(key)}".lstrip("."))
    kinds = ["a leaf" if node is None else with_article(node[0].__qualname__) for node, _ in nodes]
    if kinds[0] == kinds[1]:  # static fields, the length of a deque
        kinds = [f"{kind} with the data {shown(node[1], 100)}" for kind, (node, _) in zip(kinds, nodes, strict=True)]
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
    count = 0
    for child in treespec[3]:
        count += count_leaves(child)
    return count


def text(name: Any) -> str:
    """Return the name of a child as text; a string is its own, also a member of an Enum, which equals it as a key."""
    return name[:] if isinstance(name, str) else str(name)  # Dynamo does not trace str.__str__ of a member


def paths(treespec: Treespec, above: str = "") -> list[str]:
    """Return the path of each leaf: the names of the nodes above it, joined by dots."""
    if treespec is None:
        return [above]
    if treespec[0] is Viewed:
        return paths(treespec[3][0], above)
    prefix = f"{above}." if above else ""
    found: list[str] = []
    for name, child in zip(treespec[2], treespec[3], strict=True):
        if child is None:
            found.append(f"{prefix}{text(name)}")
        else:
            found.extend(paths(child, f"{prefix}{text(name)}"))
    return found


def views(treespec: Treespec, above: str = "") -> list[tuple[str, View]]:
    """Return each view with its path."""
    if treespec is None:
        return []
    if treespec[0] is Viewed:
        return [(above, treespec[1]), *views(treespec[3][0], above)]
    prefix = f"{above}." if above else ""
    return [
        view
        for name, child in zip(treespec[2], treespec[3], strict=True)
        for view in views(child, f"{prefix}{text(name)}")
    ]
