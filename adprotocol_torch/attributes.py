"""What a module holds besides its parameters, buffers and submodules: in attributes of its own."""

from __future__ import annotations

import types

import torch

from adprotocol.extend import tree_leaves

# What every module has in its ``__dict__``.
_COMMON = frozenset(vars(torch.nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type, type(None), torch.dtype, torch.device, torch.Size)
# What a function closes over is not asked about, and submodules are asked themselves.
NOT_ASKED = (*_PLAIN, torch.nn.Module, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def tensor_names(owner: torch.nn.Module) -> list[str]:
    """Return the names of the attributes of a module that are tensors, or structures that hold some."""
    return [
        name
        for name, value in vars(owner).items()
        if name not in _COMMON and not isinstance(value, NOT_ASKED) and _has_tensor(value)
    ]


def _has_tensor(value: object) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((value,)))
