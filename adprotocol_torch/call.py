"""The call of a derivative by the engine: what it tracks, in the place of what, and what it must refuse."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol_torch import aliases, autograd_graph, distributed, internals
from adprotocol_torch.checkpoints import CALLS
from adprotocol_torch.internals import next_sequence_number, set_grad_enabled, stand_for
from adprotocol_torch.parameters import LOCAL, Calls, owners_of, raise_flag, undo_all
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_NOT_LAZY = (torch.Tensor, torch.nn.Parameter)
# Loaded with the first function that is compiled for a backward pass.
_COMPILER = "torch._functorch.aot_autograd"


class Call:
    """One call of the hook `vjp` by the engine."""

    # Whether something tracked is not a leaf.
    has_history: bool = False
    # The parameters tracked themselves that a graph holds already.
    held: Sequence[torch.Tensor] = ()
    # Whether outputs and results must be differentiable for a derivative outside of this call, and whether a compiled
    # function made them.
    again: bool = False
    is_compiled: bool = False
    is_second_step: bool = False
    # What a derivative of the results would be by, where there is none.
    sources: Sequence[torch.Tensor] = ()

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        """Begin the call."""
        self.calls: Calls = LOCAL.calls
        self.tensors = tensors
        self.owners: list[torch.nn.Parameter | None] = owners_of(tensors)
        # Whether gradients are on around the call, so that what it returns may be differentiated.
        self.is_differentiable: bool = torch.is_grad_enabled()
        # An entry for each time that this call is under way: now, and while a checkpoint or a pull needs it again, in
        # any thread. The leaves refer to it: while it is empty, nothing needs their gradient.
        self.opened: list[None] = [None]
        CALLS.append(None)
        self.calls.changes.append(self.open)
        # What ends, last first, what has been done for this call.
        self.undo: list[Callable[[], None]] = []
        set_grad_enabled(True)
        # Autocast keeps what it has cast, with its history, until it ends.
        torch.clear_autocast_cache()

    def open(self) -> Callable[[], None]:
        """Let gradients with respect to this call's leaves be needed until the returned function is called."""
        self.opened.append(None)
        return self.opened.pop

    def end(self) -> None:
        """Take back all that was done for this call."""
        set_grad_enabled(self.is_differentiable)
        # Not before: a checkpoint runs parts of the function again for the derivative.
        undo_all(self.undo)
        self.calls.changes.remove(self.open)
        self.opened.pop()
        CALLS.pop()
        torch.clear_autocast_cache()

    def track(self) -> list[torch.Tensor]:
        """Return the tensors to differentiate with respect to, which stand for the parameters among those given."""
        tensors, owners = self.tensors, self.owners
        if owners:
            self.undo.append(distributed.guard(tensors, owners))
        self.tracked: list[torch.Tensor] = list(map(self._tracked, tensors, owners or [None] * len(tensors)))
        tracked = self.tracked
        # Gradient hooks of parameters, each with the place of the leaf that stands for its parameter.
        self.hooks: list[tuple[int, Any]] = []
        if owners:
            self.undo.append(self.calls.replace(tensors, tracked, owners))
            for place, (new, owner) in enumerate(zip(tracked, owners, strict=True)):
                if owner is not None and owner is not new:
                    self.hooks += [(place, hook) for hook in internals.gradient_hooks(owner)]
            self.held = aliases.held(tracked, owners)
        # A function that changes a copy in place changes what the name stands for, not what was given.
        self.inputs: tuple[Any, ...] = tuple(map(autograd_graph.edge_of, tracked) if self.has_history else tracked)
        # The ids of what is tracked.
        self.own: set[int] = set(map(id, tracked))
        self.start: int = next_sequence_number()
        return tracked

    def _tracked(self, tensor: torch.Tensor, owner: torch.nn.Parameter | None) -> torch.Tensor:
        """Return the tensor to differentiate with respect to: a leaf, or a copy of a tensor that is tracked already."""
        if type(tensor) not in _NOT_LAZY and torch.nn.parameter.is_lazy(tensor):
            return tensor  # the function sets its shape
        if tensor.is_inference():
            # Autograd does not see operations on it, whatever its flag.
            new = tensor.detach().clone()
        elif owner is tensor and tensor.is_leaf and id(tensor) not in self.calls.current:
            # Its flag says that it is trained, not that an outer derivative is wanted.
            # It stays in place, with its hooks, for the function may reach it otherwise than by its argument.
            if not tensor.requires_grad:
                self.undo.append(self.calls.change(functools.partial(raise_flag, owner)))
            return tensor
        elif tensor.requires_grad and self.is_differentiable:
            # A copy, for the function may change it in place. No view: a compiled function saves views without
            # their history, so that a second derivative would be lost where it is refused otherwise.
            self.has_history = True
            new = tensor.clone()
        else:
            new = tensor.detach()
        if owner is not None:
            new = stand_for(new, owner)
        elif tensor.__dict__:  # of a stand-in
            new.__dict__.update({**tensor.__dict__, **new.__dict__})
            new.__dict__.pop("_adprotocol_opened", None)
        return new if new.requires_grad else new.requires_grad_()

    def sign(self) -> None:
        """Note on this call's leaves, which the graph of its results keeps, whether it is under way.

        Only for a result that is differentiable, since to set an attribute of a tensor takes 2 µs.
        """
        for leaf, tensor in zip(self.tracked, self.tensors, strict=True):
            if leaf is not tensor and leaf.is_leaf:
                leaf._adprotocol_opened = self.opened  # type: ignore[attr-defined]  # noqa: SLF001  (the plugin's own)

    def is_other(self, leaf: torch.Tensor) -> bool:
        """Return whether another call may differentiate with respect to a leaf."""
        if id(leaf) in self.own or not leaf.requires_grad:  # that of a call that is over, whose flag is off again
            return False
        opened = getattr(leaf, "_adprotocol_opened", None)  # of an inner call; those around this one have noted nothing
        return opened is None or len(opened) > 0

    def search(self, outputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
        """Walk the graph of tracked outputs, refuse what the engine gets wrong, and find what else is to be known."""
        graph = autograd_graph.Graph()
        if outputs:
            self._search_outputs(outputs, graph)
        if self.is_differentiable:
            if results and not self.has_history:
                graph.walk(results)
            # A leaf with a history, or something closed over.
            self.again = len(outputs) + len(results) > 0 if self.has_history else any(map(self.is_other, graph.leaves))
            if (self.has_history or self.owners) and self.calls.changes[0] == self.open:  # in no other call
                if self.has_history:
                    self.is_second_step = aliases.is_second_step(self.tensors, *self.calls.last)
                elif not self.again:
                    own = [leaf for leaf, owner in zip(self.tracked, self.owners, strict=True) if leaf is owner]
                    self.calls.last = self.start, [(weakref.ref(leaf), internals.version_of(leaf)) for leaf in own]
        if outputs and _COMPILER in sys.modules:
            self.is_compiled = len(graph.of("CompiledFunctionBackward")) > 0
        if self.again and self.is_compiled:
            self.sources = [*graph.leaves, *[tensor for tensor in self.tensors if tensor.requires_grad]]

    def _search_outputs(self, outputs: Sequence[torch.Tensor], graph: autograd_graph.Graph) -> None:
        asks_leaves = self.is_differentiable and not self.has_history
        if not (asks_leaves or self.owners or _COMPILER in sys.modules):
            return
        ends: set[Any] = set()
        if self.has_history:
            ends = {end.node for end in self.inputs if not isinstance(end, torch.Tensor)}
            ends |= {tensor.grad_fn for tensor in self.tensors if self.owners and tensor.grad_fn is not None}
        graph.walk(outputs, ends)
        if _COMPILER in sys.modules and (
            graph.of("CompiledFunctionBackwardBackward")
            or (self.has_history and any(node.refusal is refused_second for node in graph.of("RefusingBackward")))
        ):
            # PyTorch does not always raise: the node of that derivative is connected only to arguments that were
            # saved unchanged, so the rest would silently be zero.
            raise refused_second()
        triples = zip(self.tensors, self.owners, self.tracked, strict=True) if self.owners else ()
        pairs = [(tensor, owner) for tensor, owner, new in triples if owner is not None and owner is not new]
        if pairs:
            aliases.refuse_references(graph, outputs, [item for pair in pairs for item in pair], self.start)
        if self.held:
            aliases.refuse_history(graph, self.held, ends, self.start)

    def detached(self, leaf: Any) -> Any:
        """Return a result without what this call tracked; a leaf of others as it is."""
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and (not leaf.is_leaf or id(leaf) in self.own):
            return leaf.detach()
        return leaf


def refused_second() -> UndecidableError:
    """Return the error for a second derivative through a compiled function."""
    return UndecidableError(
        "PyTorch cannot differentiate the derivative of a function compiled by torch.compile, nor again the function "
        f"that has been differentiated. {remedy('second-derivative-of-compiled')}"
    )
