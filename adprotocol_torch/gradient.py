"""Value and gradient with PyTorch: its engine in eager mode, torch.func inside transformations and graphs.

The engine saves and computes what the hand-written ``torch.autograd.grad`` does
and no more. torch.func always builds the graph of the gradient as well, so it
serves only where the engine cannot: inside a transformation of torch.func,
where tensors are dual, and in a graph that Dynamo traces.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import OutputError
from adprotocol.extend import check_output, tree_map
from adprotocol_torch.internals import forward_ad, functorch_is_active, next_sequence_number

if TYPE_CHECKING:
    from collections.abc import Callable


class _Enclosing(threading.local):
    """The parameters with respect to which calls under way in this thread differentiate, by id."""

    def __init__(self) -> None:
        self.parameters: frozenset[int] = frozenset()


_ENCLOSING = _Enclosing()


def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return the value of ``fun(leaves)``, its auxiliary output, and the gradient for each leaf."""
    tensors = [_tensor(leaf) for leaf in leaves]
    if torch.compiler.is_dynamo_compiling() or functorch_is_active() or forward_ad._current_level >= 0:  # noqa: SLF001
        return _by_functorch(fun, tensors)
    return _by_engine(fun, tensors)


def _by_engine(fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]) -> tuple[Any, Any, list[Any]]:
    differentiable = torch.is_grad_enabled()
    enclosing = _ENCLOSING.parameters
    mine = frozenset(id(tensor) for tensor in tensors if isinstance(tensor, torch.nn.Parameter))
    with torch.inference_mode(mode=False), torch.enable_grad():
        tracked = [_tracked(tensor, differentiable=differentiable, enclosing=enclosing) for tensor in tensors]
        _ENCLOSING.parameters = enclosing | mine
        start = next_sequence_number()
        try:
            value, aux = fun(tracked)
        finally:
            _ENCLOSING.parameters = enclosing
        check_output(value, value)
        if not isinstance(value, torch.Tensor):
            _refuse_number(value, start)
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            return value, aux, [torch.zeros_like(tensor) for tensor in tensors]
        # The result is to be differentiable itself if anything outside of this
        # call may ask for it: a leaf with a history, or something closed over.
        again = differentiable and _reaches_others(value, tracked)
        gradients = torch.autograd.grad(value, tracked, create_graph=again, allow_unused=True, materialize_grads=True)
    if again:
        return value, aux, list(gradients)
    return value.detach(), tree_map(_detached, aux), list(gradients)


def _tensor(leaf: Any) -> torch.Tensor:
    """Return a leaf as a tensor.

    A Python float becomes a float64 scalar: it keeps its digits, and beside a
    float32 tensor with dimensions the result is float32, as with the float.
    """
    if isinstance(leaf, torch.Tensor):
        return leaf
    if isinstance(leaf, (float, complex)):
        return torch.tensor(leaf, dtype=torch.float64 if isinstance(leaf, float) else torch.complex128)
    return torch.as_tensor(leaf)


def _tracked(tensor: torch.Tensor, *, differentiable: bool, enclosing: frozenset[int]) -> torch.Tensor:
    """Return the tensor to differentiate with respect to: a leaf, or an alias of what is tracked already."""
    if tensor.requires_grad:
        if _is_own_leaf(tensor, enclosing):
            # Its flag says that it is trained, not that an outer derivative is
            # wanted. It stays in place, with its hooks.
            return tensor
        if differentiable:
            return tensor.view_as(tensor)
    detached = tensor.detach()
    return (detached.clone() if detached.is_inference() else detached).requires_grad_()


def _is_own_leaf(tensor: torch.Tensor, enclosing: frozenset[int]) -> bool:
    return isinstance(tensor, torch.nn.Parameter) and tensor.is_leaf and id(tensor) not in enclosing


def _reaches_others(value: torch.Tensor, tracked: list[torch.Tensor]) -> bool:
    """Tell whether the graph of `value` has an end that is not one of the tracked leaves.

    Walks the graph, 0.5 µs a node.
    """
    if any(not tensor.is_leaf for tensor in tracked):
        return True
    mine = {id(tensor) for tensor in tracked}
    stack: list[Any] = [value.grad_fn]
    seen: set[Any] = {None}
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        following = node.next_functions
        if following:
            stack += [parent for parent, _ in following]
        else:
            # AccumulateGrad is the one node without a next one that has a variable.
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in mine:
                return True
    return False


def _refuse_number(value: Any, start: int) -> None:
    """Refuse a Python number that was computed with tracked tensors: its derivative is lost, not zero."""
    if next_sequence_number() != start:
        msg = (
            f"the function to differentiate returned the Python number {value!r} after computing with tracked tensors; "
            "item() and float() cut the derivative off: return the tensor itself, or torch.tensor(...) for a constant"
        )
        raise OutputError(msg)


def _detached(leaf: Any) -> Any:
    return leaf.detach() if isinstance(leaf, torch.Tensor) and leaf.requires_grad else leaf


def _by_functorch(
    fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]
) -> tuple[Any, Any, list[Any]]:
    # A flag of a parameter is no outer derivative here either.
    tensors = [tensor.detach() if _is_own_leaf(tensor, frozenset()) else tensor for tensor in tensors]

    # torch.func takes tensors alone as auxiliary output.
    rest: list[Any] = []

    def checked(tracked: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        value, aux = fun(tracked)
        check_output(value, value)
        inside: list[torch.Tensor] = []

        def taken_out(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return leaf
            inside.append(leaf)
            return _PLACE

        rest.append(tree_map(taken_out, aux))
        return value if isinstance(value, torch.Tensor) else torch.tensor(value), inside

    gradients, (value, inside) = torch.func.grad_and_value(checked, has_aux=True)(tensors)
    following = iter(inside)
    aux = tree_map(lambda leaf: next(following) if leaf is _PLACE else leaf, rest[0])
    return value, aux, list(gradients)


class _Place:
    """Where a tensor was in the auxiliary output."""


_PLACE = _Place()
