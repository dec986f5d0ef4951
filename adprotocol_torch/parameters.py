"""Parameters: the tensors that the active calls substitute for them, and those that they differentiate.

A parameter's own flag says that it is trained, not that a derivative with respect to
it is wanted now. An enclosing call of `adprotocol.value_and_grad` may want one: to
that call the parameter is a variable, even where the inner call freezes it or
differentiates with respect to it again. The tensor that a call substitutes for a
parameter, tracked or frozen, stands for that parameter in inner calls: it has the
parameter's flag, and is one leaf at all its places.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.extend import trace_instead
from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOCK = threading.Lock()


class _Calls(threading.local):
    """By id, the leaves that the active calls of this thread differentiate with respect to."""

    def __init__(self) -> None:
        self.variables: frozenset[int] = frozenset()


_CALLS = _Calls()


class _Anywhere:
    """Whether any thread is inside such a call, as a bool that a compiler can guard on."""

    depth = 0
    inside = False


def _count(change: int) -> None:
    with _LOCK:
        _Anywhere.depth += change
        _Anywhere.inside = _Anywhere.depth > 0


def _nothing() -> None:
    pass


def _original_traced(tensor: Any) -> Any:
    return tensor


@trace_instead(_original_traced)
def original(tensor: Any) -> Any:
    """Return the parameter that a tensor stands for, or the tensor itself."""
    return getattr(tensor, "_adprotocol_parameter", tensor)


def is_parameter(tensor: Any) -> bool:
    """Tell whether a tensor is a parameter, or stands for one."""
    return isinstance(original(tensor), torch.nn.Parameter)


@hookimpl
def identity(value: torch.Tensor) -> int | None:
    """Return a key that the places of one parameter have in common."""
    return id(value) if isinstance(original(value), torch.nn.Parameter) else None


def _is_variable_traced(parameter: Any) -> bool:  # noqa: ARG001
    return _Anywhere.inside


@trace_instead(_is_variable_traced)
def is_variable(parameter: Any) -> bool:
    """Tell whether an enclosing call differentiates with respect to `parameter`; in a graph, whether one may."""
    return id(parameter) in _CALLS.variables


@hookimpl
def freeze(value: torch.Tensor) -> torch.Tensor:
    """Return a constant to replace a parameter that no enclosing call differentiates."""
    if not original(value).requires_grad or is_variable(value):
        return value
    constant = value.detach()
    _stand_for(constant, value)
    return constant


def _enter_traced(leaves: Any, tracked: Any) -> Any:  # noqa: ARG001
    # In a graph the differentiated tensor is not the parameter itself.
    return _nothing


@trace_instead(_enter_traced)
def enter(leaves: Sequence[torch.Tensor], tracked: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Record the parameters among the leaves, and their substitutes, until the returned function is called."""
    pairs = [(leaf, new) for leaf, new in zip(leaves, tracked, strict=True) if is_parameter(leaf)]
    if not pairs:
        return _nothing
    before = _CALLS.variables
    _CALLS.variables = before.union(id(item) for pair in pairs for item in pair)
    for leaf, new in pairs:
        _stand_for(new, leaf)
    _count(1)

    def leave() -> None:
        _CALLS.variables = before
        _count(-1)

    return leave


def _stand_for_traced(new: Any, leaf: Any) -> None:
    pass


@trace_instead(_stand_for_traced)
def _stand_for(new: torch.Tensor, leaf: torch.Tensor) -> None:
    if new is not leaf:
        new._adprotocol_parameter = original(leaf)  # type: ignore[attr-defined]  # noqa: SLF001
