"""Zeros, not None, for an operand that the chosen branch does not use.

PyTorch gives None for the gradient of a tensor that is not in the graph. The graph
of the branch shows which operands those are; each is then connected to the results
through the sum of an empty slice of it. That sum is 0, its gradient is zeros of the
operand's shape, and it never produces a NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from adprotocol.extend import tree_leaves, tree_map
from adprotocol_torch import autograd_graph, dynamo, internals, tracking
from adprotocol_torch.internals import functorch_is_active, never_compile, next_sequence_number

if TYPE_CHECKING:
    from collections.abc import Callable


# As many nodes as are walked, at 0.5 µs each.
_WALKED = 1_000


# Where a graph broke around it, Dynamo would compile its parts, with batches that it warns of.
@never_compile
def run_connected(fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return ``fun(*operands)`` with every tracked operand connected to it."""
    tracked = [leaf for leaf in tree_leaves(operands) if is_float(leaf) and _is_tracked(leaf)]
    if not tracked:
        return fun(*operands)
    is_traced = torch.compiler.is_dynamo_compiling()
    has_graph = not is_traced and not functorch_is_active()
    start = next_sequence_number() if has_graph else 0
    result = fun(*operands)
    results = [leaf for leaf in tree_leaves((result,)) if is_float(leaf)]
    if has_graph and next_sequence_number() - start <= _WALKED:
        unused = _unused(results, tracked, start)
    elif is_traced:
        dynamo.install()
        unused = [tracked[i] for i in dynamo.unused_operands(results, tracked)]
    else:
        # The graph of a torch.func wrapper cannot be read, and a result may be tracked
        # because of what the branch closes over; so all operands are connected. So are
        # those of a long branch.
        unused = tracked
    if not unused:
        return result
    if not results:  # a Python number alone cannot be connected
        like = unused[0]
        result = tree_map(lambda leaf: like.new_tensor(leaf) if type(leaf) is float else leaf, result)
    wraps = any(not leaf.is_nested and internals.is_traceable_wrapper_subclass(leaf) for leaf in (*results, *unused))
    connect = _connect_wrapped if wraps else _connect
    return tree_map(lambda leaf: connect(leaf, unused) if is_float(leaf) and _adds(leaf) else leaf, result)


def _adds(result: torch.Tensor) -> bool:
    """Tell whether PyTorch can subtract a scalar: not from a sparse, nested or 8-bit tensor."""
    return result.layout is torch.strided and not result.is_nested and result.element_size() > 1


def is_float(leaf: Any) -> bool:
    """Tell whether a leaf is a tensor that can carry a derivative."""
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _is_tracked(leaf: torch.Tensor) -> bool:
    if torch.compiler.is_dynamo_compiling():
        return dynamo.within_gradient(leaf)
    if functorch_is_active():
        return tracking.is_tracked(leaf)
    # Not tracking.within_gradient, which raises in a reentrant checkpoint: a concrete predicate is fine there.
    return (leaf.requires_grad and torch.is_grad_enabled()) or tracking.is_dual(leaf)


def _connect(result: torch.Tensor, unused: list[torch.Tensor]) -> torch.Tensor:
    for operand in unused:
        if operand.is_nested:
            continue  # it cannot be sliced
        dense = operand if operand.layout is torch.strided else operand.to_dense()
        empty = dense.reshape(-1)[:0]
        if empty.is_complex() and not result.is_complex():
            empty = empty.real
        # Moved while it is empty: nothing is copied between devices, in the backward pass neither.
        zero = empty.to(device=result.device, dtype=result.dtype).sum()
        # Minus: x - 0 is x for every x, while -0 + 0 is 0.
        result = result - zero
    return result


def _connect_wrapped(result: torch.Tensor, unused: list[torch.Tensor]) -> torch.Tensor:
    return _Connected.apply(result, *unused)  # type: ignore[no-any-return, no-untyped-call]


class _Connected(torch.autograd.Function):
    """Give zeros to operands where tensors are wrapped: a DTensor communicates for a slice, and mixes with no other."""

    generate_vmap_rule = True

    @staticmethod
    def forward(result: torch.Tensor, *_operands: torch.Tensor) -> torch.Tensor:
        return result.view_as(result)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004  (PyTorch's signature)
        ctx.operands = [operand.detach() for operand in inputs[1:]]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, *map(torch.zeros_like, ctx.operands)


def _unused(results: list[torch.Tensor], operands: list[torch.Tensor], start: int) -> list[torch.Tensor]:
    """Return the operands that the graph of the results does not reach.

    Only nodes made since `start` are entered, so the walk is as long as the branch,
    however long the program before it is.
    """
    unused = {id(operand): operand for operand in operands}
    inner = {(autograd_graph.node_of(operand), operand.output_nr): id(operand) for operand in operands}
    for result in results:
        unused.pop(id(result), None)
    for node, output in autograd_graph.walk(results, lambda node: internals.sequence_number(node) >= start):
        unused.pop(inner.get((node, output), 0), None)
        unused.pop(id(autograd_graph.leaf_of(node)), None)
    return list(unused.values())
