"""Zeros, not None, for an operand that the chosen branch does not use.

PyTorch gives None for the gradient of a tensor that is not in the graph. The graph
of the branch shows which operands those are; each is then connected to the results
through the sum of an empty slice of it. That sum is 0, its gradient is zeros of the
operand's shape, and it never produces a NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

from adprotocol.extend import trace_instead, tree_leaves, tree_map
from adprotocol_torch import autograd_graph, dynamo, internals, tracking
from adprotocol_torch.internals import functorch_is_active, next_sequence_number, skip
from adprotocol_torch.tensors import has_strides

if TYPE_CHECKING:
    from collections.abc import Callable

is_grad_enabled: Callable[[], bool] = torch.is_grad_enabled
# As many nodes as are walked, at 0.5 µs each.
_WALKED = 1_000


def _run_traced(fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    tracked = [leaf for leaf in dynamo.tracked(tree_leaves(operands)) if dynamo.within_gradient(leaf)]
    result = fun(*operands)
    if not tracked:
        return result
    dynamo.install()
    results = [leaf for leaf in tree_leaves((result,)) if is_float(leaf)]
    unused = [tracked[i] for i in dynamo.unused_operands(results, tracked)]
    return _connected(result, unused) if len(unused) > 0 else result


# Where a graph broke around it, Dynamo would compile its parts, with batches that it warns of.
@trace_instead(_run_traced)
@skip
def run_connected(fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return ``fun(*operands)`` with every tracked operand connected to it."""
    has_levels = functorch_is_active()
    tracked: list[torch.Tensor] = []
    if has_levels or forward_ad._current_level >= 0:  # noqa: SLF001
        tracked = _tracked(operands)
    elif is_grad_enabled():
        for operand in operands:
            if type(operand) is not torch.Tensor:
                tracked += [leaf for leaf in _tensors(operand) if leaf.requires_grad]
            elif operand.requires_grad:
                tracked.append(operand)
    if not tracked:
        return fun(*operands)
    start = next_sequence_number()
    result = fun(*operands)
    if result is tracked[0] and len(tracked) == 1:
        return result
    # The graph of a torch.func wrapper cannot be read, and a result may be tracked because of what the branch closes
    # over; so all operands are connected. So are those of a long branch.
    if not has_levels and next_sequence_number() - start <= _WALKED:
        results = (result,) if type(result) is torch.Tensor else _tensors(result)
        tracked = autograd_graph.unreached(results, tracked, start)
    return _connected(result, tracked) if tracked else result


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves((value,)) if isinstance(leaf, torch.Tensor)]


def _tracked(operands: tuple[Any, ...]) -> list[torch.Tensor]:
    if functorch_is_active():
        return [leaf for leaf in tree_leaves(operands) if is_float(leaf) and tracking.is_tracked(leaf)]
    return [leaf for leaf in tree_leaves(operands) if is_float(leaf) and (_has_flag(leaf) or tracking.is_dual(leaf))]


def _has_flag(leaf: torch.Tensor) -> bool:
    # Not tracking.within_gradient, which raises in a reentrant checkpoint: a concrete predicate is fine there.
    return leaf.requires_grad and is_grad_enabled()


def _connected(result: Any, unused: list[torch.Tensor]) -> Any:
    results = list(filter(is_float, _tensors(result)))
    if not results:  # a Python number alone cannot be connected
        like = unused[0]
        result = tree_map(lambda leaf: like.new_tensor(leaf) if type(leaf) is float else leaf, result)
    wraps = any(leaf.is_nested or internals.is_traceable_wrapper_subclass(leaf) for leaf in (*results, *unused))

    # A tensor of the older layout of nested ones has no sizes, which a Function needs.
    unused = [operand for operand in unused if not _has_no_sizes(operand)]

    def connect(leaf: Any) -> Any:
        if not is_float(leaf) or _has_no_sizes(leaf):
            return leaf
        return _connect_wrapped(leaf, unused) if wraps or not _adds(leaf) else _connect(leaf, unused)

    return tree_map(connect, result)


def _has_no_sizes(tensor: torch.Tensor) -> bool:
    return tensor.is_nested and tensor.layout is torch.strided


def _adds(result: torch.Tensor) -> bool:
    """Tell whether PyTorch can subtract a scalar: not from a sparse, nested or 8-bit tensor."""
    return has_strides(result) and result.element_size() > 1


def is_float(leaf: Any) -> bool:
    """Tell whether a leaf is a tensor that can carry a derivative."""
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def _connect(result: torch.Tensor, unused: list[torch.Tensor]) -> torch.Tensor:
    for operand in unused:
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
    """Give zeros to operands where nothing can be subtracted.

    A DTensor communicates for a slice, and mixes with no other; a nested tensor has no slice; to a sparse or 8-bit
    result PyTorch adds nothing.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(result: torch.Tensor, *_operands: torch.Tensor) -> torch.Tensor:
        return result.view_as(result) if has_strides(result) else result.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004  (PyTorch's signature)
        ctx.operands = [operand.detach() for operand in inputs[1:]]

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient, *map(torch.zeros_like, ctx.operands)
