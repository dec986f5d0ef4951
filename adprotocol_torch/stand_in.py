"""A stand-in for a module: a deep copy of it, with other tensors in the place of the module's own.

``torch.func.functional_call`` puts tensors into the module for the time of a call. A
checkpoint runs parts of the call again in the backward pass, when the module holds its
own tensors again, and the gradient is wrong without an error. A stand-in is an object
of its own, with submodules of its own, so that the module is never touched.

Tensors and modules that are no parts of the module, random generators and functions are
shared; another object in an attribute is copied with what it holds. A function or a
container by which the copy would compute with the module's own tensors is refused; what
a ``cached_property`` holds, and a tensor that the last call left in an attribute, it has
not.
"""

from __future__ import annotations

import copy
import functools
import random
import types
import weakref
from collections.abc import Mapping, MutableSequence
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import search
from adprotocol_torch import distributed, internals
from adprotocol_torch.tensors import is_float

if TYPE_CHECKING:
    from collections.abc import Iterable


# The attributes in which a module keeps its parts.
_TABLES = ("_parameters", "_buffers", "_modules")


@internals.skip  # where a graph breaks at it, Dynamo would compile it
def make(module: torch.nn.Module, before: dict[str, Any], after: dict[str, Any]) -> torch.nn.Module:
    """Return a stand-in with the tensors of `after` where the module has those of `before`, at all their places."""
    parts = {id(part) for part in (*module.modules(), *before.values())}
    buffers = {id(buffer) for buffer in module.buffers()}
    # A call may change a buffer in place; so the stand-in has its own.
    memo: dict[int, Any] = {
        id(old): after[name].clone() if id(old) in buffers else after[name] for name, old in before.items()
    }
    new = set(map(id, memo.values()))
    for owner in module.modules():
        _check_class(owner)
        for name, value in vars(owner).items():
            # A recurrent module makes its list of weights anew, and hooks of state dicts compute nothing.
            if name in _TABLES or name.startswith("_flat_weight") or "state_dict" in name:
                continue
            shared = _shared(value)
            if name in _cached_names(type(owner)):
                shared.append(value)
            else:
                _check_attribute(owner, name, value, parts)
            memo.update({id(item): item for item in shared if id(item) not in parts})
    try:
        copied = copy.deepcopy(module, memo)
    except (RuntimeError, TypeError, copy.Error) as error:
        raise refused(module, f", which cannot be copied: {error}") from error
    for owner in copied.modules():
        held = vars(owner)
        computed = [name for name, value in held.items() if _has_history(value) and id(value) not in new]
        for name in {*computed, *_cached_names(type(owner))}:
            held.pop(name, None)
    return copied


def _check_class(owner: torch.nn.Module) -> None:
    if isinstance(owner, distributed.wrapper_types()):
        raise refused(
            owner,
            ", which communicates for the tensors that it was made with; give combine the module in it "
            "(`wrapper.module`), or as it was before it was sharded",
        )
    if isinstance(owner, torch.jit.ScriptModule):
        raise refused(
            owner,
            ", which is scripted, and computes with its own references to its parameters; use the module as it was "
            "before torch.jit.script",
        )
    if "_orig_mod" in internals.tables_of(owner)[2] or vars(owner).get("_compiled_call_impl") is not None:
        raise refused(
            owner,
            ", which torch.compile has compiled for the tensors that it was made with; use the module as it was "
            "before, and compile the function that calls the stand-in",
        )
    if internals.caches_parametrizations() and torch.nn.utils.parametrize.is_parametrized(owner):
        raise refused(
            owner,
            " inside torch.nn.utils.parametrize.cached(), which would give it the tensors that the module has "
            "computed; make the stand-in outside of that block, and call it there",
        )


def _check_attribute(owner: torch.nn.Module, name: str, value: Any, parts: set[int]) -> None:
    """Refuse an attribute by which a copy would compute with the tensors of the module itself."""
    place = f"the attribute {name!r} of its {type(owner).__qualname__}"
    for item in _items(value):
        if id(item) in parts:
            continue
        if is_float(item) and not isinstance(value, (torch.Tensor, tuple)):
            raise refused(
                owner,
                f": {place} holds a tensor that is neither a parameter nor a buffer, and may have been computed from "
                "the module's own; make it a functools.cached_property, empty the container before, or register a "
                "constant with register_buffer(name, tensor, persistent=False)",
            )
        if any(id(reference) in parts for reference in _references(item)):
            raise refused(
                owner,
                f": {place} holds {getattr(item, '__qualname__', type(item).__qualname__)}, which has a reference of "
                "its own to a part of the module, and would compute with the module's own tensors; let it take the "
                "module as an argument, make it a method, or keep the part in a list",
            )


def _items(value: Any) -> list[Any]:
    """Return a value, and what containers and partial functions in it hold, at any depth."""
    opened = (Mapping, MutableSequence, functools.partial)
    return list(search((value,), lambda item: isinstance(item, opened)))


def _shared(value: Any) -> list[Any]:
    """Return what a stand-in has in common with its module: nothing of it changes with the module's tensors."""
    items = _items(value)
    kinds = (torch.Tensor, torch.nn.Module, torch.Generator, random.Random)
    shared = [item for item in items if isinstance(item, kinds)]
    return shared + [item.__self__ for item in items if isinstance(item, types.MethodType)]


def _references(value: Any) -> Iterable[Any]:
    """Return what a function, a bound method or a weak reference refers to, which no copy replaces.

    A function by its closure and defaults, and those of the functions there; a method by the attributes of its object.
    """
    if isinstance(value, weakref.ref):
        return [value()]
    if isinstance(value, types.FunctionType):
        return search(value, lambda item: isinstance(item, types.FunctionType))
    if isinstance(value, types.MethodType) and not isinstance(value.__self__, torch.nn.Module):
        return search(value, lambda item: item is value.__self__ or isinstance(item, types.FunctionType))
    return []


def _cached_names(cls: type) -> list[str]:
    """Return the names of the cached properties of a class, under which instances keep what they computed."""
    properties = functools.cached_property
    return [name for base in cls.__mro__ for name, value in vars(base).items() if isinstance(value, properties)]


def _has_history(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.grad_fn is not None


def refused(module: torch.nn.Module, why: str) -> UndecidableError:
    """Return the error for a module of which there is no stand-in."""
    return UndecidableError(f"combine cannot make a stand-in for a {type(module).__qualname__}{why}")
