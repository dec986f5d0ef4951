"""What a module holds besides its parameters, buffers and submodules: in attributes of its own."""

from __future__ import annotations

import functools
import types

import torch

from adprotocol.extend import run_while_tracing, tree_leaves

# The attributes in which a module keeps its parts.
TABLES = ("_parameters", "_buffers", "_modules")
# What every module has in its ``__dict__``.
_COMMON = frozenset(vars(torch.nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type, type(None), torch.dtype, torch.device, torch.Size)
# What a function closes over is not asked about, and submodules are asked themselves.
_NOT_ASKED = (*_PLAIN, torch.nn.Module, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


@run_while_tracing
def cached_names(cls: type) -> tuple[str, ...]:
    """Return the names under which instances keep what they computed, by descriptors like ``cached_property``.

    These are asked where the instance has no attribute of the name. (So are methods, but an instance may have another.)
    """
    return _cached_names(cls)


@functools.cache
def _cached_names(cls: type) -> tuple[str, ...]:
    members = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    functions = (
        types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType,
        types.ClassMethodDescriptorType, staticmethod, classmethod, functools.partialmethod,
    )  # fmt: skip
    return tuple(
        name
        for name, value in members.items()
        if hasattr(type(value), "__get__")
        and not hasattr(type(value), "__set__")
        and not isinstance(value, (type, *functions))
    )


def tensor_names(owner: torch.nn.Module) -> list[str]:
    """Return the names of the attributes of a module that are tensors, or structures that hold some."""
    return [
        name
        for name, value in vars(owner).items()
        if name not in _COMMON and not isinstance(value, _NOT_ASKED) and _has_tensor(value)
    ]


def _has_tensor(value: object) -> bool:
    return any(isinstance(leaf, torch.Tensor) for leaf in tree_leaves((value,)))
