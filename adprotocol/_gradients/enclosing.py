"""What the calls under way in this thread made of parameters.

A parameter's own flag says that it is trained, not that anybody differentiates
with respect to it now. Calls of `adprotocol.value_and_grad` around the current
one do: to those a parameter is a variable, also where the current call freezes
it or differentiates with respect to it again. What a call puts in the place of a
parameter, tracked or frozen, stands for it in the calls inside: it has the
parameter's flag, and is one leaf at all its places.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from adprotocol._dynamo import trace_instead

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LOCK = threading.Lock()


class _Calls(threading.local):
    def __init__(self) -> None:
        # By id: what is differentiated with respect to, and the parameter that something stands for.
        self.variables: frozenset[int] = frozenset()
        self.originals: dict[int, Any] = {}


_CALLS = _Calls()


class _Anywhere:
    """Whether any thread is inside such a call: what a compiler can read, and guard on."""

    depth = 0
    inside = False


def _nothing() -> None:
    pass


def _enter_traced(leaves: Sequence[Any], tracked: Sequence[Any], frozen: Mapping[int, Any], types: Any) -> Any:  # noqa: ARG001
    # What is differentiated in a graph is not the parameter itself.
    return _nothing


@trace_instead(_enter_traced)
def enter(
    leaves: Sequence[Any], tracked: Sequence[Any], frozen: Mapping[int, tuple[Any, Any]], types: tuple[type, ...]
) -> Callable[[], None]:
    """Note the parameters among `leaves` and what is put in their place until the returned function is called.

    `frozen` holds pairs of a parameter and the constant in its place.
    """
    pairs = (
        [pair for pair in zip(leaves, tracked, strict=True) if isinstance(original(pair[0]), types)] if types else []
    )
    if not pairs and not frozen:
        return _nothing
    before = _CALLS.variables, _CALLS.originals
    _CALLS.variables = before[0].union(id(item) for pair in pairs for item in pair)
    placed = {id(new): original(old) for old, new in (*pairs, *frozen.values()) if new is not old}
    if placed:
        _CALLS.originals = before[1] | placed
    _count(1)

    def leave() -> None:
        _CALLS.variables, _CALLS.originals = before
        _count(-1)

    return leave


def _original_traced(leaf: Any) -> Any:
    return leaf


@trace_instead(_original_traced)
def original(leaf: Any) -> Any:
    """Return the parameter that `leaf` stands for in a call around the current one, or `leaf` itself."""
    return _CALLS.originals.get(id(leaf), leaf)


def _count(change: int) -> None:
    with _LOCK:
        _Anywhere.depth += change
        _Anywhere.inside = _Anywhere.depth > 0


def _is_variable_traced(parameter: Any) -> bool:  # noqa: ARG001
    return _Anywhere.inside


@trace_instead(_is_variable_traced)
def is_variable(parameter: Any) -> bool:
    """Tell whether a call around the current one differentiates with respect to `parameter`; in a graph, if one may."""
    return id(parameter) in _CALLS.variables
