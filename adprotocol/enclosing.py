"""Which parameters the calls under way in this thread differentiate with respect to.

A parameter's own flag says that it is trained, not that anybody differentiates
with respect to it now. Calls of `adprotocol.value_and_grad` around the current
one do: to those a parameter is a variable, also where the current call freezes
it or differentiates with respect to it again.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from adprotocol.tracing import trace_instead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOCK = threading.Lock()


class _Calls(threading.local):
    def __init__(self) -> None:
        self.parameters: frozenset[int] = frozenset()


_CALLS = _Calls()


class _Anywhere:
    """Whether any thread is inside such a call: what a compiler can read, and guard on."""

    depth = 0
    inside = False


def _nothing() -> None:
    pass


def _enter_traced(leaves: Sequence[Any], types: tuple[type, ...]) -> Callable[[], None]:  # noqa: ARG001
    # What is differentiated in a graph is not the parameter itself.
    return _nothing


@trace_instead(_enter_traced)
def enter(leaves: Sequence[Any], types: tuple[type, ...]) -> Callable[[], None]:
    """Count the parameters among `leaves` until the function that is returned is called."""
    found = [id(leaf) for leaf in leaves if isinstance(leaf, types)] if types else []
    if not found:
        return _nothing
    before = _CALLS.parameters
    _CALLS.parameters = before.union(found)
    _count(1)

    def leave() -> None:
        _CALLS.parameters = before
        _count(-1)

    return leave


def _count(change: int) -> None:
    with _LOCK:
        _Anywhere.depth += change
        _Anywhere.inside = _Anywhere.depth > 0


def _is_variable_traced(parameter: Any) -> bool:  # noqa: ARG001
    return _Anywhere.inside


@trace_instead(_is_variable_traced)
def is_variable(parameter: Any) -> bool:
    """Tell whether a call around the current one differentiates with respect to `parameter`; in a graph, if one may."""
    return id(parameter) in _CALLS.parameters
