"""Modules that combine gradients over processes, which PyTorch does only where `.grad` is accumulated.

DistributedDataParallel and the two kinds of FSDP hang their communication on
``backward()``. A call of `value_and_grad` returns gradients and accumulates none, so
that a process would get the gradient of its own data from the former and zeros from
the latter, with no error, as ``torch.autograd.grad(..., allow_unused=True)`` does.
Such a module refuses to run while a call differentiates with respect to its
parameters: before it communicates, so that no other process waits for it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from adprotocol.errors import UndecidableError
from adprotocol.tracing import run_while_tracing
from adprotocol_torch import internals
from adprotocol_torch.parameters import no_op, parameter_of
from adprotocol_torch.tensors import remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _is_initialized() -> bool:
    # None of the wrappers can be made without a process group.
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@run_while_tracing
def wrapper_types() -> tuple[type, ...]:
    """Return the classes of modules that communicate in ``backward()``; none in a process on its own."""
    if not _is_initialized():
        return ()
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return (DistributedDataParallel,) + (() if fsdp is None else (fsdp.FullyShardedDataParallel, fsdp.FSDPModule))


def guard(tensors: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]) -> Callable[[], None]:
    """Let wrappers of parameters, the `owners` of tensors, refuse to run in this thread, until the result is called.

    However the function reaches a wrapper: PyTorch keeps no list of them, and the collector none of what it has frozen.
    """
    if not _is_initialized():
        return no_op
    types, thread = wrapper_types(), threading.get_ident()
    pairs = zip(tensors, owners, strict=True)
    wanted = {id(item) for tensor, owner in pairs if owner is not None for item in (tensor, owner)}

    def refuse_here(module: torch.nn.Module, _args: Any) -> None:
        # In DistributedDataParallel.no_sync() the gradients of this process alone are what was asked for.
        is_asked = threading.get_ident() == thread and getattr(module, "require_backward_grad_sync", True)
        if isinstance(module, types) and is_asked and not wanted.isdisjoint(_parameters(module)):
            raise refused(module)

    return torch.nn.modules.module.register_module_forward_pre_hook(refuse_here).remove


def _parameters(wrapper: torch.nn.Module) -> set[int]:
    """Return the ids of the tensors that a wrapper holds now, and of the parameters that they stand for."""
    held = (*wrapper.parameters(), *internals.shards(wrapper))
    return {id(item) for tensor in held for item in (tensor, parameter_of(tensor))}


def refused(wrapper: torch.nn.Module) -> UndecidableError:
    """Return the error for a wrapper whose parameters a call differentiates."""
    divergence = "distributed-data-parallel" if isinstance(wrapper, DistributedDataParallel) else "fully-sharded"
    return UndecidableError(
        f"adprotocol was asked to differentiate with respect to parameters of a {type(wrapper).__qualname__}, which is "
        "distributed: it combines gradients over processes only where backward() accumulates them; here there would be "
        f"the gradient of this process's own data, or zeros. {remedy(divergence)}"
    )
