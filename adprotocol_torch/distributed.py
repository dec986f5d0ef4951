"""Modules that combine gradients over processes, which PyTorch does only where `.grad` is accumulated.

DistributedDataParallel and the two kinds of FSDP hang their communication on
``backward()``. A call of `value_and_grad` returns gradients and accumulates none, so
that a process would get the gradient of its own data from the former and zeros from
the latter, with no error, as ``torch.autograd.grad(..., allow_unused=True)`` does.
Such a module refuses to run while a call differentiates with respect to its
parameters: before it communicates, so that no other process waits for it.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.weak import WeakIdKeyDictionary

from adprotocol.errors import UndecidableError
from adprotocol.extend import run_while_tracing
from adprotocol_torch import internals
from adprotocol_torch.divergence import remedy
from adprotocol_torch.parameters import nothing

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# The instances that were seen. PyTorch keeps no list of them.
_WRAPPERS: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()

# How much held on to a parameter when they were looked for.
_HELD: Any = WeakIdKeyDictionary()


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


def note(module: torch.nn.Module) -> None:
    """Remember a wrapper that is part of an argument."""
    _WRAPPERS.add(module)


def guard(tensors: Sequence[torch.Tensor], owners: Sequence[torch.Tensor | None]) -> Callable[[], None]:
    """Let wrappers of parameters, the `owners` of tensors, refuse to run in this thread, until the result is called."""
    if not _is_initialized():
        return nothing
    pairs = zip(tensors, owners, strict=True)
    wanted = {id(item): item for tensor, owner in pairs if owner is not None for item in (tensor, owner)}
    owned = {wrapper: _parameters(wrapper) for wrapper in (*_WRAPPERS, *internals.fully_sharded())}
    known = {key for keys in owned.values() for key in keys}
    if any([_is_held(item) for id_, item in wanted.items() if id_ not in known]):  # noqa: C419  (all are noted)
        types = wrapper_types()
        found = [item for item in gc.get_objects() if issubclass(type(item), types) and item not in owned]
        _WRAPPERS.update(found)
        owned |= {wrapper: _parameters(wrapper) for wrapper in found}
    thread = threading.get_ident()

    def refuse_here(wrapper: torch.nn.Module, _args: Any) -> None:
        # In DistributedDataParallel.no_sync() the gradients of this process alone are what was asked for.
        if threading.get_ident() == thread and getattr(wrapper, "require_backward_grad_sync", True):
            raise refused(wrapper)

    handles = [
        wrapper.register_forward_pre_hook(refuse_here, prepend=True)
        for wrapper, parameters in owned.items()
        if not parameters.isdisjoint(wanted)
    ]

    def leave() -> None:
        for handle in handles:
            handle.remove()

    return leave


def _is_held(parameter: torch.Tensor) -> bool:
    """Tell whether more holds on to a parameter than when its wrappers were looked for.

    DistributedDataParallel does, and so does a graph. To look for a wrapper that the function closes over takes 10 ms
    and more.
    """
    count = internals.use_count(parameter)
    if count <= _HELD.get(parameter, 1):
        return False
    _HELD[parameter] = count
    return True


def _parameters(wrapper: torch.nn.Module) -> set[int]:
    return {id(parameter) for parameter in (*wrapper.parameters(), *internals.shards(wrapper))}


def refused(wrapper: torch.nn.Module) -> UndecidableError:
    """Return the error for a wrapper whose parameters a call differentiates."""
    if isinstance(wrapper, DistributedDataParallel):
        divergence = "distributed-data-parallel"
        what = (
            "a DistributedDataParallel averages gradients over processes only where backward() accumulates them: this "
            "process would get the gradient of its own data"
        )
    else:
        divergence = "fully-sharded"
        what = (
            f"a {type(wrapper).__qualname__} sharded by FSDP collects gradients over processes only where backward() "
            "accumulates them: its parameters would get zeros"
        )
    return UndecidableError(
        f"adprotocol was asked to differentiate with respect to parameters of a module that is distributed: {what}. "
        f"{remedy(divergence)}"
    )
