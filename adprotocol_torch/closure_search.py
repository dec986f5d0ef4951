"""The search for references to the parts of a module that a copy of the module would keep.

A closure or an object in an attribute may hold a parameter or submodule. Lists, dicts,
bound methods, partial functions and weak references are not meant here: `functional_copy`
replaces what is in these.
"""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections.abc import Mapping, MutableSequence
from collections.abc import Set as AbstractSet
from typing import Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import run_while_tracing, search
from adprotocol_torch import internals, tracking

PLAIN = (bool, int, float, complex, str, bytes, type, type(None), torch.dtype, torch.device, torch.Size)
# The attributes in which a module keeps its parts.
TABLES = ("_parameters", "_buffers", "_modules")
# How many objects are searched.
_SEARCHED = 30_000


def find(module: torch.nn.Module, *, in_graph: bool = False) -> str | None:
    """Return what in a module a copy with other tensors would compute wrong with, and what to do; None for nothing.

    In a graph that is what may be a cache, too, which elsewhere is refused where it is used (`OldTensor`).
    """
    owners = list(module.modules())
    parts = {id(part) for part in (*owners, *module.parameters(), *module.buffers())}
    for owner in owners:
        left_out = {*TABLES, *cached_names(type(owner))}
        for name, value in vars(owner).items():
            if name in left_out or isinstance(value, PLAIN):
                continue
            for item in _opened(value):
                if id(item) in parts or isinstance(item, PLAIN):
                    continue
                place = f"the attribute {name!r} of its {type(owner).__qualname__}"
                if isinstance(item, torch.Tensor):
                    if in_graph and may_be_cached(item, owner, name):
                        return f"{place} holds {_TENSOR}"
                    continue
                what = getattr(item, "__qualname__", type(item).__qualname__)
                found = list(itertools.islice(search(item, _is_entered), _SEARCHED))
                if any(id(part) in parts for part in found):
                    return (
                        f"{place} holds {what}, which has a reference of its own to a part of the module and would "
                        "compute with the module's own tensors; let it take the module as an argument, or make it a "
                        "method"
                    )
                # A function may keep what a call returned (the hook that records it); an object is used as a cache is.
                if not isinstance(item, types.FunctionType) and any(map(_has_history, found)):
                    return f"{place} holds {what}, which holds {_TENSOR}"
    return None


_TENSOR = (
    "a tensor that is neither a parameter nor a buffer, and may have been computed from the module's own; make it a "
    "functools.cached_property, empty the cache before, or register a constant with "
    "register_buffer(name, tensor, persistent=False)"
)


def may_be_cached(tensor: torch.Tensor, owner: torch.nn.Module, name: str) -> bool:
    """Tell whether a tensor in an attribute may have been computed from the parameters of the module.

    One without a history is a constant where it is the attribute itself, or in a tuple; what else changes, a call of
    the module may have filled.
    """
    if tensor.grad_fn is not None:
        return not is_set_by_hook(owner, name)
    is_float = tensor.is_floating_point() or tensor.is_complex()
    return is_float and not isinstance(vars(owner)[name], (torch.Tensor, tuple))


class OldTensor(torch.Tensor):
    """Stand, in a copy of a module, for a tensor that may have been computed from the module's parameters."""

    place: str

    @classmethod
    def of(cls, place: str) -> OldTensor:
        """Return one for the tensor at a place, which the message names."""
        made: OldTensor = internals.make_subclass(cls, torch.empty(0))
        made.place = place
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"<the tensor of {self.place}>"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        used = [item for item in _opened((args, kwargs)) if isinstance(item, cls)]
        place = used[0].place if used else "an attribute"
        msg = f"a stand-in that combine made for a module was called, and uses {place}: it held {_TENSOR}"
        raise UndecidableError(msg)


@run_while_tracing
def cached_names(cls: type) -> tuple[str, ...]:
    """Return the names under which instances keep what they computed, by descriptors like ``cached_property``.

    These are asked where the instance has no attribute of the name. (So are methods, but an instance may have another.)
    """
    return _cached_names(cls)


@functools.cache
def _cached_names(cls: type) -> tuple[str, ...]:
    found = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
    functions = (
        types.FunctionType, types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType,
        types.ClassMethodDescriptorType, staticmethod, classmethod, functools.partialmethod,
    )  # fmt: skip
    return tuple(
        name
        for name, value in found.items()
        if hasattr(type(value), "__get__")
        and not hasattr(type(value), "__set__")
        and not isinstance(value, (type, *functions))
    )


# What every module has in its ``__dict__``.
_COMMON = frozenset(vars(torch.nn.Module()))


def names_of_tensors(owner: torch.nn.Module, searched: set[int]) -> list[str]:
    """Return the names of the attributes of a module that are tensors, or hold some: objects if these are tracked.

    Those of `OldTensor` are left out: of what they stand for nothing is computed. `searched` are the ids of objects in
    which there are none, to which others are added, and of modules: an object that knows the module is a part of what
    wraps it (FSDP), whose tensors are the module's.
    """
    attributes = vars(owner).items()
    held = [item for item in attributes if item[0] not in _COMMON and not isinstance(item[1], _NOT_ASKED)]
    return [name for name, value in held if _shows_tensors(value, searched)]


def _shows_tensors(value: Any, searched: set[int]) -> bool:
    for item in _opened(value):
        if isinstance(item, torch.Tensor):
            if type(item) is not OldTensor:
                return True
        elif not (isinstance(item, _NOT_ASKED) or id(item) in searched):
            found = list(itertools.islice(search(item, _is_entered), _SEARCHED))
            wraps = any(isinstance(part, torch.nn.Module) and id(part) in searched for part in found)
            if not wraps and any(tracking.within_gradient(part) for part in found if isinstance(part, torch.Tensor)):
                return True
            searched.add(id(item))
    return False


# What a function closes over is not asked about, and submodules are asked themselves.
_NOT_ASKED = (*PLAIN, torch.nn.Module, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


def is_set_by_hook(owner: torch.nn.Module, name: str) -> bool:
    """Tell whether a hook that knows the name sets an attribute before each call, as for weight norm and pruning."""
    return any(
        name in [held for held in vars(hook).values() if isinstance(held, str)]
        for hook in internals.forward_pre_hooks(owner)
        if hasattr(hook, "__dict__")
    )


def _opened(value: Any) -> list[Any]:
    """Return the items of containers, and of what is bound, as far as these can be replaced."""
    found: list[Any] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, (MutableSequence, tuple, AbstractSet)):
            waiting.extend(item)
        elif isinstance(item, functools.partial):
            waiting.extend((item.func, *item.args, *item.keywords.values()))
        elif isinstance(item, types.MethodType):
            waiting.append(item.__self__)
        elif isinstance(item, internals.WrappedHook):
            waiting.append(item.hook)
        elif not isinstance(item, weakref.ref):
            found.append(item)
    return found


def _has_history(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


def _is_entered(item: Any) -> bool:
    return not isinstance(item, (*PLAIN, torch.Tensor, types.ModuleType))
