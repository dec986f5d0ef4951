"""What a function takes or returns: its leaves and its structure, a treespec in which a label is a node too."""

from __future__ import annotations

from adprotocol._dispatch.binding import LABEL, VIEWED
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import Flattened, binding_for
from adprotocol._trees.treespec import build, same_constant, same_node
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from adprotocol._trees.treespec import Treespec


def flatten_result(result: Any) -> tuple[list[Any], Treespec]:
    """Return the leaves of a value and its structure.

    The value in a label is made constant, and an array that is also a container (the box of a dict) is opened.
    """
    found: list[Any] = []
    return found, _flatten(result, found)


def _flatten(result: Any, found: list[Any]) -> Treespec:
    flat = Flattened(result)
    for binding in flat.bindings.values():
        if binding.kind is LABEL or binding.kind is VIEWED:
            return _opened(flat.treespec, iter(flat.leaves), found)
    found.extend(flat.leaves)
    return flat.treespec


def _opened(treespec: Treespec, leaves: Iterator[Any], found: list[Any]) -> Treespec:
    if treespec is not None:
        return (*treespec[:3], tuple([_opened(child, leaves, found) for child in treespec[3]]))
    leaf = next(leaves)
    if isinstance(leaf, NonDifferentiable):
        return (NonDifferentiable, None, ("",), (_flatten(leaf.value, found),))
    binding = binding_for(leaf)
    if binding.kind is VIEWED and binding.view is not None:
        return _flatten(binding.view(leaf).container, found)
    found.append(leaf)
    return None


def unflatten_result(structure: Treespec, leaves: Iterable[Any]) -> Any:
    """Return a result of this structure with these leaves."""
    return build(structure, iter(leaves))


def common_structure(one: Treespec, other: Treespec) -> Treespec:
    """Return the structure that two results have in common, or NotImplemented if their structures differ.

    A label stays where both have one; a label beside a plain value is the constant that it holds.
    """
    if _is_label(one) is not _is_label(other):
        return common_structure(one[3][0] if _is_label(one) else one, other[3][0] if _is_label(other) else other)
    if one is None or other is None:
        return None if one is other else NotImplemented
    if not same_node(one, other):
        return NotImplemented
    children = [common_structure(*pair) for pair in zip(one[3], other[3], strict=True)]
    return NotImplemented if NotImplemented in children else (*one[:3], tuple(children))


def same(one: Any, other: Any) -> bool:
    """Return whether two values that are not arrays are identical, or of one class and equal."""
    return one is other or (type(one) is type(other) and same_constant(one, other))


def _is_label(structure: Treespec) -> bool:
    return structure is not None and structure[0] is NonDifferentiable


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
