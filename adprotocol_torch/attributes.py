"""What a module holds besides its parameters, buffers and submodules: in attributes of its own."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UnclaimedTypeError, UndecidableError
from adprotocol.extend import tree_leaves
from adprotocol.messages import kind_of
from adprotocol_torch import internals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# What every module has in its ``__dict__``.
_COMMON = frozenset(vars(torch.nn.Module()))
_PLAIN: frozenset[type] = frozenset(
    {bool, int, float, complex, str, bytes, type, type(None), torch.dtype, torch.device, torch.Size}
)
# What a function closes over is not asked about, and submodules are asked themselves.
NOT_ASKED = (*_PLAIN, torch.nn.Module, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def tensors(owners: Iterable[torch.nn.Module]) -> list[torch.Tensor]:
    """Return the tensors in attributes of some modules, and in structures there."""
    seen: set[int] = set()
    return [tensor for owner in owners for _, found in _by_name(owner, seen) for tensor in found]


def tensor_names(owner: torch.nn.Module) -> list[str]:
    """Return the names of the attributes of a module that are tensors, or structures that hold some."""
    return [name for name, found in _by_name(owner, set()) if found]


def _by_name(owner: torch.nn.Module, seen: set[int]) -> Iterator[tuple[str, list[torch.Tensor]]]:
    # Parts of a module share settings, so each object is looked at once.
    for name, value in vars(owner).items():
        if type(value) in _PLAIN or name in _COMMON or isinstance(value, NOT_ASKED) or id(value) in seen:
            continue
        seen.add(id(value))
        try:
            leaves = tree_leaves((value,))
        except UnclaimedTypeError:  # a module may hold anything besides its parameters, as the variables of Keras
            leaves = internals.pytree.tree_leaves(value)
        yield name, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and type(leaf) is not Left]


class Left(torch.Tensor):
    """What a stand-in has for a tensor that a call of the module may have left in an attribute: using it raises."""

    place: str

    @classmethod
    def at(cls, owner: torch.nn.Module, name: str) -> Left:
        """Return one for a tensor in an attribute of a module."""
        left = torch.empty(0, device="meta").as_subclass(cls)
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
