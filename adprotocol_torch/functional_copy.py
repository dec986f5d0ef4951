"""A stand-in for a module: an object of the same class, with other tensors in the place of the module's own.

``torch.func.functional_call`` puts tensors into the module for the time of a call. A
checkpoint runs parts of the call again in the backward pass, when the module holds its
own tensors again, and the gradient is wrong without an error. A stand-in is an object
of its own, with submodules of its own, so that the module is never touched.

Attributes are shared, not copied. The parts of the module that lists, dicts, bound
methods and the like hold are replaced too. Closures and objects that hold one cannot
be changed (`closure_search`), and would compute with the module's own tensors: an error,
as is the use of what may be a cache. What a ``cached_property`` holds is computed again.
"""

from __future__ import annotations

import copy
import functools
import types
import weakref
from collections.abc import MutableMapping, MutableSequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import parametrize

from adprotocol.errors import UndecidableError
from adprotocol.extend import attribute_names
from adprotocol_torch import closure_search, distributed, dynamo, internals

if TYPE_CHECKING:
    from collections.abc import Iterable


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
        cached = closure_search.cached_names(type(owner))
        for name in attribute_names(owner):
            # What was computed from the module's own tensors the stand-in computes again.
            if name not in cached:
                object.__setattr__(new, name, _Replacing(parts, owner, name).of(owner.__dict__[name]))
        if not torch.compiler.is_dynamo_compiling() and parametrize.is_parametrized(owner):
            _share_no_cache(new, owner)
    return parts[id(module)]  # type: ignore[no-any-return]


class _Property(property):
    """A parametrized tensor: ``parametrize.cached()`` keeps it by the module for which the class was made.

    So a stand-in, which shares the class, computes its own.
    """

    def __init__(self, name: str, of_module: property) -> None:
        def get(owner: Any) -> Any:
            if "_adprotocol_is_copy" in vars(owner):
                return owner.parametrizations[name]()
            return of_module.fget(owner)  # type: ignore[misc]

        super().__init__(get, of_module.fset)


def _share_no_cache(new: torch.nn.Module, owner: torch.nn.Module) -> None:
    cls = type(owner)
    for name in owner.parametrizations:  # type: ignore[union-attr]
        made = vars(cls)[name]
        if not isinstance(made, _Property):
            setattr(cls, name, _Property(name, made))
    vars(new)["_adprotocol_is_copy"] = True


def _check(module: torch.nn.Module) -> None:
    if torch.compiler.is_dynamo_compiling():
        dynamo.install()
    else:
        _refuse_compiled(module)
    found = closure_search.find(module)
    if found is not None:
        raise _refused(module, f": {found}")
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


def _refuse_compiled(module: torch.nn.Module) -> None:
    for owner in module.modules():
        if "_orig_mod" in internals.tables_of(owner)[2] or vars(owner).get("_compiled_call_impl") is not None:
            raise _refused(
                owner,
                ", which torch.compile has compiled for the tensors that it was made with; use the module as it was "
                "before, and compile the function that calls the stand-in",
            )


def _refused(module: torch.nn.Module, why: str) -> UndecidableError:
    return UndecidableError(f"combine cannot make a stand-in for a {type(module).__qualname__}{why}")


class _Replacing:
    """Replace the parts of a module in one attribute of it; containers are copied."""

    def __init__(self, parts: dict[int, Any], owner: torch.nn.Module, name: str) -> None:
        self.parts = parts
        self.owner = owner
        self.name = name

    def of(self, value: Any) -> Any:
        """Return a value with the parts in it replaced."""
        if isinstance(value, closure_search.PLAIN):
            return value
        if isinstance(value, (torch.nn.Module, torch.Tensor)):
            return self.part(value)
        if isinstance(value, dict) and type(value).__module__ in ("builtins", "collections"):
            copied = value.copy()
            for key in value:
                copied[key] = self.of(value[key])
            return copied
        if type(value) in (list, tuple, set, frozenset):
            return type(value)([self.of(item) for item in value])
        if isinstance(value, types.MethodType) and id(value.__self__) in self.parts:
            return types.MethodType(value.__func__, self.parts[id(value.__self__)])
        if isinstance(value, functools.partial):
            return functools.partial(
                self.of(value.func),
                *[self.of(item) for item in value.args],
                **{key: self.of(item) for key, item in value.keywords.items()},
            )
        if isinstance(value, weakref.ref):
            part = self.of(value())
            return value if part is value() else weakref.ref(part)
        return value if torch.compiler.is_dynamo_compiling() else self.of_another_container(value)

    def part(self, value: Any) -> Any:
        """Return what is in the place of a module or tensor, which is itself if it is no part."""
        if id(value) in self.parts or torch.compiler.is_dynamo_compiling() or isinstance(value, torch.nn.Module):
            return self.parts.get(id(value), value)
        if closure_search.may_be_cached(value, self.owner, self.name):
            return closure_search.OldTensor.of(f"the attribute {self.name!r} of its {type(self.owner).__qualname__}")
        return value

    def of_another_container(self, value: Any) -> Any:
        """Return a copy of a container of another class, itself if nothing in it is replaced."""
        if isinstance(value, tuple):
            items = [self.of(item) for item in value]
            make = getattr(type(value), "_make", type(value))
            return value if _same(items, value) else make(items)
        if isinstance(value, internals.WrappedHook):
            return internals.WrappedHook(self.of(value.hook), self.of(value.module()) if value.with_module else None)
        if not isinstance(value, (MutableMapping, MutableSequence)):
            return value
        keys = list(value) if isinstance(value, MutableMapping) else range(len(value))
        items = [self.of(value[key]) for key in keys]
        if _same(items, [value[key] for key in keys]):
            return value
        copied = copy.copy(value)
        for key, item in zip(keys, items, strict=True):
            copied[key] = item
        return copied


def _same(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return all(one is other for one, other in zip(new, old, strict=True))
