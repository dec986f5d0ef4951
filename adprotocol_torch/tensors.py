"""Tensors: the types that PyTorch owns, and the hooks that make a tensor constant or trainable."""

from __future__ import annotations

import torch

from adprotocol.extend import trace_instead
from adprotocol.hookspecs import hookimpl
from adprotocol_torch.internals import skip
from adprotocol_torch.parameters import here


@hookimpl
def array_types() -> dict[type, bool]:
    """Claim tensors, including parameters and other subclasses, and what is a bool of sizes in an export."""
    return {torch.Tensor: True, torch.SymBool: False}


@hookimpl
def non_differentiable(value: torch.Tensor) -> torch.Tensor:
    """Detach a tensor from all levels of torch.func at once.

    Always, and not only while the tensor is tracked: a leaf may be asked to
    require gradients later, and a constant must not follow it.
    """
    return value.detach() if value.is_floating_point() or value.is_complex() else value


def _trainable_traced(value: torch.Tensor) -> bool | None:
    if not (value.is_floating_point() or value.is_complex()) or getattr(value, "_is_buffer", False):
        return None
    return here().takes_gradient(value)


@trace_instead(_trainable_traced)
@skip  # where a graph breaks, Dynamo would trace this one
@hookimpl
def trainable(value: torch.Tensor) -> bool | None:
    """Answer by the dtype; a parameter follows its flag, a buffer takes no gradient."""
    if type(value) is torch.Tensor and not value.__dict__:  # neither
        return True if value.is_floating_point() or value.is_complex() else None
    return _trainable_traced(value)
