"""What a module holds besides its parameters, buffers and submodules: in attributes of its own."""

from __future__ import annotations

import types
from typing import Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import tree_leaves
from adprotocol.messages import kind_of

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
            leaves = tree_leaves((value,))
            known[id(value)] = any(isinstance(leaf, torch.Tensor) and type(leaf) is not Left for leaf in leaves)
    return [name for name, value in held.items() if known[id(value)]]


class Left(torch.Tensor):
    """What a stand-in has for a tensor that a call of the module may have left in an attribute: using it raises."""

    place: str

    @classmethod
    def at(cls, owner: torch.nn.Module, name: str) -> Left:
        """Return one for a tensor in an attribute of a module."""
        left = torch.Tensor._make_subclass(cls, torch.empty(0, device="meta"))  # noqa: SLF001  (documented, for subclasses)
        left.place = f"the attribute {name!r} of {kind_of(owner)}"
        return left

    @classmethod
    def __torch_function__(cls, function: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse each function and property of tensors."""
        place = next(leaf.place for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Left))
        raise UndecidableError(
            f"a stand-in made by combine reads a tensor in {place}, which is neither a parameter nor a buffer, and may "
            "have been computed by a call of the module itself. Make a constant a buffer (persistent=False), a cache a "
            "functools.cached_property, pass a state as an argument, or clear the attribute before combine"
        )
