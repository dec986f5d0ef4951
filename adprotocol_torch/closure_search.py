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
from typing import Any

import torch

from adprotocol.extend import held, search

PLAIN = (bool, int, float, complex, str, bytes, type, type(None), torch.dtype, torch.device, torch.Size)
# The attributes in which a module keeps its parts.
TABLES = ("_parameters", "_buffers", "_modules")
# How many objects are searched.
_SEARCHED = 30_000


def find(module: torch.nn.Module) -> str | None:
    """Return a description of the first attribute that hides a reference to a part of the module, or None."""
    owners = list(module.modules())
    parts = {id(part) for part in (*owners, *module.parameters(), *module.buffers())}
    for owner in owners:
        for name, value in vars(owner).items():
            if name in TABLES or isinstance(value, PLAIN):
                continue
            for item in _opened(value):
                if id(item) not in parts and not isinstance(item, (*PLAIN, torch.Tensor)) and _reaches(item, parts):
                    what = getattr(item, "__qualname__", type(item).__qualname__)
                    return f"the attribute {name!r} of its {type(owner).__qualname__} holds {what}"
    return None


def _opened(value: Any) -> list[Any]:
    """Return the items of containers, and of what is bound, as far as these can be replaced."""
    found: list[Any] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            waiting.extend(item)
        elif isinstance(item, functools.partial):
            waiting.extend((item.func, *item.args, *item.keywords.values()))
        elif isinstance(item, types.MethodType):
            waiting.append(item.__self__)
        elif not isinstance(item, weakref.ref):
            found.append(item)
    return found


def _reaches(value: Any, parts: set[int]) -> bool:
    found = itertools.islice(search(value, _is_entered, _held), _SEARCHED)
    return any(id(item) in parts for item in found)


def _is_entered(item: Any) -> bool:
    return not isinstance(item, (*PLAIN, torch.Tensor, types.ModuleType))


def _held(value: Any) -> list[Any]:
    return [value()] if isinstance(value, weakref.ref) else held(value)
