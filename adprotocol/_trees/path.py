"""Paths: the place of a leaf in a structure, as a dotted string, in one form for every kind of node.

Fields and keys appear by name, items of lists and tuples by position:
``layers.0.weight``. Paths are computed once for a structure, 0.4 µs a leaf, and
kept for the last few structures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._trees.traversal import is_native, tree_flatten, tree_unflatten
from adprotocol.errors import TreeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Treespecs hold the static fields of the structures they describe, so few are kept.
KEEP = 16
_KNOWN: dict[Any, Paths] = {}


class Paths:
    """Hold the path of each leaf of one structure, and the results of pattern matches."""

    __slots__ = ("keeps_none", "matches", "of_leaves")

    def __init__(self, of_leaves: list[str]) -> None:
        self.of_leaves = of_leaves
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
        return compute(tree, treespec, named_tuples=_has_named_tuples(tree))
    if known is None:
        known = compute(tree, treespec, named_tuples=_has_named_tuples(tree))
        if len(_KNOWN) >= KEEP:
            _KNOWN.clear()
        _KNOWN[treespec] = known
    return known


def check_paths(tree: Any, treespec: Any) -> None:
    """Raise `TreeError` if two leaves have the same path: errors and `where` could not tell them apart."""
    paths_of(tree, treespec)


def check_keeps_none(tree: Any, treespec: Any, result: Any, leaves: Sequence[Any]) -> None:
    """Raise `TreeError` if a node of `result` replaced a None, which would then look like a leaf.

    `result` is `tree` with its leaves replaced by `leaves`.
    """
    if not is_native(treespec):
        return
    known = paths_of(tree, treespec)
    if known.keeps_none is None:
        count = len(known.of_leaves)
        try:
            empty = tree_flatten(tree_unflatten(treespec, [None] * count, tree))[0]
            known.keeps_none = len(empty) == count and all(leaf is None for leaf in empty)
        except TreeError:
            known.keeps_none = False
    if known.keeps_none:
        return
    found = tree_flatten(result)[0]
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
            f"{quoted(known.of_leaves[wrong])}, where there is no gradient; let its unflatten function keep any leaf "
            "unchanged, None included (set the attributes instead of calling a constructor that fills in a default)"
        )
        raise TreeError(msg)


def _has_named_tuples(tree: Any) -> bool:
    classes: set[type] = set()

    def visit(node: Any) -> bool:
        classes.add(type(node))
        return False

    tree_flatten(tree, visit=visit)
    return any(issubclass(cls, tuple) and cls is not tuple for cls in classes)


def compute(tree: Any, treespec: Any, *, named_tuples: bool) -> Paths:
    """Compute the paths without the cache."""
    # optree's paths give the fields of named tuples by position; its accessors give the names, and take ten times as
    # long.
    if named_tuples:
        entries = [[_name(entry) for entry in accessor] for accessor in treespec.accessors()]
    else:
        entries = [[str(entry) for entry in path] for path in treespec.paths()]
    found = [".".join(path) for path in entries]
    if len(set(found)) != len(found):
        seen: set[str] = set()
        twice = next(path for path in found if path in seen or seen.add(path))  # type: ignore[func-returns-value]
        msg = (
            f"the {type(tree).__qualname__} given to adprotocol has two leaves with the same path {twice!r}; rename "
            "the key or field of one (a key that contains a dot looks like two)"
        )
        raise TreeError(msg)
    return Paths(found)


def _name(entry: Any) -> str:
    # Accessors also know the fields of a dataclass that is registered without names, which paths do not.
    is_named_tuple = issubclass(entry.type, tuple) and hasattr(entry, "field")
    return str(entry.field if is_named_tuple else entry.entry)


def quoted(path: str) -> str:
    """Return a path as error messages show it."""
    return repr(path) if path else "the value itself"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the names most similar to `name`, for an error message."""
    some: Sequence[str] = list(names)[:1000]
    if not some:
        return "none"
    import difflib  # noqa: PLC0415  (for errors only)

    like = difflib.get_close_matches(name, some, n=5, cutoff=0.3) or some[:5]
    return ", ".join(map(quoted, like))
