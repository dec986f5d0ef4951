"""Parameters: which tensor stands for which, in the calls of `adprotocol.value_and_grad` under way.

A parameter's own flag says that it is trained, not that a derivative with respect to
it is wanted now. An enclosing call may want one: to that call the parameter is a
variable, even where the inner call freezes it or differentiates with respect to it
again. The tensor that a call substitutes for a parameter, tracked or frozen, stands
for that parameter in inner calls: it has the parameter's flag, and is one leaf at all
its places. It has the parameter's class and attributes too (`stand_for`), and where it is
differentiated by the engine its gradient hooks run.

Each thread has one `Calls`, in which a call notes what it substitutes, and takes it
back at its end, after an exception too; so calls nest. Another thread knows nothing
of it, as with PyTorch's own modes; it sees the parameter that a tensor stands for.

A graph that Dynamo traces has no substitutes: there a gradient with respect to
parameters is refused (`refused_in_graph`).
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter  # an attribute of a module takes 50 ns

from adprotocol.errors import UndecidableError
from adprotocol.hookspecs import hookimpl
from adprotocol.tracing import run_while_tracing, trace_instead
from adprotocol_torch.internals import in_transform, skip, stand_for, tape_is_on
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    # Makes a change, and returns what undoes it.
    Change = Callable[[], Callable[[], None]]


class _Substitutes(dict[int, torch.Tensor]):
    """Tensors by the ids of those in whose place they are, which are kept, so that no id is given to another."""

    replaced: Sequence[torch.Tensor] = ()


class Calls:
    """The calls under way in one thread."""

    def __init__(self) -> None:
        # By id, what stands for a parameter now: of the parameter, of what was given for it, and of what stands for it.
        self.current: _Substitutes = _Substitutes()
        # What the calls under way have changed, as functions that change it again and return how to undo that.
        self.changes: list[Change] = []
        # Of the last call whose gradients by parameters are constants to an outer derivative: start, and versions.
        self.last: tuple[int, list[tuple[Any, int]]] = (0, [])

    def change(self, change: Change) -> Callable[[], None]:
        """Make a change until the returned function is called, and again while a checkpoint runs its function again."""
        undo = change()
        self.changes.append(change)

        def end() -> None:
            self.changes.remove(change)
            undo()

        return end

    def renewal(self) -> Callable[[list[Callable[[], None]]], None] | None:
        """Return what makes the changes of the calls now under way again, and adds to a list how to undo each."""
        changes, current = tuple(self.changes), self.current
        if not (changes or current):
            return None

        def renew(undo: list[Callable[[], None]]) -> None:
            calls = LOCAL.calls
            if current is not calls.current:
                undo.append(calls.set_current(current))
            for change in changes:
                undo.append(calls.change(change))  # noqa: PERF401  (of an error too, what has been changed is undone)

        return renew

    def replace(
        self, leaves: Sequence[torch.Tensor], tracked: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]
    ) -> Callable[[], None]:
        """Note what is tracked in the place of the leaves that stand for parameters, their `owners`."""
        current = _Substitutes(self.current)
        current.replaced = [*self.current.replaced, *leaves]
        for leaf, new, owner in zip(leaves, tracked, owners, strict=True):
            if owner is not None:
                current[id(new)] = current[id(leaf)] = current[id(owner)] = new
        return self.set_current(current)

    def set_current(self, current: _Substitutes) -> Callable[[], None]:
        """Let tensors stand for parameters, by id, until the returned function is called."""
        before = self.current
        self.current = current

        def put_back() -> None:
            self.current = before

        return put_back


class _Local(threading.local):
    def __init__(self) -> None:
        self.calls: Calls = Calls()


LOCAL = _Local()


# The id of each parameter whose flag is set for calls under way, in all threads, with their number.
_RAISED: Counter[int] = Counter()
_LOCK = threading.Lock()


def raise_flag(parameter: torch.Tensor) -> Callable[[], None]:
    """Let a parameter require grad, against the flag that its user set, until the returned function is called."""
    key = id(parameter)
    with _LOCK:
        if parameter.requires_grad and not _RAISED[key]:
            return no_op  # its user has set it meanwhile, before a checkpoint runs again
        _RAISED[key] += 1
        parameter.requires_grad = True  # the method is refused inside torch.func

    def end() -> None:
        with _LOCK:
            _RAISED[key] -= 1
            parameter.requires_grad = _RAISED[key] > 0

    return end


def no_op() -> None:
    """Undo nothing."""


def undo_all(undo: list[Callable[[], None]]) -> None:
    """Call what undoes changes, the last one first."""
    while undo:
        undo.pop()()


@skip  # where a graph breaks, Dynamo would trace this one, and the next two
def takes_gradient(tensor: torch.Tensor) -> bool:
    """Return whether a tensor whose dtype can takes a gradient: a parameter follows the flag that its user set."""
    parameter = tensor if type(tensor) is Parameter else parameter_of(tensor)
    return parameter is None or (parameter.requires_grad and not (_RAISED and _RAISED.get(id(parameter))))


def _parameter_of_traced(tensor: Any) -> Any:
    return tensor if isinstance(tensor, Parameter) else None


@trace_instead(_parameter_of_traced)
@skip
def parameter_of(tensor: Any) -> torch.nn.Parameter | None:
    """Return the parameter that a tensor is, or stands for; None for any other tensor."""
    # 50 ns: ``type(tensor)`` avoids torch's Python metaclass (0.4 µs); a missing attribute costs as much.
    cls = type(tensor)
    if (cls is Tensor or cls is Parameter) and not tensor.__dict__:
        return tensor if cls is Parameter else None
    parameter = getattr(tensor, "_adprotocol_parameter", tensor)
    return parameter if isinstance(parameter, Parameter) else None


def _trainable_traced(value: torch.Tensor) -> bool | None:
    if not (value.is_floating_point() or value.is_complex()) or getattr(value, "_is_buffer", False):
        return None
    return takes_gradient(value)


@trace_instead(_trainable_traced)
@skip  # where a graph breaks, Dynamo would trace this one
@hookimpl
def trainable(value: torch.Tensor) -> bool | None:
    """Answer by the dtype; a parameter follows its flag, a buffer takes no gradient."""
    if type(value) is Tensor and not value.__dict__:  # neither
        return True if value.is_floating_point() or value.is_complex() else None
    return _trainable_traced(value)


def owners_of(tensors: Sequence[torch.Tensor]) -> list[torch.nn.Parameter | None]:
    """Return for each tensor the parameter that it is, or stands for; nothing where none does."""
    for tensor in tensors:
        if type(tensor) is not Tensor or tensor.__dict__:
            owners = list(map(parameter_of, tensors))
            return [] if set(map(type, owners)) == {type(None)} else owners
    return []  # as `parameter_of` answers, without a call for each


def _identity_traced(value: torch.Tensor) -> int | None:
    return None if parameter_of(value) is None else id(value)


# until torch 2.10: Dynamo fails on ``__dict__`` where a graph has broken around it.
@trace_instead(_identity_traced)
@skip
@hookimpl
def identity(value: torch.Tensor) -> int | None:
    """Return a key that the places of one parameter have in common."""
    if type(value) is Tensor and not value.__dict__:
        return None
    return id(value) if type(value) is Parameter or parameter_of(value) is not None else None


@hookimpl
@run_while_tracing
def is_recording() -> bool:
    """Return whether the tape records, below all levels of torch.func, each of which has a grad mode of its own."""
    return tape_is_on()


@skip  # as trainable
@hookimpl
def freeze(value: torch.Tensor) -> torch.Tensor:
    """Return a constant to replace a parameter that no enclosing call differentiates."""
    parameter = value if type(value) is Parameter else parameter_of(value)
    if parameter is None:
        return value
    is_traced = torch.compiler.is_dynamo_compiling()
    is_lazy = type(parameter) is not Parameter and torch.nn.parameter.is_lazy(parameter)
    # One of inference mode autograd does not save, whatever its flag.
    is_inference = not (is_traced or is_lazy) and value.is_inference()
    if not (is_inference or takes_gradient(parameter)):
        return value
    if is_traced:
        raise refused_in_graph()
    if is_inference:
        with torch.inference_mode(mode=False):
            return stand_for(value.detach().clone(), parameter)
    if id(value) not in LOCAL.calls.current:
        return stand_for(value.detach(), parameter)
    if is_recording():
        return value
    # One with tangents `detach` would cut, and a copy made without gradients keeps.
    return stand_for(value.clone() if in_transform() else value.detach(), parameter)


def refused_in_graph() -> UndecidableError:
    """Return the error for parameters in a gradient that Dynamo traces."""
    return UndecidableError(
        "a call of grad that torch.compile traces was given a module or a parameter to differentiate with respect to, "
        "or to freeze (by where=, or under torch.no_grad); in a graph nothing can stand in its place. "
        f"{remedy('parameters-in-compiled-gradients')}"
    )
