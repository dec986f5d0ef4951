"""What a branch returns, taken apart into leaves and an outline, and put together again.

A framework's control flow takes arrays alone. So a plugin gives it the arrays among
the leaves, compares the outlines of the two branches itself, and puts the arrays
that come out into the outline. An outline holds no leaf, only classes and metadata
in nested tuples, so that it may outlive the trace of a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import tree_flatten
from adprotocol._trees.treespec import build, same_node

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Outline = Any


def take_apart(result: Any) -> tuple[list[Any], Outline]:
    """Return the leaves of a result and its outline; the value in a label is made constant."""
    found: list[Any] = []
    return found, (_outline(result, found),)


def _outline(result: Any, found: list[Any]) -> Any:
    leaves, treespec = tree_flatten(result)
    return _with_labels(treespec, iter(leaves), found)


def _with_labels(treespec: Any, leaves: Iterator[Any], found: list[Any]) -> Outline:
    if treespec is not None:
        children = []
        for child in treespec[3]:
            children.append(_with_labels(child, leaves, found))  # noqa: PERF401  (a frame less a level)
        return (*treespec[:3], tuple(children))
    leaf = next(leaves)
    if not isinstance(leaf, NonDifferentiable):
        found.append(leaf)
        return None
    return (NonDifferentiable, None, ("",), (_outline(leaf.value, found),))


def put_together(outline: Outline, leaves: Sequence[Any]) -> Any:
    """Return a result of this outline with these leaves."""
    return build(outline[0], iter(leaves))


def common_outline(one: Outline, other: Outline) -> Outline | None:
    """Return the outline that two results have in common, or None if their structures differ.

    A label stays where both have one; a label beside a plain value is the constant that it holds.
    """
    common = _common(one[0], other[0])
    return None if common is NotImplemented else (common,)


def _common(one: Any, other: Any) -> Any:
    if _is_label(one) is not _is_label(other):
        return _common(one[3][0] if _is_label(one) else one, other[3][0] if _is_label(other) else other)
    if one is None or other is None:
        return None if one is other else NotImplemented
    if not same_node(one, other):
        return NotImplemented
    children = [_common(*pair) for pair in zip(one[3], other[3], strict=True)]
    return NotImplemented if NotImplemented in children else (*one[:3], tuple(children))


def _is_label(outline: Outline) -> bool:
    return outline is not None and outline[0] is NonDifferentiable


def describe(outline: Outline, leaves: Sequence[str]) -> str:
    """Return a result as error messages show it, given its leaves as text."""
    return _described(outline[0], iter(leaves))


def _described(outline: Outline, leaves: Iterator[str]) -> str:
    if outline is None:
        return next(leaves)
    cls, metadata, names, children = outline
    texts = [_described(child, leaves) for child in children]
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
