"""Derivatives with PyTorch: the autograd engine in eager mode, torch.func in transformations and graphs.

The engine saves and computes what the hand-written ``torch.autograd.grad`` does
and no more. torch.func always builds the graph of the gradient as well, so it
serves only where the engine cannot: inside a transformation of torch.func,
where tensors are dual, and in a graph that Dynamo traces.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import functorch_gradient, internals
from adprotocol_torch.call import Call
from adprotocol_torch.internals import skip
from adprotocol_torch.pull import Pull, gradients_of, without_derivative
from adprotocol_torch.tensors import refused_sparse, tensor_of

if TYPE_CHECKING:
    from collections.abc import Callable

    # What the hooks get: a function of leaves that returns outputs, and other tensors.
    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]


_IN_PLACE = (
    "jvp was given a function that changes in place a tensor which it did not make, as batch norm in training changes "
    "its statistics: PyTorch has no forward mode for that. Call module.eval(), or jvp under torch.no_grad(), or use "
    "reverse mode: vjp, or jacobian(..., mode='reverse')"
)


@hookimpl
def vjp(fun: Function, leaves: list[Any], once: bool) -> tuple[list[Any], list[Any], Callable[..., list[Any]]]:  # noqa: FBT001  (the signature of the hook)
    """Return the outputs of ``fun(leaves)``, the others, and the function that pulls cotangents back."""
    tensors = [leaf if isinstance(leaf, torch.Tensor) else tensor_of(leaf) for leaf in leaves]
    if torch.compiler.is_dynamo_compiling() or internals.in_transform():
        return functorch_gradient.vjp(fun, tensors, once=once)
    if not torch.is_inference_mode_enabled():
        return _by_engine(fun, tensors, once=once)
    with torch.inference_mode(mode=False), torch.no_grad():
        return _by_engine(fun, tensors, once=once)


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> Any:
    """Return the outputs of ``fun(leaves)``, the others, and the tangents of the outputs."""
    if not torch.compiler.is_dynamo_compiling() and torch.is_inference_mode_enabled():
        with torch.inference_mode(mode=False), torch.no_grad():
            return _jvp(fun, leaves, tangents)
    return _jvp(fun, leaves, tangents)


def _jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> Any:
    tensors = [leaf if isinstance(leaf, torch.Tensor) else tensor_of(leaf) for leaf in leaves]
    if not torch.compiler.is_dynamo_compiling():
        # Those of inference mode take no part in forward mode.
        tensors = [tensor.clone() if tensor.is_inference() else tensor for tensor in tensors]
    # A function may change its argument in place, and with it the tangent.
    moving = [tangent.clone() for tangent in tangents]
    try:
        return functorch_gradient.jvp(fun, tensors, moving)
    except UndecidableError:  # ours, which is one too
        raise
    except (RuntimeError, AssertionError) as error:
        text = str(error)  # Dynamo does not trace a closure over an exception
        if internals.CHANGES_CAPTURED in text:
            # The transpose is a term of the second derivative of batch norm. PyTorch's formula for that takes mean and
            # variance as constants where it is differentiated once more.
            if torch.is_grad_enabled() or internals.in_transform():
                raise UndecidableError(_IN_PLACE) from error
        elif not any(words in text for words in internals.NO_FORWARD_MODE):
            raise
        return NotImplemented


@hookimpl
def vmap(fun: Callable[[list[Any]], list[Any]], arrays: list[Any], chunk_size: int | None) -> Any:
    """Call ``torch.vmap``; all rows draw the same random numbers."""
    if chunk_size is not None and torch.compiler.is_dynamo_compiling():
        return NotImplemented  # Dynamo does not trace the chunks of torch.vmap

    try:
        rows = torch.vmap(
            lambda *row: functorch_gradient.bare(fun(list(row))), randomness="same", chunk_size=chunk_size
        )(*arrays)
    except RuntimeError as error:
        text = str(error)
        if isinstance(error, NotImplementedError) and "Sparse" in text:
            raise refused_sparse() from error
        if isinstance(error, UndecidableError) or not any(words in text for words in internals.NO_VMAP):
            raise
        msg = f"torch.vmap cannot take the function, or its backward pass, for a batch ({text.splitlines()[0]}). "
        raise UndecidableError(msg + "Compute the rows one by one: jacobian(..., chunk_size=1)") from error
    return [result.contiguous() for result in functorch_gradient.listed(rows)]


# Dynamo would compile it as a function of its own where a graph broke around it.
@skip
def _by_engine(
    fun: Function, tensors: list[torch.Tensor], *, once: bool
) -> tuple[list[Any], list[Any], Callable[..., list[Any]]]:
    call = Call(tensors)
    try:
        tracked = call.track()
        # The thread that the engine has for a GPU numbers the nodes of inner gradients by itself (`aliases`).
        if call.owners:
            with torch.autograd.set_multithreading_enabled(False):
                outputs, others = fun(tracked)
        else:
            outputs, others = fun(tracked)
        ends = functorch_gradient.tracked_of(outputs, call.owners, call.start)
        call.search(ends, [other for other in others if other.requires_grad])
        if once:
            # No graph of the derivative of a compiled function, which has none: PyTorch may raise as it makes one.
            create = call.again and not call.is_compiled
            cotangents = [torch.ones_like(end) for end in ends]
            gradients = gradients_of(call, ends, cotangents, create_graph=create, retain_graph=create)
        else:
            pull = Pull(call, outputs)
    finally:
        call.end()
    del ends
    if call.sources:
        if once:
            gradients = without_derivative(gradients, call.sources)
        last = functools.partial(_last, call)
        outputs, others = list(map(last, outputs)), list(map(last, others))
    if call.again:
        call.sign()
    else:
        outputs, others = list(map(call.detached, outputs)), list(map(call.detached, others))
    return outputs, others, (lambda _: gradients) if once else pull


def _last(call: Call, leaf: Any) -> Any:
    """Return a result of which PyTorch has no derivative after that of the value; a leaf of others as it is."""
    return leaf if call.detached(leaf) is leaf else without_derivative([leaf.detach()], call.sources)[0]
