"""A stand-in for a module: an object of the same class, with other tensors in the place of the module's own.

``torch.func.functional_call`` puts tensors into the module for the time of a call. A
checkpoint runs parts of the call again in the backward pass, when the module holds its
own tensors again, and the gradient is wrong without an error. A stand-in is an object
of its own, with submodules of its own, so that the module is never touched.

Attributes are shared, not copied. The parts of the module that lists, dicts, bound
methods and the like hold are replaced too. Closures and objects that hold one cannot
be changed (`closure_search`), and would compute with the module's own tensors: an error.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import torch

from adprotocol.errors import UndecidableError
from adprotocol.extend import attribute_names
from adprotocol_torch import closure_search, distributed, dynamo


def make(module: torch.nn.Module, before: dict[str, Any], after: dict[str, Any]) -> torch.nn.Module:
    """Return a stand-in with the tensors of `after` where the module has those of `before`, at all their places."""
    _check(module)
    buffers = {id(buffer) for buffer in module.buffers()}
    parts: dict[int, Any] = {}
    for name, tensor in before.items():
        # A call may change a buffer in place; so the stand-in has its own.
        parts[id(tensor)] = after[name].clone() if id(tensor) in buffers else after[name]
    owners = list(module.modules())
    for owner in owners:
        parts[id(owner)] = object.__new__(type(owner))
    for owner in owners:
        new = parts[id(owner)]
        for name in attribute_names(owner):
            object.__setattr__(new, name, _replaced(owner.__dict__[name], parts))
    return parts[id(module)]  # type: ignore[no-any-return]


def _check(module: torch.nn.Module) -> None:
    if torch.compiler.is_dynamo_compiling():
        dynamo.install()
    found = closure_search.find(module)
    if found is not None:
        raise _refused(
            module,
            f": {found}, which has a reference of its own to a part of the module and would compute with the module's "
            "own tensors; let it take the module as an argument, or make it a method",
        )
    for owner in module.modules():
        if isinstance(owner, distributed.wrapper_types()):
            raise _refused(
                owner,
                ", which communicates for the tensors that it was made with; give combine the module in it "
                "(`wrapper.module`), or as it was before it was sharded",
            )
        if isinstance(owner, torch.jit.ScriptModule):
            raise _refused(
                module,
                f": {type(owner).__qualname__} is scripted, and computes with its own references to its parameters; "
                "use the module as it was before torch.jit.script",
            )


def _refused(module: torch.nn.Module, why: str) -> UndecidableError:
    return UndecidableError(f"combine cannot make a stand-in for a {type(module).__qualname__}{why}")


def _replaced(value: Any, parts: dict[int, Any]) -> Any:
    """Return an attribute with the parts of the module in it replaced; containers are copied."""
    if isinstance(value, closure_search.PLAIN):
        return value
    if isinstance(value, (torch.nn.Module, torch.Tensor)):
        return parts.get(id(value), value)
    if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
        copied = value.copy()
        for key in value:
            copied[key] = _replaced(value[key], parts)
        return copied
    if type(value) in (list, tuple, set, frozenset):
        return type(value)([_replaced(item, parts) for item in value])
    if isinstance(value, types.MethodType) and id(value.__self__) in parts:
        return types.MethodType(value.__func__, parts[id(value.__self__)])
    if isinstance(value, functools.partial):
        return functools.partial(
            _replaced(value.func, parts),
            *[_replaced(item, parts) for item in value.args],
            **{key: _replaced(item, parts) for key, item in value.keywords.items()},
        )
    if isinstance(value, weakref.ref):
        part = _replaced(value(), parts)
        return value if part is value() else weakref.ref(part)
    return value
