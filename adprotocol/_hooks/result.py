"""What a branch returns, taken apart into leaves and an outline, and put together again.

A framework's control flow takes arrays alone. So a plugin gives it the arrays among
the leaves, compares the outlines of the two branches itself, and puts the arrays
that come out into the outline. An outline holds no leaf, only classes and metadata
in nested tuples, so that it may outlive the trace of a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import one_level, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# The outline of a leaf, and what that of a label starts with.
LEAF: tuple[()] = ()
LABEL = "label"

# Nested: (class, metadata, names, what rebuilds it, outlines of the children), (LABEL, outline), or LEAF. What
# rebuilds it is a function, for a dict its keys in their own order; it is no part of the structure.
Outline = tuple[Any, ...]


def take_apart(result: Any) -> tuple[list[Any], Outline]:
    """Return the leaves of a result and its outline; the value in a label is made constant."""
    leaves: list[Any] = []
    return leaves, _whole(result, leaves)


def _whole(result: Any, leaves: list[Any]) -> Outline:
    tree_leaves((result,))  # makes nodes of the classes that it meets for the first time
    return _outline(result, leaves)


def _outline(result: Any, leaves: list[Any]) -> Outline:
    if isinstance(result, NonDifferentiable):
        return (LABEL, _whole(result.value, leaves))
    cls = type(result)
    # Not by optree, whose metadata for a dict differs under a compiler that traces Python.
    if cls is list or cls is tuple:
        return (cls, None, (), cls, tuple([_outline(item, leaves) for item in result]))
    if cls is dict:
        keys = _sorted_keys(result)
        return (cls, keys, (), tuple(result), tuple([_outline(result[key], leaves) for key in keys]))
    node = one_level(result)
    if node is None:
        leaves.append(result)
        return LEAF
    children, metadata, names, unflatten = node
    return (cls, metadata, names, unflatten, tuple([_outline(child, leaves) for child in children]))


def _sorted_keys(tree: dict[Any, Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(tree, key=lambda key: (type(key).__name__, key)))
    except TypeError:  # keys without an order
        return tuple(tree)


def put_together(outline: Outline, leaves: Sequence[Any]) -> Any:
    """Return a result of this outline with these leaves."""
    return _built(outline, iter(leaves))


def _built(outline: Outline, leaves: Iterator[Any]) -> Any:
    if outline == LEAF:
        return next(leaves)
    if _is_label(outline):
        return NonDifferentiable(_built(outline[1], leaves))
    cls, metadata, _, rebuild, children = outline
    built = [_built(child, leaves) for child in children]
    if cls is list or cls is tuple:
        return cls(built)
    if cls is dict:
        items = dict(zip(metadata, built, strict=True))
        return {key: items[key] for key in rebuild}
    return rebuild(metadata, built)


def common_outline(one: Outline, other: Outline) -> Outline | None:
    """Return the outline that two results have in common, or None if their structures differ.

    A label stays where both have one; a label beside a plain value is the constant that it holds.
    """
    labelled = _is_label(one), _is_label(other)
    if labelled == (True, True):
        inner = common_outline(one[1], other[1])
        return None if inner is None else (LABEL, inner)
    if labelled[0] or labelled[1]:
        return common_outline(one[1] if labelled[0] else one, other[1] if labelled[1] else other)
    if LEAF in (one, other):
        return LEAF if one == other else None
    if one[0] is not other[0] or len(one[-1]) != len(other[-1]) or not _equal(one[1:3], other[1:3]):
        return None
    children = [common_outline(*pair) for pair in zip(one[-1], other[-1], strict=True)]
    return None if None in children else (*one[:-1], tuple(children))


def _is_label(outline: Outline) -> bool:
    # Else it is a class, which not all compilers can compare with LABEL.
    return outline != LEAF and isinstance(outline[0], str)


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


def describe(outline: Outline, leaves: Sequence[str]) -> str:
    """Return a result as error messages show it, given its leaves as text."""
    return _described(outline, iter(leaves))


def _described(outline: Outline, leaves: Iterator[str]) -> str:
    if outline == LEAF:
        return next(leaves)
    if _is_label(outline):
        return f"NonDifferentiable({_described(outline[1], leaves)})"
    cls, metadata, names, _, children = outline
    texts = [_described(child, leaves) for child in children]
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
