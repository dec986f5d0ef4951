"""A stand-in for a module: a deep copy of it, with other tensors in the place of the module's own.

``torch.func.functional_call`` puts tensors into the module for the time of a call. A
checkpoint runs parts of the call again in the backward pass, when the module holds its
own tensors again, and the gradient is wrong without an error. A stand-in is an object
of its own, with submodules of its own, so that the module is never touched.

Tensors and modules that are no parts of the module, random generators and functions are
shared; another object in an attribute is copied with what it holds. A function or a
weak reference by which the copy would compute with the module's own tensors is refused. It
does not have what a ``cached_property`` holds. A tensor that a call of the module may have
left in an attribute is a state or a cache; one that raises where it is used takes its place.
"""

from __future__ import annotations

import copy
import functools
import random
import types
import weakref
from collections import OrderedDict
from collections.abc import Mapping, MutableSequence
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import search
from adprotocol_torch import attributes, distributed, internals
from adprotocol_torch.parameters import parameter_of
from adprotocol_torch.tensors import is_float

if TYPE_CHECKING:
    from collections.abc import Iterable

    # A module, the name of an attribute, and its value.
    _Held = tuple[torch.nn.Module, str, Any]


# The attributes in which a module keeps its parts.
_TABLES = ("_parameters", "_buffers", "_modules")
# What most attributes are, the latter empty.
_TRIVIAL = frozenset({type(None), bool, int, float, str})
_EMPTY = frozenset({dict, list, set, OrderedDict})
_OPENED = (Mapping, MutableSequence, functools.partial)


@internals.skip  # where a graph breaks at it, Dynamo would compile it
def make(module: torch.nn.Module, before: dict[str, Any], after: dict[str, Any]) -> torch.nn.Module:
    """Return a stand-in with the tensors of `after` where the module has those of `before`, at all their places."""
    owners = list(module.modules())
    for owner in owners:
        _check_class(owner)
    buffers = {id(buffer) for buffer in module.buffers()}
    # A call may change a buffer in place; so the stand-in has its own.
    memo: dict[int, Any] = {
        id(old): after[name].clone() if id(old) in buffers else _with_attributes(after[name], old)
        for name, old in before.items()
    }
    replaced = {id(old) for old in before.values() if memo[id(old)] is not old}
    parts = {id(part) for part in (*owners, *before.values())}
    cached = {cls: _cached_names(cls) for cls in set(map(type, owners))}
    held = [(owner, *item) for owner in owners for item in _attributes(owner)]
    own = [value for owner, name, value in held if name not in cached[type(owner)]]
    items = _items(own)
    shared = [value for owner, name, value in held if name in cached[type(owner)]] + _shared(items, replaced)
    memo.update({id(item): item for item in shared if id(item) not in parts})
    # A constant may be an attribute, or in a tuple there.
    constants = parts.union(map(id, _items([value for value in own if isinstance(value, (torch.Tensor, tuple))])))
    for item in [item for item in items if not isinstance(item, attributes.Left) and is_float(item)]:
        if id(item) not in (constants if item.grad_fn is None else parts):
            places = _places(held, item)
            if item.grad_fn is not None or any(_holds(owner, replaced) for owner, _ in places):
                memo[id(item)] = attributes.Left.at(*places[0])
    try:
        copied = copy.deepcopy(module, memo)
    except (RuntimeError, TypeError, copy.Error) as error:
        raise refused(module, f", which cannot be copied: {error}") from error
    for owner in copied.modules():
        for name in _cached_names(type(owner)):
            vars(owner).pop(name, None)
    for path, owner in module.named_modules():
        if isinstance(owner, torch.fx.GraphModule):
            _complete(owner, copied.get_submodule(path), memo)
    _refuse_references([(owner, *item) for owner in copied.modules() for item in _attributes(owner)], replaced)
    return copied


def _with_attributes(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the attributes that a module may read off its parameter; they are set on an alias."""
    parameter = parameter_of(old)
    if parameter is None or isinstance(new, torch.nn.Parameter) or vars(parameter).keys() <= vars(new).keys():
        return new
    alias = new.view_as(new)
    vars(alias).update({**vars(parameter), **vars(new)})
    return alias


def _complete(module: torch.fx.GraphModule, copied: torch.nn.Module, memo: dict[int, Any]) -> None:
    """Give a copy what a GraphModule's own ``__deepcopy__`` loses: attributes, hooks, and what is a parameter."""
    for path, owner in module.named_modules():
        parameters, buffers, _ = internals.tables_of(copied.get_submodule(path))
        parameters.update({name: buffers.pop(name) for name in internals.tables_of(owner)[0] if name in buffers})
    held = vars(copied)
    hooks = ("_forward_", "_backward_", "_is_full_")
    lost = {name: value for name, value in vars(module).items() if name not in held or name.startswith(hooks)}
    held.update(copy.deepcopy(lost, memo))


def _attributes(owner: torch.nn.Module) -> list[tuple[str, Any]]:
    """Return the attributes of a module besides its tables, without what needs no look."""
    # A recurrent module rebuilds its list of weights, and hooks of state dicts compute nothing.
    return [
        (name, value)
        for name, value in vars(owner).items()
        if type(value) not in _TRIVIAL and (type(value) not in _EMPTY or value)
        if not (name in _TABLES or name.startswith("_flat_weight") or "state_dict" in name)
    ]


def _check_class(owner: torch.nn.Module) -> None:
    if isinstance(owner, distributed.wrapper_types()):
        why = "communicates for its own tensors; give combine `wrapper.module`, or the module before it was sharded"
    elif isinstance(owner, torch.jit.ScriptModule):
        why = "is scripted, and refers to its own parameters; use the module as it was before torch.jit.script"
    elif "_orig_mod" in internals.tables_of(owner)[2] or vars(owner).get("_compiled_call_impl") is not None:
        why = "torch.compile has compiled; use the module as it was before, and compile what calls the stand-in"
    elif internals.caches_parametrizations() and torch.nn.utils.parametrize.is_parametrized(owner):
        why = (
            "is inside torch.nn.utils.parametrize.cached(); make the stand-in outside of that block, and call it there"
        )
    else:
        return
    raise refused(owner, f", which {why}")


def _refuse_references(kept: list[_Held], replaced: set[int]) -> None:
    """Refuse what the copy holds by which it would compute with the tensors of the module itself."""
    # Of all at once, for parts of a module share much; the attribute is looked for in an error only.
    for item in search([value for _, _, value in kept], _is_searched):
        if any(_holds(reference, replaced) for reference in (item, *_references(item))):
            owner, name = _places(kept, item)[0]
            kind = getattr(item, "__qualname__", type(item).__qualname__)
            raise refused(
                owner,
                f": the attribute {name!r} of its {type(owner).__qualname__} holds {kind}, which refers to a part of "
                "the module; let it take the module as an argument, make it a method, or keep the part in a list",
            )


def _is_searched(value: Any) -> bool:
    return not isinstance(value, (*attributes.NOT_ASKED, torch.Tensor))


def _places(kept: list[_Held], item: Any) -> list[tuple[torch.nn.Module, str]]:
    """Return the modules that hold an item, each with the name of its attribute."""
    return [(owner, name) for owner, name, value in kept if any(one is item for one in search((value,), _is_searched))]


def _holds(value: Any, tensors: set[int]) -> bool:
    """Return whether a value is one of some tensors, or a module that has one."""
    own = (*value.parameters(), *value.buffers()) if isinstance(value, torch.nn.Module) else (value,)
    return not tensors.isdisjoint(map(id, own))


def _items(values: list[Any]) -> list[Any]:
    """Return values, and what containers and partial functions among them hold, at any depth."""
    return list(search(values, lambda item: isinstance(item, _OPENED)))


def _shared(items: list[Any], replaced: set[int]) -> list[Any]:
    """Return what a stand-in has in common with its module: nothing of it changes with the module's tensors."""
    kinds = (torch.Tensor, torch.nn.Module, torch.Generator, random.Random)
    shared = [item for item in items if isinstance(item, kinds) and not _holds(item, replaced)]
    return shared + [item.__self__ for item in items if isinstance(item, types.MethodType)]


def _references(value: Any) -> Iterable[Any]:
    """Return what a function, a bound method or a weak reference refers to, which no copy replaces.

    A function by its closure and defaults, and those of the functions there; a method by the attributes of its object.
    """
    if isinstance(value, weakref.ref):
        return [value()]
    is_copied = isinstance(getattr(value, "__self__", value), (torch.nn.Module, type, functools.partial))
    if is_copied or not callable(value):
        return []
    return [*search(value), *(search(value.__self__) if isinstance(value, types.MethodType) else ())]


def _cached_names(cls: type) -> list[str]:
    """Return the names of the cached properties of a class, under which instances keep what they computed."""
    return [n for base in cls.__mro__ for n, v in vars(base).items() if isinstance(v, functools.cached_property)]


def refused(module: torch.nn.Module, why: str) -> UndecidableError:
    """Return the error for a module of which there is no stand-in."""
    return UndecidableError(f"combine cannot make a stand-in for a {type(module).__qualname__}{why}")
