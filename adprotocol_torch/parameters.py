"""Parameters: the tensors that the active calls substitute for them, and those that they differentiate.

A parameter's own flag says that it is trained, not that a derivative with respect to
it is wanted now. An enclosing call of `adprotocol.value_and_grad` may want one: to
that call the parameter is a variable, even where the inner call freezes it or
differentiates with respect to it again. The tensor that a call substitutes for a
parameter, tracked or frozen, stands for that parameter in inner calls: it has the
parameter's flag, and is one leaf at all its places.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.extend import trace_instead
from adprotocol.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_LOCK = threading.Lock()


def _renew_lock() -> None:
    """Forget a lock that is held by a thread which the child of a fork has not."""
    global _LOCK  # noqa: PLW0603
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


class _Calls(threading.local):
    """By id, the leaves that the active calls of this thread differentiate with respect to."""

    def __init__(self) -> None:
        self.variables: frozenset[int] = frozenset()
        # The tensor that now stands for each of them.
        self.current: dict[int, torch.Tensor] = {}


_CALLS = _Calls()


class _Anywhere:
    """Whether any thread is inside such a call, as a bool that a compiler can guard on."""

    def __init__(self) -> None:
        self.depth = 0
        self.inside = False


# An instance: older releases of PyTorch do not guard on what a class holds.
_ANYWHERE = _Anywhere()


def _count(change: int) -> None:
    with _LOCK:
        _ANYWHERE.depth += change
        _ANYWHERE.inside = _ANYWHERE.depth > 0


def _nothing() -> None:
    pass


def _original_traced(tensor: Any) -> Any:
    return tensor


@trace_instead(_original_traced)
def original(tensor: Any) -> Any:
    """Return the parameter that a tensor stands for, or the tensor itself."""
    return getattr(tensor, "_adprotocol_parameter", tensor)


@trace_instead(_original_traced)
def current(tensor: torch.Tensor) -> torch.Tensor:
    """Return what a call around the current one differentiates with respect to in the place of a tensor."""
    return _CALLS.current.get(id(tensor), tensor)


def is_parameter(tensor: Any) -> bool:
    """Tell whether a tensor is a parameter, or stands for one."""
    return isinstance(original(tensor), torch.nn.Parameter)


@hookimpl
def identity(value: torch.Tensor) -> int | None:
    """Return a key that the places of one parameter have in common."""
    return id(value) if isinstance(original(value), torch.nn.Parameter) else None


def _is_variable_traced(parameter: Any) -> bool:  # noqa: ARG001
    return _ANYWHERE.inside


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


# Parameters that calls under way train against their flag, which is set meanwhile: how many calls do, by id.
_LIFTED: dict[int, int] = {}


def _flag_traced(parameter: Any) -> bool:
    return parameter.requires_grad  # type: ignore[no-any-return]


@trace_instead(_flag_traced)
def flag(parameter: torch.Tensor) -> bool:
    """Return the flag that the user gave a parameter."""
    return parameter.requires_grad and id(parameter) not in _LIFTED


def lift(leaves: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Set the flag of the parameters among the leaves, until the returned function is called.

    So each stays in its place, and counts wherever the function reaches it.
    """
    lifted = [leaf for leaf in leaves if _can_be_lifted(leaf)]
    if not lifted:
        return _nothing
    with _LOCK:
        for leaf in lifted:
            _LIFTED[id(leaf)] = _LIFTED.get(id(leaf), 0) + 1
            leaf.requires_grad_()

    def lower() -> None:
        with _LOCK:
            for leaf in lifted:
                _LIFTED[id(leaf)] -= 1
                if not _LIFTED[id(leaf)]:
                    del _LIFTED[id(leaf)]
                    leaf.requires_grad_(False)  # noqa: FBT003  (the one parameter has other names in other versions)

    return lower


def _can_be_lifted(leaf: torch.Tensor) -> bool:
    if not isinstance(leaf, torch.nn.Parameter) or (leaf.requires_grad and id(leaf) not in _LIFTED):
        return False
    return not (leaf.is_inference() or is_variable(leaf) or torch.nn.parameter.is_lazy(leaf))


def _enter_traced(leaves: Any, tracked: Any) -> Any:  # noqa: ARG001
    # In a graph the differentiated tensor is not the parameter itself.
    return _nothing


@trace_instead(_enter_traced)
def enter(leaves: Sequence[torch.Tensor], tracked: Sequence[torch.Tensor]) -> Callable[[], None]:
    """Record the parameters among the leaves, and their substitutes, until the returned function is called."""
    pairs = [(leaf, new) for leaf, new in zip(leaves, tracked, strict=True) if is_parameter(leaf)]
    if not pairs:
        return _nothing
    before, current = _CALLS.variables, _CALLS.current
    _CALLS.current = current | {id(item): new for leaf, new in pairs for item in (leaf, original(leaf))}
    _CALLS.variables = before.union(id(item) for pair in pairs for item in pair)
    for leaf, new in pairs:
        _stand_for(new, leaf)
    _count(1)

    def leave() -> None:
        _CALLS.variables, _CALLS.current = before, current
        _count(-1)

    return leave


def _stand_for_traced(new: Any, leaf: Any) -> None:
    pass


@trace_instead(_stand_for_traced)
def _stand_for(new: torch.Tensor, leaf: torch.Tensor) -> None:
    if new is not leaf:
        new._adprotocol_parameter = original(leaf)  # type: ignore[attr-defined]  # noqa: SLF001
