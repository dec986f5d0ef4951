"""What a library's author would write by hand for PyTorch, with the same answers and the same results.

The reference of the rows on questions and gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._C._functorch import maybe_get_level
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from collections.abc import Callable

_are_transforms_active = torch._C._are_functorch_transforms_active
_is_excluded = torch._C._dispatch_tls_is_dispatch_key_excluded
_AUTOGRAD = torch._C.DispatchKey.AutogradFunctionality
_NO_LEVEL = -1


def is_tracked(value: torch.Tensor) -> bool:
    """Return whether PyTorch would propagate a derivative through a tensor, outside of torch.func.

    The flag alone is wrong in torch.func, of a wrapper whose level has ended, in forward mode, and below autograd, as
    in a dispatch mode. It leaves out what only adprotocol knows: a checkpoint's first pass, and the level that an
    answer belongs to.
    """
    if _are_transforms_active():
        msg = "inside of torch.func the answer is another one"
        raise NotImplementedError(msg)
    if value.requires_grad and torch.is_grad_enabled():
        return maybe_get_level(value) == _NO_LEVEL and not _is_excluded(_AUTOGRAD)
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(value).tangent is not None


def has_elements(value: torch.Tensor) -> bool:
    """Return whether Python may branch on an ordinary tensor: nothing traces or batches it, nor is it meta."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state() is not None:
        msg = "in a mode the answer is another one"
        raise NotImplementedError(msg)
    if maybe_get_level(value) != _NO_LEVEL or type(value) not in (torch.Tensor, torch.nn.Parameter):
        msg = "inside of torch.func, and for subclasses, the answer is another one"
        raise NotImplementedError(msg)
    is_batched = torch._C._functorch.is_legacy_batchedtensor(value)
    return not (value.is_meta or is_batched or (value.is_cuda and torch.cuda.is_current_stream_capturing()))


def of_tensor(fun: Callable[[Any], Any], x: torch.Tensor) -> Any:
    """Return the value and the gradient for a tensor."""
    tracked = x.detach().requires_grad_()
    value = fun(tracked)
    (gradient,) = torch.autograd.grad(value, [tracked])
    return value.detach(), gradient


def of_dict(fun: Callable[[Any], Any], tensors: dict[str, torch.Tensor]) -> Any:
    """Return the value and the gradients for a dict of tensors."""
    tracked = {name: leaf.detach().requires_grad_() for name, leaf in tensors.items()}
    value = fun(tracked)
    gradients = torch.autograd.grad(value, list(tracked.values()))
    return value.detach(), dict(zip(tracked, gradients, strict=True))


def of_module(fun: Callable[..., Any], module: torch.nn.Module, *data: Any) -> Any:
    """Return the value and the gradients for the parameters of a module."""
    tracked = dict(module.named_parameters())
    value = fun(module, *data)
    gradients = torch.autograd.grad(value, list(tracked.values()))
    return value.detach(), dict(zip(tracked, gradients, strict=True))
