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


def tensor_names(owner: torch.nn.Module, known: dict[int, bool]) -> list[str]:
    """Return the names of the attributes of a module that are tensors, or structures that hold some.

    Parts of a module share settings, so the answer about each object is `known` by its id.
    """
    held = {n: v for n, v in vars(owner).items() if n not in _COMMON and not isinstance(v, NOT_ASKED)}
    for value in held.values():
        if id(value) not in known:
            known[id(value)] = any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((value,)))
    return [name for name, value in held.items() if known[id(value)]]
