"""Are two values that are not arrays the same? Equal is not enough: ``==`` may leave out what a program computes with.

Both branches of a staged `cond` return one, and the result can hold only one of the two.
"""

from __future__ import annotations

from typing import Any

from adprotocol._dispatch.table import lookup
from adprotocol._trees.held import held
from adprotocol._trees.treespec import same_constant

_SIMPLE = (str, bytes, bool, int, float, complex, type(None))
_PROTOCOL = 4  # of pickle


def same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same object, or equal objects of the same class with the same state."""
    if one is other:
        return True
    if type(one) is not type(other) or not same_constant(one, other):
        return False
    return type(one) in _SIMPLE or _same_state(one, other, [])


def _same_state(one: Any, other: Any, seen: list[tuple[int, int]]) -> bool:
    if one is other or (id(one), id(other)) in seen:
        return True
    cls = type(one)
    if cls is not type(other):
        return False
    if cls in _SIMPLE:
        return bool(one == other)
    seen.append((id(one), id(other)))
    if cls in (set, frozenset):
        return len(one) == len(other) and all(any(_same_state(a, b, seen[:]) for b in other) for a in one)
    if cls is dict:
        return one.keys() == other.keys() and all(_same_state(one[key], other[key], seen) for key in one)
    if cls not in (list, tuple):
        if lookup(cls).framework is not None:
            return False
        one, other = _state(one), _state(other)
    return len(one) == len(other) and all(_same_state(a, b, seen) for a, b in zip(one, other, strict=True))


def _state(value: Any) -> list[Any]:
    """Return that of which a copy of an object would be made, else what the object holds."""
    try:
        reduced = value.__reduce_ex__(_PROTOCOL)
    # A user's class may raise anything when it is asked for its state.
    except Exception:  # noqa: BLE001
        return [id(value), *held(value)] if callable(value) else held(value)
    parts = reduced if isinstance(reduced, tuple) else (reduced,)
    return [list(part) if hasattr(type(part), "__next__") else part for part in parts]
