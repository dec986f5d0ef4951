"""Paths: the place of a leaf in a structure, as a dotted string, in one form for every kind of node.

Fields and keys appear by name, items of lists and tuples by position:
``layers.0.weight``. Paths are computed once for a structure, 0.4 µs a leaf, and
kept for the last few structures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._trees.traversal import tree_leaves, tree_unflatten
from adprotocol._trees.treespec import has_other_keys, paths
from adprotocol.errors import TreeError, quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

# Treespecs hold the static fields of the structures they describe, so few are kept.
KEEP = 16
_KNOWN: dict[Any, Paths] = {}


class Paths:
    """Hold the path of each leaf of one structure, and the results of pattern matches."""

    __slots__ = ("are_of_equals", "keeps_none", "matches", "of_leaves")

    def __init__(self, of_leaves: list[str], *, are_of_equals: bool = True) -> None:
        self.of_leaves = of_leaves
        # Whether each structure whose treespec is equal has these.
        self.are_of_equals = are_of_equals
        self.matches: dict[str, list[bool]] = {}
        # Whether the structure, rebuilt with None at every leaf, keeps each None; unknown until it has been tried.
        self.keeps_none: bool | None = None


def paths_of(tree: Any, treespec: Any) -> Paths:
    """Return the paths of the leaves of `tree`, a container or a leaf whose treespec is `treespec`.

    Raises `TreeError` if two leaves have the same path.
    """
    try:
        known = _KNOWN.get(treespec)
    # Static fields that cannot be hashed or compared (arrays).
    except Exception:  # noqa: BLE001
        return compute(tree, treespec)
    if known is None or not (known.are_of_equals or known.of_leaves == paths(treespec)):
        known = compute(tree, treespec)
        if len(_KNOWN) >= KEEP:
            _KNOWN.clear()
        _KNOWN[treespec] = known
    return known


def check_paths(tree: Any, treespec: Any) -> Paths | None:
    """Raise `TreeError` if two leaves have the same path: errors and `where` could not tell them apart.

    Return the paths, where they were looked at.
    """
    return paths_of(tree, treespec)


def keeps_none(tree: Any, treespec: Any, known: Paths | None) -> bool:
    """Tell whether `tree`, rebuilt with None at every leaf, keeps each; `known` are its paths."""
    if known is None:
        known = paths_of(tree, treespec)
    if known.keeps_none is None:
        count = len(known.of_leaves)
        try:
            empty = tree_leaves((tree_unflatten(treespec, [None] * count, tree),))
            known.keeps_none = len(empty) == count and all(leaf is None for leaf in empty)
        except TreeError:
            known.keeps_none = False
    return known.keeps_none


def check_keeps_none(tree: Any, treespec: Any, result: Any, leaves: Sequence[Any]) -> None:
    """Raise `TreeError` if a node of `result` replaced a None, which would then look like a leaf.

    `result` is `tree` with its leaves replaced by `leaves`.
    """
    found = tree_leaves((result,))
    if len(found) != len(leaves):
        wrong = 0
    else:
        replaced = (
            i for i, (new, old) in enumerate(zip(found, leaves, strict=True)) if old is None and new is not None
        )
        wrong = next(replaced, -1)
    if wrong >= 0:
        msg = (
            f"the {type(tree).__qualname__} given to adprotocol has a node that replaces None at "
            f"{quoted(paths_of(tree, treespec).of_leaves[wrong])}, where there is no gradient; let its unflatten "
            "function keep any leaf unchanged, None included (set the attributes instead of calling a constructor that "
            "fills in a default)"
        )
        raise TreeError(msg)


def compute(tree: Any, treespec: Any) -> Paths:
    """Compute the paths without the cache."""
    found = paths(treespec)
    if len(set(found)) != len(found):
        seen: set[str] = set()
        twice = next(path for path in found if path in seen or seen.add(path))  # type: ignore[func-returns-value]
        msg = (
            f"the {type(tree).__qualname__} given to adprotocol has two leaves with the same path {twice!r}; rename "
            "the key or field of one (a key that contains a dot looks like two)"
        )
        raise TreeError(msg)
    return Paths(found, are_of_equals=not has_other_keys(treespec))
