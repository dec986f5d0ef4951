"""What a function takes or returns: its leaves and its structure, a treespec in which a label is a node too."""

from __future__ import annotations

from adprotocol._trees.traversal import Flattened
from adprotocol._trees.treespec import build, children_of, is_label, same_constant, same_node
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from adprotocol._trees.treespec import Treespec


def flatten_result(result: Any) -> tuple[list[Any], Treespec]:
    """Return the leaves of a value and its structure.

    The value in a label is made constant, and an array that is also a container (the box of a dict) is opened.
    """
    flat = Flattened(result, labels=True)
    return flat.leaves, flat.treespec


def unflatten_result(structure: Treespec, leaves: Iterable[Any]) -> Any:
    """Return a result of this structure with these leaves."""
    return build(structure, iter(leaves))


def common_structure(one: Treespec, other: Treespec) -> Any:
    """Return the structure that two results have in common, or NotImplemented if their structures differ.

    A label stays where both have one; a label against a plain value is the constant that it holds.
    """
    if is_label(one) is not is_label(other):
        return common_structure(*(children_of(spec)[0] if is_label(spec) else spec for spec in (one, other)))
    if one is None or other is None:
        return None if one is other else NotImplemented
    if not same_node(one, other):
        return NotImplemented
    cls, metadata, names, children = one
    common = [common_structure(*pair) for pair in zip(children, children_of(other), strict=True)]
    return NotImplemented if NotImplemented in common else (cls, metadata, names, tuple(common))


def same(one: Any, other: Any) -> bool:
    """Return whether two values that are not arrays are identical, or of one class and equal."""
    return one is other or (type(one) is type(other) and same_constant(one, other))


def show_result(structure: Treespec, leaves: Iterator[str]) -> str:
    """Return a result as error messages show it, given its leaves as text."""
    if structure is None:
        return next(leaves)
    cls, metadata, names, children = structure
    texts = [show_result(child, leaves) for child in children]
    if cls is list:
        return f"[{', '.join(texts)}]"
    if cls is tuple:
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if cls is dict:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in zip(names, texts, strict=True)) + "}"
    fields = ", ".join(f"{name}={text}" if name else text for name, text in zip(names, texts, strict=True))
    # Metadata of more than the names: static fields, which may be what differs.
    static = "" if metadata is None or metadata == names else f" with {metadata!r:.200}"
    return f"{cls.__qualname__}({fields}){static}"
