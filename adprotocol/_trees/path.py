"""Paths: where a leaf is in a structure, as a dotted string, in one form for every kind of node.

Fields and keys go by their names, items of lists and tuples by their positions:
``layers.0.weight``. They are computed once for a structure, 0.4 µs a leaf, and
kept for the few structures seen last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol._dynamo import trace_instead
from adprotocol._trees import traversal as tree
from adprotocol.errors import TreeError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Treespecs hold the static fields of the structures they describe, so few are kept.
KEEP = 16
_KNOWN: dict[Any, Paths] = {}


class Paths:
    """Hold the path of each leaf of one structure, and which of them patterns have matched."""

    __slots__ = ("keeps_none", "matches", "of_leaves")

    def __init__(self, of_leaves: list[str]) -> None:
        self.of_leaves = of_leaves
        self.matches: dict[str, list[bool]] = {}
        # Whether a structure rebuilt with None for every leaf has None there; not known before the first one.
        self.keeps_none: bool | None = None


def _traced(shown: Any, treespec: Any) -> Paths:
    return Paths(_compute(shown, treespec, named_tuples=True))


@trace_instead(_traced)
def of_structure(shown: Any, treespec: Any) -> Paths:
    """Return the paths of the leaves of `shown`, a container or a leaf, whose treespec is given.

    Raises `TreeError` if two leaves have one path.
    """
    try:
        known = _KNOWN.get(treespec)
    # A node whose static fields have no hash, or cannot be compared (arrays).
    except Exception:  # noqa: BLE001
        return Paths(_compute(shown, treespec, named_tuples=_has_named_tuples(shown)))
    if known is None:
        known = Paths(_compute(shown, treespec, named_tuples=_has_named_tuples(shown)))
        if len(_KNOWN) >= KEEP:
            _KNOWN.clear()
        _KNOWN[treespec] = known
    return known


def _check_traced(shown: Any, treespec: Any) -> None:
    # Left to `of_structure`, when paths are needed: a graph is traced once, and slowly.
    pass


@trace_instead(_check_traced)
def check(shown: Any, treespec: Any) -> None:
    """Raise `TreeError` if two leaves have one path: errors and `where` could not tell them apart."""
    of_structure(shown, treespec)


def _check_rebuilt_traced(shown: Any, treespec: Any, result: Any, leaves: Sequence[Any]) -> None:
    pass


@trace_instead(_check_rebuilt_traced)
def check_rebuilt(shown: Any, treespec: Any, result: Any, leaves: Sequence[Any]) -> None:
    """Raise `TreeError` if a node of `result` put something in the place of a None: it would pass for a leaf."""
    known = of_structure(shown, treespec)
    if known.keeps_none is None:
        count = len(known.of_leaves)
        try:
            empty = tree.take_apart(tree.rebuild(treespec, [None] * count, shown))[0]
            known.keeps_none = len(empty) == count and all(leaf is None for leaf in empty)
        except TreeError:
            known.keeps_none = False
    if known.keeps_none:
        return
    found = tree.take_apart(result)[0]
    if len(found) != len(leaves):
        wrong = 0
    else:
        replaced = (
            i for i, (new, old) in enumerate(zip(found, leaves, strict=True)) if old is None and new is not None
        )
        wrong = next(replaced, -1)
    if wrong >= 0:
        msg = (
            f"the {type(shown).__qualname__} given to adprotocol has a node that does not keep None at "
            f"{show(known.of_leaves[wrong])}, where there is no gradient; let the function that rebuilds it from its "
            "leaves take any leaf as it is, None included (set the attributes, do not call a constructor that "
            "replaces it by a default)"
        )
        raise TreeError(msg)


def _has_named_tuples(shown: Any) -> bool:
    types: set[type] = set()

    def sees(node: Any) -> bool:
        types.add(type(node))
        return False

    tree.take_apart(shown, sees=sees)
    return any(issubclass(cls, tuple) and cls is not tuple for cls in types)


def _compute(shown: Any, treespec: Any, *, named_tuples: bool) -> list[str]:
    # optree's paths have positions for the fields of named tuples, its accessors
    # names, at ten times the time.
    if named_tuples:
        entries = [[_name(entry) for entry in accessor] for accessor in treespec.accessors()]
    else:
        entries = [[str(entry) for entry in path] for path in treespec.paths()]
    found = [".".join(path) for path in entries]
    if len(set(found)) != len(found):
        seen: set[str] = set()
        twice = next(path for path in found if path in seen or seen.add(path))  # type: ignore[func-returns-value]
        msg = (
            f"the {type(shown).__qualname__} given to adprotocol has two leaves at the path {twice!r}, so that neither "
            "can be named; rename the key or field of one (a key that holds a dot looks like two)"
        )
        raise TreeError(msg)
    return found


def _name(entry: Any) -> str:
    # optree knows the fields of a dataclass that is registered without names too, its paths do not.
    is_named_tuple = issubclass(entry.type, tuple) and hasattr(entry, "field")
    return str(entry.field if is_named_tuple else entry.entry)


def show(path: str) -> str:
    """Return a path as errors write it."""
    return repr(path) if path else "the value itself"


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the few names that are most like `name`, to be shown in an error."""
    some: Sequence[str] = list(names)[:1000]
    if not some:
        return "none"
    import difflib  # noqa: PLC0415  (for errors only)

    like = difflib.get_close_matches(name, some, n=5, cutoff=0.3) or some[:5]
    return ", ".join(map(show, like))
