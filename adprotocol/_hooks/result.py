"""The structure of what a branch returns: taken off its leaves, compared with another, put back.

A structure holds no leaf, only classes and metadata in nested tuples, so that it may
outlive the trace of a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import one_level, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The structure of a leaf, and what that of a label starts with.
LEAF: tuple[()] = ()
LABEL = "label"

# Nested: (class, metadata, names, what rebuilds it, structures of the children), (LABEL, structure), or LEAF. What
# rebuilds it is a function, for a dict its keys in their own order; it is no part of the structure.
Structure = tuple[Any, ...]


def flatten_result(result: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a result and its structure; the value in a label is made constant."""
    leaves: list[Any] = []
    return leaves, _whole(result, leaves)


def _whole(result: Any, leaves: list[Any]) -> Structure:
    tree_leaves((result,))  # makes nodes of the classes that it meets for the first time
    return _structure(result, leaves)


def _structure(result: Any, leaves: list[Any]) -> Structure:
    if isinstance(result, NonDifferentiable):
        return (LABEL, _whole(result.value, leaves))
    cls = type(result)
    # Not by optree, whose metadata for a dict differs under a compiler that traces Python.
    if cls is list or cls is tuple:
        return (cls, None, (), cls, tuple([_structure(item, leaves) for item in result]))
    if cls is dict:
        keys = _sorted_keys(result)
        return (cls, keys, (), tuple(result), tuple([_structure(result[key], leaves) for key in keys]))
    node = one_level(result)
    if node is None:
        leaves.append(result)
        return LEAF
    children, metadata, names, unflatten = node
    return (cls, metadata, names, unflatten, tuple([_structure(child, leaves) for child in children]))


def _sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(tree, key=lambda key: (type(key).__name__, key)))
    except TypeError:  # keys without an order
        return tuple(tree)


def unflatten_result(structure: Structure, leaves: Sequence[Any]) -> Any:
    """Return a result of this structure with these leaves."""
    return _built(structure, iter(leaves))


def _built(structure: Structure, leaves: Iterator[Any]) -> Any:
    if structure == LEAF:
        return next(leaves)
    if _is_label(structure):
        return NonDifferentiable(_built(structure[1], leaves))
    cls, metadata, _, rebuild, children = structure
    built = [_built(child, leaves) for child in children]
    if cls is list or cls is tuple:
        return cls(built)
    if cls is dict:
        items = dict(zip(metadata, built, strict=True))
        return {key: items[key] for key in rebuild}
    return rebuild(metadata, built)


def common_structure(one: Structure, other: Structure) -> Structure | None:
    """Return the structure that two results have in common, or None if their structures differ.

    A label stays where both have one; a label beside a plain value is the constant that it holds.
    """
    labelled = _is_label(one), _is_label(other)
    if labelled == (True, True):
        inner = common_structure(one[1], other[1])
        return None if inner is None else (LABEL, inner)
    if labelled[0] or labelled[1]:
        return common_structure(one[1] if labelled[0] else one, other[1] if labelled[1] else other)
    if LEAF in (one, other):
        return LEAF if one == other else None
    if one[0] is not other[0] or len(one[-1]) != len(other[-1]) or not _equal(one[1:3], other[1:3]):
        return None
    children = [common_structure(*pair) for pair in zip(one[-1], other[-1], strict=True)]
    return None if None in children else (*one[:-1], tuple(children))


def _is_label(structure: Structure) -> bool:
    # Else it is a class, which not all compilers can compare with LABEL.
    return structure != LEAF and isinstance(structure[0], str)


def same_constant(one: Any, other: Any) -> bool:
    """Tell whether two leaves that are not arrays are the same: by identity, or by an equality that is a bool."""
    return one is other or _equal(one, other)


def _equal(one: Any, other: Any) -> bool:
    try:
        equal = one == other
    # The comparison of a user's objects, arrays among them, may raise anything.
    except Exception:  # noqa: BLE001
        return False
    return equal if type(equal) is bool else False


def show_result(structure: Structure, leaves: Iterator[str]) -> str:
    """Return a result as error messages show it, given its leaves as text."""
    if structure == LEAF:
        return next(leaves)
    if _is_label(structure):
        return f"NonDifferentiable({show_result(structure[1], leaves)})"
    cls, metadata, names, _, children = structure
    texts = [show_result(child, leaves) for child in children]
    if cls is list:
        return f"[{', '.join(texts)}]"
    if cls is tuple:
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    if cls is dict:
        return "{" + ", ".join(f"{name!r}: {text}" for name, text in zip(metadata, texts, strict=True)) + "}"
    fields = ", ".join(f"{name}={text}" for name, text in zip(names, texts, strict=True))
    # Metadata of more than the names: static fields, which may be what differs.
    static = "" if metadata == names or issubclass(cls, tuple) else f" with {metadata!r:.200}"
    return f"{cls.__qualname__}({fields}){static}"
