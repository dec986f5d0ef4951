"""Parameters: which tensor stands for which, in the calls of `adprotocol.value_and_grad` under way.

A parameter's own flag says that it is trained, not that a derivative with respect to
it is wanted now. An enclosing call may want one: to that call the parameter is a
variable, even where the inner call freezes it or differentiates with respect to it
again. The tensor that a call substitutes for a parameter, tracked or frozen, stands
for that parameter in inner calls: it has the parameter's flag, and is one leaf at all
its places.

Each thread has one `Calls`, in which a call notes what it substitutes, and takes it
back at its end, after an exception too; so calls nest.

- Another thread knows nothing of it, as with PyTorch's own modes. What lies in the
  objects themselves it sees: the parameter that a tensor stands for, a flag that is
  set, the tensors in a module. It is told of a set flag (`Calls.takes_gradient`), and refused a
  module that holds tensors of others (`Calls.use`).
- The child of a fork goes on with the calls of the thread that forked. Those of other
  threads never end there: what they have lifted stays lifted, and the modules that
  they have filled stay refused.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.extend import run_while_tracing, trace_instead
from adprotocol.hookspecs import hookimpl
from adprotocol_torch.internals import in_transform, skip, tape_is_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    # Makes a change, and returns what undoes it.
    Change = Callable[[], Callable[[], None]]


class _Process:
    """What the threads of the process must know of each other."""

    def __init__(self) -> None:
        self.renew_lock()
        # For each call under way those of its thread; and whether there is one, as a bool that a compiler can guard on.
        self.active: list[Calls] = []
        self.inside = False
        # How many threads train a parameter against its flag, by id.
        self.lifted: Counter[int] = Counter()

    def renew_lock(self) -> None:
        """Forget a lock that is held by a thread which the child of a fork has not."""
        self.lock = threading.Lock()


# An instance: older releases of PyTorch do not guard on what a class holds.
_PROCESS = _Process()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_PROCESS.renew_lock)


class _Substitutes(dict[int, torch.Tensor]):
    """Tensors by the ids of those in whose place they are, which are kept, so that no id is given to another."""

    given: Sequence[torch.Tensor] = ()


class Calls:
    """The calls under way in one thread."""

    def __init__(self) -> None:
        # By id, what stands for a parameter now: of the parameter, of what was given for it, and of what stands for it.
        self.current: _Substitutes = _Substitutes()
        # The modules in use, and the ids of the submodules among them in which there are other tensors.
        self.used: list[torch.nn.Module] = []
        self.filled: set[int] = set()
        # What the calls under way have changed, as functions that change it anew and return how to undo that.
        self.changes: list[Change] = []

    def change(self, change: Change) -> Callable[[], None]:
        """Make a change until the returned function is called, and again while a checkpoint runs its function again."""
        undo = change()
        self.changes.append(change)

        def end() -> None:
            self.changes.remove(change)
            undo()

        return end

    def renewal(self) -> Change | None:
        """Return what makes the changes of the calls now under way again, after the end of these; None for none."""
        changes, current = tuple(self.changes), self.current
        if not (changes or current):
            return None

        def renew() -> Callable[[], None]:
            undo = [here().set_current(current), *[change() for change in changes]]

            def end() -> None:
                for restore in reversed(undo):
                    restore()

            return end

        return renew

    def substitute(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return what a call differentiates with respect to in the place of a tensor, or the tensor itself."""
        return self.current.get(id(tensor), tensor)

    def is_variable(self, tensor: torch.Tensor) -> bool:
        """Tell whether a call differentiates with respect to a tensor; in a graph, whether one may."""
        return id(tensor) in self.current

    def takes_gradient(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor whose dtype can takes a gradient: a parameter follows the flag that its user set."""
        parameter = tensor if type(tensor) is torch.nn.Parameter else parameter_of(tensor)
        return parameter is None or (parameter.requires_grad and id(parameter) not in _PROCESS.lifted)

    def lift(self, leaves: Sequence[torch.Tensor]) -> Callable[[], None]:
        """Set the flag of the parameters among the leaves, until the returned function is called.

        So each stays in its place, and counts wherever the function reaches it.
        """
        counts = _PROCESS.lifted
        parameters = [
            leaf
            for leaf in leaves
            if isinstance(leaf, torch.nn.Parameter)
            and not (leaf.requires_grad and id(leaf) not in counts)
            and not (leaf.is_inference() or self.is_variable(leaf) or torch.nn.parameter.is_lazy(leaf))
        ]
        return self.change(lambda: _lift(parameters)) if parameters else nothing

    def replace(
        self, leaves: Sequence[torch.Tensor], tracked: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]
    ) -> Callable[[], None]:
        """Note what is tracked in the place of the leaves that stand for parameters, their `owners`."""
        current = _Substitutes(self.current)
        current.given = [*self.current.given, *leaves]
        for leaf, new, owner in zip(leaves, tracked, owners, strict=True):
            if owner is not None:
                current[id(new)] = new
                if leaf is not new:
                    current[id(leaf)] = new
                if new is not owner:
                    current[id(owner)] = new
                    new._adprotocol_parameter = owner  # type: ignore[attr-defined]  # noqa: SLF001  (the plugin's own)
        return self.set_current(current)

    def set_current(self, current: _Substitutes) -> Callable[[], None]:
        """Let tensors stand for parameters, by id, until the returned function is called."""
        before = self.current
        self.current = current
        with _PROCESS.lock:
            self._begin()

        def put_back() -> None:
            self.current = before
            with _PROCESS.lock:
                self._end()

        return put_back

    def use(self, module: torch.nn.Module, changed: Iterable[torch.nn.Module]) -> Callable[[], None] | None:
        """Note that a call puts other tensors into submodules of a module; None if another thread uses these."""
        owners = set(map(id, changed))
        with _PROCESS.lock:
            others = [calls for calls in _PROCESS.active if calls is not self]
            if others:
                filled = set().union(*[calls.filled for calls in others])
                if filled and any(id(part) in filled for part in module.modules()):
                    return None
                used = [other for calls in others for other in calls.used] if owners else []
                if any(id(part) in owners for other in used for part in other.modules()):
                    return None
            added = owners - self.filled
            self.filled |= added
            self.used.append(module)
            self._begin()

        def leave() -> None:
            with _PROCESS.lock:
                self.filled -= added
                self.used.remove(module)
                self._end()

        return leave

    def filled_elsewhere(self) -> set[int]:
        """Return the ids of the submodules that hold tensors of other threads' calls."""
        if not _PROCESS.inside:
            return set()
        return set().union(*[calls.filled for calls in list(_PROCESS.active) if calls is not self])

    def _begin(self) -> None:
        _PROCESS.active.append(self)
        _PROCESS.inside = True

    def _end(self) -> None:
        _PROCESS.active.remove(self)
        _PROCESS.inside = bool(_PROCESS.active)


def _lift(parameters: list[torch.nn.Parameter]) -> Callable[[], None]:
    counts = _PROCESS.lifted
    with _PROCESS.lock:
        # Not those whose flag the user has set since.
        lifted = [parameter for parameter in parameters if not parameter.requires_grad or id(parameter) in counts]
        counts.update(map(id, lifted))
        for parameter in lifted:
            parameter.requires_grad_()

    def lower() -> None:
        with _PROCESS.lock:
            counts.subtract(map(id, lifted))
            for parameter in lifted:
                if not counts[id(parameter)]:
                    del counts[id(parameter)]
                    parameter.requires_grad_(False)  # noqa: FBT003  (the one parameter has other names in other versions)

    return lower


class _InGraph(Calls):
    """What holds in a graph, where the differentiated tensor is not the parameter itself."""

    def substitute(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor

    def is_variable(self, tensor: torch.Tensor) -> bool:  # noqa: ARG002
        return _PROCESS.inside

    def takes_gradient(self, tensor: torch.Tensor) -> bool:
        parameter = parameter_of(tensor)
        return parameter is None or parameter.requires_grad

    def replace(self, leaves: Any, tracked: Any, owners: Any) -> Callable[[], None]:  # noqa: ARG002
        return nothing

    def filled_elsewhere(self) -> set[int]:
        return set()


class _Local(threading.local):
    def __init__(self) -> None:
        self.calls: Calls = Calls()


LOCAL = _Local()
_IN_GRAPH = _InGraph()


def nothing() -> None:
    """Undo nothing."""


def _here_traced() -> Calls:
    return _IN_GRAPH


@trace_instead(_here_traced)
@skip
def here() -> Calls:
    """Return the calls of this thread."""
    return LOCAL.calls


def _parameter_of_traced(tensor: Any) -> Any:
    return tensor if isinstance(tensor, torch.nn.Parameter) else None


# Where a graph breaks, Dynamo would trace this one.
@trace_instead(_parameter_of_traced)
@skip
def parameter_of(tensor: Any) -> torch.nn.Parameter | None:
    """Return the parameter that a tensor is, or stands for; None for any other tensor."""
    # 50 ns: to ask a plain tensor for its class runs a metaclass in Python, 0.4 µs; so long takes a missing attribute.
    cls = type(tensor)
    if (cls is torch.Tensor or cls is torch.nn.Parameter) and not tensor.__dict__:
        return tensor if cls is torch.nn.Parameter else None
    parameter = getattr(tensor, "_adprotocol_parameter", tensor)
    return parameter if isinstance(parameter, torch.nn.Parameter) else None


def owners_of(tensors: Sequence[torch.Tensor]) -> list[torch.nn.Parameter | None]:
    """Return for each tensor the parameter that it is, or stands for; nothing where none does."""
    for tensor in tensors:
        if type(tensor) is not torch.Tensor or tensor.__dict__:
            owners = list(map(parameter_of, tensors))
            return [] if set(map(type, owners)) == {type(None)} else owners
    return []  # as `parameter_of` answers, without a call for each


def _identity_traced(value: torch.Tensor) -> int | None:
    return id(value) if type(value) is torch.nn.Parameter or parameter_of(value) is not None else None


@trace_instead(_identity_traced)
@skip  # as parameter_of
@hookimpl
def identity(value: torch.Tensor) -> int | None:
    """Return a key that the places of one parameter have in common."""
    if type(value) is torch.nn.Parameter:
        return id(value)
    if type(value) is torch.Tensor and not value.__dict__:
        return None
    return _identity_traced(value)


@hookimpl
@run_while_tracing
def is_recording() -> bool:
    """Tell whether the tape records, below all levels of torch.func, each of which has a grad mode of its own."""
    return tape_is_on()


@hookimpl
def freeze(value: torch.Tensor) -> torch.Tensor:
    """Return a constant to replace a parameter that no enclosing call differentiates."""
    parameter = parameter_of(value)
    if parameter is None or not parameter.requires_grad:
        return value
    if here().is_variable(value) and is_recording():
        return value
    if not torch.compiler.is_dynamo_compiling() and torch.nn.parameter.is_lazy(value):
        # The function sets its shape; with that it is put back.
        lazy: Any = torch.nn.parameter.UninitializedParameter
        substitute = lazy(requires_grad=False, device=value.device, dtype=value.dtype)
        substitute._adprotocol_parameter = parameter  # noqa: SLF001  (as below)
        return substitute  # type: ignore[no-any-return]
    # A variable in a transformation may have tangents, which `detach` cuts and a copy made without gradients keeps.
    has_levels = in_transform() and here().is_variable(value)
    constant = value.clone() if has_levels else value.detach()
    if not torch.compiler.is_dynamo_compiling():
        constant._adprotocol_parameter = parameter  # type: ignore[attr-defined]  # noqa: SLF001  (the plugin's own)
    return constant
