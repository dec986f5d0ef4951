"""Value and gradient by torch.func: inside of it, where tensors are dual, and in a graph that Dynamo traces."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import OutputError
from adprotocol.extend import check_output, combine_aux, map_aux, partition_aux
from adprotocol_torch import aliases, distributed, dynamo
from adprotocol_torch.internals import next_sequence_number, skip
from adprotocol_torch.parameters import LOCAL, owners_of, refused_in_graph, stand_for
from adprotocol_torch.tensors import laid_out, remedy

if TYPE_CHECKING:
    from collections.abc import Callable


def refuse_number(value: Any, start: int) -> None:
    """Refuse a Python number that was computed from tracked tensors: its derivative is lost, not zero."""
    if torch.compiler.is_dynamo_compiling() or next_sequence_number() != start:
        msg = (
            f"the differentiated function returned the Python number {value} computed from tracked tensors; item() "
            f"and float() cut off the derivative. {remedy('python-numbers')}"
        )
        raise OutputError(msg)


def warn_independent() -> None:
    """Warn of a value without a history, for which PyTorch's own ``backward`` raises."""
    warnings.warn(
        "the value of the differentiated function does not depend on what it is differentiated with respect to, so all "
        f"gradients are zeros; item(), float(), NumPy and detach() cut off the derivative. {remedy('python-numbers')}",
        stacklevel=2,
    )


def value_and_grad(
    fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]
) -> tuple[Any, Any, list[Any]]:
    """Return the value of ``fun(tensors)``, its auxiliary output, and the gradient for each tensor."""
    if torch.is_grad_enabled():
        return _with_gradients(fun, tensors)
    # As with the engine, gradients are on in the function, and what comes out has none.
    with torch.enable_grad():
        value, aux, gradients = _with_gradients(fun, tensors)
    return _without_history(value), map_aux(_without_history, aux), [_without_history(g) for g in gradients]


def _without_history(leaf: Any) -> Any:
    """Return a tensor without its history, but with its tangent, which `detach` would cut; gradients are off."""
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


@skip  # as the engine's way
def _with_gradients(
    fun: Callable[[list[Any]], tuple[Any, Any]], tensors: list[torch.Tensor]
) -> tuple[Any, Any, list[Any]]:
    owners: list[Any] = []
    own, leaves = [False] * len(tensors), tensors
    if torch.compiler.is_dynamo_compiling():
        dynamo.install()
        if any(isinstance(tensor, torch.nn.Parameter) for tensor in tensors):
            raise refused_in_graph()
    else:
        calls = LOCAL.calls
        tensors = leaves = [calls.substitute(tensor) for tensor in tensors]
        owners = owners_of(tensors)
    has_owners = len(owners) > 0
    if has_owners:
        # A flag of a parameter is no outer derivative here either.
        own = [
            owner is tensor and tensor.is_leaf and not calls.is_differentiated(tensor)
            for tensor, owner in zip(tensors, owners, strict=True)
        ]
        leaves = [tensor.detach() if flag else tensor for tensor, flag in zip(tensors, own, strict=True)]
    # torch.func accepts only tensors as auxiliary output.
    rest: list[Any] = []
    undo: list[Callable[[], None]] = []

    def checked(tracked: list[torch.Tensor]) -> tuple[torch.Tensor, list[torch.Tensor]]:
        # Asked here: where a graph breaks, this is compiled as a function of its own.
        is_traced = torch.compiler.is_dynamo_compiling()
        # A graph knows no number of the node; there every Python number is refused.
        start = -1 if is_traced else next_sequence_number()
        if has_owners and not is_traced:
            pairs = zip(tracked, owners, strict=True)
            tracked = [new if owner is None else stand_for(new, owner) for new, owner in pairs]
            undo.append(distributed.guard(tensors, owners))
            undo.append(LOCAL.calls.replace(tensors, tracked, owners))
        value, aux = fun(tracked)
        check_output(value, value)
        if not isinstance(value, torch.Tensor):
            refuse_number(value, start)
            value = torch.tensor(value)
        elif not (is_traced or value.requires_grad):
            warn_independent()
        others, inside = partition_aux(aux, torch.Tensor)
        rest.append(others)
        return value, inside

    try:
        gradients, (value, inside) = torch.func.grad_and_value(checked, has_aux=True)(leaves)
    finally:
        for leave in undo:
            leave()
    if has_owners:
        aliases.refuse_references_in_func(value, leaves, owners)
    if torch.compiler.is_dynamo_compiling() and not dynamo.inside_transform():
        gradients = [laid_out(gradient, leaf) for gradient, leaf in zip(gradients, leaves, strict=True)]
    return value, combine_aux(rest[0], inside), gradients
