"""Value and gradient with PyTorch: the autograd engine in eager mode, torch.func in transformations and graphs.

The engine saves and computes what the hand-written ``torch.autograd.grad`` does
and no more. torch.func always builds the graph of the gradient as well, so it
serves only where the engine cannot: inside a transformation of torch.func,
where tensors are dual, and in a graph that Dynamo traces.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import check_output, map_aux, partition_aux
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import aliases, autograd_graph, distributed, functorch_gradient, internals
from adprotocol_torch.checkpoints import FIRST_PASSES, refuse_reentrant
from adprotocol_torch.internals import memory_of, next_sequence_number, run_engine, set_grad_enabled, skip, storage_of
from adprotocol_torch.parameters import LOCAL, owners_of, stand_for
from adprotocol_torch.tensors import laid_out, remedy, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_STRIDED = torch.strided
_MANY_THREADS = contextlib.nullcontext()
_NOT_LAZY = (torch.Tensor, torch.nn.Parameter)
# Loaded with the first function that is compiled for a backward pass.
_COMPILER = "torch._functorch.aot_autograd"


class _Call:
    """One call of `value_and_grad`, to which its leaves may refer; once it is over, nothing needs their gradient."""

    __slots__ = (
        *("calls", "has_history", "held", "inputs", "is_differentiable", "is_over", "own", "owners", "passes", "start"),
        *("tensors", "tracked", "undo", "was_enabled"),
    )

    def __init__(self, tensors: list[torch.Tensor], *, is_differentiable: bool) -> None:
        """Begin the call."""
        self.calls = calls = LOCAL.calls
        self.tensors = tensors
        self.owners = owners_of(tensors)
        self.is_differentiable = is_differentiable
        # Whether something tracked is no leaf.
        self.has_history = False
        # What ends, last first, what has been done for this call.
        self.undo: list[Callable[[], None]] = []
        self.is_over = False
        calls.changes.append(self.open)
        self.was_enabled = torch.is_grad_enabled()
        set_grad_enabled(True)
        # Autocast keeps what it has cast, with its history, until it ends.
        torch.clear_autocast_cache()

    def open(self) -> Callable[[], None]:
        """Let gradients with respect to this call's leaves be needed until the returned function is called."""
        before, self.is_over = self.is_over, False

        def close() -> None:
            self.is_over = before

        return close

    def end(self) -> None:
        """Take back all that was done for this call."""
        set_grad_enabled(self.was_enabled)
        # Not before: a checkpoint runs parts of the function again for the derivative.
        for leave in reversed(self.undo):
            leave()
        self.is_over = True
        self.calls.changes.remove(self.open)
        torch.clear_autocast_cache()

    def track(self) -> list[torch.Tensor]:
        """Return the tensors to differentiate with respect to, which stand for the parameters among those given."""
        tensors, owners = self.tensors, self.owners
        if owners:
            self.undo.append(distributed.guard(tensors, owners))
        self.tracked = tracked = list(map(self._tracked, tensors, owners or [None] * len(tensors)))
        if owners:
            self.undo.append(self.calls.replace(tensors, tracked, owners))
        # A function that changes a copy in place changes what the name stands for, not what was given.
        self.inputs: list[Any] = list(map(autograd_graph.edge_of, tracked)) if self.has_history else tracked.copy()
        self.held = aliases.held(tracked, owners) if owners else []
        # The ids of what is tracked.
        self.own = set(map(id, tracked))
        self.start, self.passes = next_sequence_number(), FIRST_PASSES.begun
        return tracked

    def _tracked(self, tensor: torch.Tensor, owner: torch.Tensor | None) -> torch.Tensor:
        """Return the tensor to differentiate with respect to: a leaf, or a copy of a tensor that is tracked already."""
        if type(tensor) not in _NOT_LAZY and torch.nn.parameter.is_lazy(tensor):
            return tensor  # the function sets its shape
        if tensor.is_inference():
            # Autograd does not see operations on it, whatever its flag.
            new = tensor.detach().clone()
        elif not tensor.requires_grad:
            new = tensor.detach()
        elif owner is tensor and tensor.is_leaf and not self.calls.is_differentiated(tensor):
            # Its flag says that it is trained, not that an outer derivative is wanted.
            # It stays in place, with its hooks.
            return tensor
        elif self.is_differentiable:
            # A copy, for the function may change it in place. No view: a compiled function saves views without
            # their history, so that a second derivative would be lost where it is refused otherwise.
            self.has_history = True
            new = tensor.clone()
        else:
            new = tensor.detach()
        if owner is None:
            return new if new.requires_grad else new.requires_grad_()
        new = stand_for(new, owner)
        new = new if new.requires_grad else new.requires_grad_()
        # An outer derivative through a copy runs them once, where it reaches what the outer call tracks.
        handles = [new.register_hook(hook) for hook in internals.gradient_hooks(owner)]
        self.undo += [handle.remove for handle in handles if not new.is_leaf]
        return new

    def sign(self, tracked: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
        """Note this call on its leaves, which the graph of its results keeps: once it is over, nobody needs them.

        Only then, for an attribute of a tensor costs a small gradient 2 µs.
        """
        for leaf, tensor in zip(tracked, tensors, strict=True):
            if leaf is not tensor and leaf.is_leaf:
                leaf._adprotocol_call = self  # type: ignore[attr-defined]  # noqa: SLF001  (the plugin's own)

    def is_other(self, leaf: torch.Tensor) -> bool:
        """Return whether another call may differentiate with respect to a leaf."""
        if id(leaf) in self.own:
            return False
        call = getattr(leaf, "_adprotocol_call", None)  # of an inner call; those around this one have noted nothing
        return call is None or not call.is_over

    def search(self, value: torch.Tensor, graph: autograd_graph.Graph) -> None:
        """Walk the graph of the value, if need be, and refuse what the engine gets wrong."""
        owners, has_passes = self.owners, FIRST_PASSES.begun != self.passes
        asks_leaves = self.is_differentiable and not self.has_history
        if not (asks_leaves or owners or has_passes or _COMPILER in sys.modules):
            return
        ends: set[Any] = set()
        if self.has_history:
            ends = {end.node for end in self.inputs if not isinstance(end, torch.Tensor)}
            ends |= {tensor.grad_fn for tensor in self.tensors if owners and tensor.grad_fn is not None}
        graph.walk((value,), ends)
        if has_passes:
            refuse_reentrant(graph)
        if _COMPILER in sys.modules and (
            graph.has("CompiledFunctionBackwardBackward") or (self.has_history and graph.has("_LastBackward"))
        ):
            # PyTorch does not always raise: the node of that derivative is connected only to arguments that were
            # saved unchanged, so the rest would silently be zero.
            raise _refused_second()
        triples = zip(self.tensors, owners, self.tracked, strict=True) if owners else ()
        pairs = [(tensor, owner) for tensor, owner, new in triples if owner is not None and owner is not new]
        if pairs:
            aliases.refuse_references(graph, value, [item for pair in pairs for item in pair], self.start)
        if self.held:
            aliases.refuse_history(graph, self.held, ends, self.start)

    def last(self, leaf: Any, sources: list[torch.Tensor]) -> Any:
        """Return a result of which PyTorch has no derivative after that of the value; a leaf of others as it is."""
        return leaf if self.detached(leaf) is leaf else _Last.apply(sources, leaf.detach(), *sources)[0]  # type: ignore[no-untyped-call]

    def detached(self, leaf: Any) -> Any:
        """Return a result without what this call tracked; a leaf of others as it is."""
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and (not leaf.is_leaf or id(leaf) in self.own):
            return leaf.detach()
        return leaf


@hookimpl
def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return the value of ``fun(leaves)``, its auxiliary output, and the gradient for each leaf."""
    tensors = [leaf if isinstance(leaf, torch.Tensor) else tensor_of(leaf) for leaf in leaves]
    if torch.compiler.is_dynamo_compiling() or internals.in_transform():
        return functorch_gradient.value_and_grad(fun, tensors)
    is_differentiable = torch.is_grad_enabled()
    if not torch.is_inference_mode_enabled():
        return _by_engine(fun, tensors, is_differentiable=is_differentiable)
    with torch.inference_mode(mode=False):
        return _by_engine(fun, tensors, is_differentiable=is_differentiable)


# Dynamo would compile it as a function of its own where a graph broke around it.
@skip
def _by_engine(
    fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor], *, is_differentiable: bool
) -> tuple[Any, Any, list[Any]]:
    call = _Call(tensors, is_differentiable=is_differentiable)
    try:
        tracked = call.track()
        # The thread that the engine has for a GPU numbers the nodes of inner gradients by itself (`aliases`).
        with torch.autograd.set_multithreading_enabled(False) if call.owners else _MANY_THREADS:
            value, aux = fun(tracked)
        if not (isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() == 0):
            check_output(value, value)
            if not isinstance(value, torch.Tensor):
                functorch_gradient.refuse_number(value, call.start)
        is_tracked = isinstance(value, torch.Tensor) and value.requires_grad
        if isinstance(value, torch.Tensor) and not is_tracked:
            functorch_gradient.warn_independent()
        graph = autograd_graph.Graph()
        if is_tracked:
            call.search(value, graph)
        results = [] if aux is None else [leaf for leaf in partition_aux(aux, torch.Tensor)[1] if leaf.requires_grad]
        # The results must be differentiable themselves if anything outside this call
        # may need it: a leaf with a history, or something closed over.
        again = is_differentiable and (is_tracked or len(results) > 0)
        if again and not call.has_history:
            if results:
                graph.walk(results)
            again = any(map(call.is_other, graph.leaves))
        # The derivative of a compiled function has none, so no graph of it is made, in which PyTorch may raise.
        is_last = again and is_tracked and _COMPILER in sys.modules and graph.has("CompiledFunctionBackward")
        gradients: list[Any] = [None] * len(tracked)
        if is_tracked:
            gradients = list(run_engine(value, torch.ones_like(value), call.inputs, create_graph=again and not is_last))
        gradients = _completed(gradients, tracked)
    finally:
        call.end()
    if is_last:
        sources = [*graph.leaves, *(tensor for tensor in tensors if tensor.requires_grad)]
        value, *gradients = _Last.apply(sources, value.detach(), *gradients, *sources)  # type: ignore[no-untyped-call]
        aux = None if aux is None else map_aux(lambda leaf: call.last(leaf, sources), aux)
    del graph
    if again:
        call.sign(tracked, tensors)
    else:
        del results
        value, aux = call.detached(value), None if aux is None else map_aux(call.detached, aux)
    return value, aux, gradients


class _Last(torch.autograd.Function):
    """Pass on results of a call that differentiated a compiled function, and refuse a derivative of them."""

    @staticmethod
    def forward(ctx: Any, sources: list[torch.Tensor], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the results among the tensors, connected to the sources behind them as PyTorch would connect them."""
        ctx.count = len(tensors)
        ctx.set_materialize_grads(False)
        return tuple([result.detach() for result in tensors[: len(tensors) - len(sources)]])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        """Refuse a derivative that is not zero, as it is behind a sign or a comparison."""
        if any(cotangent is not None and bool((cotangent != 0).any()) for cotangent in cotangents):
            raise _refused_second()
        return (None,) * (1 + ctx.count)


def _refused_second() -> UndecidableError:
    return UndecidableError(
        "PyTorch cannot differentiate the derivative of a function compiled by torch.compile, nor again the function "
        f"that has been differentiated. {remedy('second-derivative-of-compiled')}"
    )


def _completed(gradients: list[Any], tracked: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return gradients with zeros for None, each in the memory format of its leaf and in memory of its own."""
    for i, leaf in enumerate(tracked):
        gradient = gradients[i]
        if gradient is None:
            gradients[i] = torch.zeros_like(leaf)
        # The usual ones need no call.
        elif not (gradient.layout is leaf.layout is _STRIDED and gradient.is_contiguous() and leaf.is_contiguous()):
            gradients[i] = laid_out(gradient, leaf)
    return _separate(gradients) if len(gradients) > 1 else gradients


def _separate(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
    """Copy gradients that share memory: the terms of a sum do, and clipping writes in place."""
    seen: set[int] = set()
    for i, gradient in enumerate(gradients):
        # Of the usual ones the key of their storage will do, in 0.3 µs.
        is_plain = type(gradient) is torch.Tensor and gradient.layout is _STRIDED
        key = storage_of(gradient) if is_plain else memory_of(gradient)
        if key in seen:
            gradients[i] = gradient.clone()
        seen.add(key)
    return gradients
