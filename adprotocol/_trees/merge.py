"""Two structures merged in one descent, three times as fast as two flattened structures and one rebuilt."""

from __future__ import annotations

from adprotocol._trees.traversal import DEEPEST, binding_for, too_deep
from adprotocol._trees.treespec import same_node
from adprotocol._typing import Any


class NotMergedError(Exception):
    """Two structures do not match, or have what only flattening them shows; with their paths one can say where."""


def merge(first: Any, other: Any) -> Any:
    """Return a structure like `first` that has the leaves of `other` where `first` has None."""
    try:
        return _merge(first, other, set(), 0)
    except RecursionError as error:
        raise too_deep(first) from error


def _merge(first: Any, other: Any, leaf_types: set[type], depth: int) -> Any:
    """Merge the values at one place; `leaf_types` are the classes met whose instances are leaves."""
    if type(first) is dict and type(other) is dict and depth < DEEPEST and first.keys() == other.keys():
        by_key = {}  # twice as fast as by the functions of the node
        for key, child in first.items():
            later = other[key]
            if type(child) in leaf_types and type(later) in leaf_types:
                by_key[key] = later if child is None else child
            else:
                by_key[key] = _merge(child, later, leaf_types, depth + 1)
        return by_key
    binding = binding_for(first)
    if binding.contents is None:
        other_binding = binding_for(other)
        if binding.view is not None or other_binding.view is not None or other_binding.contents is not None:
            raise NotMergedError
        leaf_types.update((type(first), type(other)))
        return other if first is None else first
    if depth > DEEPEST:
        raise RecursionError
    cls = type(first)
    if type(other) is not cls:
        raise NotMergedError
    children, metadata, names = binding.contents(first)
    others, other_metadata, other_names = binding.contents(other)
    alike = names is other_names and (metadata is other_metadata or cls is dict)
    alike = alike or same_node((cls, metadata, names, ()), (cls, other_metadata, other_names, ()))
    if not alike or len(children) != len(others):
        raise NotMergedError
    merged: list[Any] = []
    for child in children:
        later = others[len(merged)]
        if type(child) in leaf_types and type(later) in leaf_types:
            merged.append(later if child is None else child)
        else:
            merged.append(_merge(child, later, leaf_types, depth + 1))
    if cls is list:
        return merged
    try:
        return binding.unflatten(metadata, merged)  # type: ignore[misc]
    # A user's constructor may raise anything.
    except Exception as error:
        raise NotMergedError from error
