"""Check what a rule returned, by structure, shape and dtype, since a framework would broadcast or sum it silently."""

from __future__ import annotations

from adprotocol._dispatch.binding import FUNCTION
from adprotocol._dispatch.dtype import kind_of_dtype
from adprotocol._dispatch.shape import may_be_equal, shape_of
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.traversal import binding_for
from adprotocol._trees.treespec import count_leaves, is_label
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError
from adprotocol.messages import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from adprotocol._trees.treespec import Node, Treespec


class Collector:
    """Take apart what a rule returned: one gradient or tangent for each leaf of a structure.

    Args:
        likes: for each leaf the array whose gradient or tangent it is, or None where nobody needs it.
        words: who returned it, and as what, for errors.
    """

    # How errors say it, and their class.
    did, do = "returned", "return"
    error: type[Exception] = RuleError

    def __init__(self, likes: Sequence[Any], words: tuple[str, str]) -> None:
        self.likes = likes
        self.words = words
        # One for each leaf; None for zero, and where it is not needed.
        self.entries: list[Any] = [None] * len(likes)
        self._next = 0

    def opened(self, entry: Any) -> Any:
        """Return an entry; a function without arguments in its place is called now that the entry is needed."""
        return entry() if lookup(type(entry)).kind is FUNCTION else entry

    def unneeded(self, entry: Any, where: str) -> None:
        """Called for each entry that nobody needs; does nothing."""

    def add(self, entry: Any, treespec: Treespec, where: str) -> None:
        """Consume the entry for the next leaves, which have the structure `treespec`; `where` names it in errors."""
        if treespec is None:
            like = self.likes[self._next]
            if like is not None:
                self.entries[self._next] = self.checked(entry, like, where)
            elif entry is not None:
                self.unneeded(entry, where)
            self._next += 1
            return
        stop = self._next + count_leaves(treespec)
        if not is_label(treespec) and any(like is not None for like in self.likes[self._next : stop]):
            entry = self.opened(entry)
            if entry is not None:
                self._add_children(entry, treespec, where)
        elif entry is not None:
            self.unneeded(entry, where)
        self._next = stop

    def _add_children(self, entry: Any, treespec: Node, where: str) -> None:
        cls, _, names, specs = treespec
        flatten = binding_for(entry).flatten
        children, _, own_names = (None, None, None) if flatten is None else flatten(entry)
        # An ordered dict may stand for a dict, and the like: names and order are the structure, metadata is not.
        if children is None or own_names != names or not (type(entry) is cls or issubclass(type(entry), cls)):
            actual = kind_of(entry) if children is None else f"{kind_of(entry)} of {_listed(own_names)}"
            raise self.error(
                f"{self.words[0]} {self.did} {actual} as {self.words[1]} {where}, which is a {cls.__qualname__} of "
                f"{_listed(names)}; {self.do} the same structure, or None for zeros"
            )
        for child, spec, name in zip(children, specs, names, strict=True):
            self.add(child, spec, f"{where} at {name!r}")

    def checked(self, entry: Any, like: Any, where: str) -> Any:
        """Return an entry, None for zeros; raise unless it has the shape of `like`, and is real if `like` is."""
        entry = self.opened(entry)
        if isinstance(entry, NonDifferentiable):
            entry = entry.value
        if entry is None:
            return None
        shape, due = shape_of(entry), shape_of(like)
        if (shape is None and due is not None) or not may_be_equal(shape, due):
            actual = kind_of(entry) if shape is None else f"an array of shape {tuple(shape)}"
            raise self.error(
                f"{self.words[0]} {self.did} {actual} as {self.words[1]} {where}, which is an array of shape "
                f"{tuple(due or ())}; {self.do} one of the same shape (sum over what was broadcast), or None for zeros"
            )
        if is_complex(entry) and not is_complex(like):
            who, what = self.words
            msg = f"{who} {self.did} a complex array as {what} {where}, which is real; {self.do} its real part"
            raise self.error(msg)
        return entry


def _listed(names: Any) -> str:
    return str(len(names)) if names and [*names] == [*range(len(names))] else ", ".join(map(repr, names)) or "nothing"


def is_complex(value: Any) -> bool:
    """Return whether an array or number is complex."""
    dtype = getattr(value, "dtype", None)
    return isinstance(value, complex) if dtype is None else kind_of_dtype(dtype) == "complex"
