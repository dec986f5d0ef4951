"""The view of a ``torch.nn.Module``: a dict from qualified name to tensor, to be filled with other tensors for a call.

In the common case the parameters' own flags decide, and the module is not touched.
A parameter that the call freezes, or differentiates in a nested derivative, is replaced
in the module's table of parameters, as ``torch.func.functional_call`` does, and put
back afterwards. Hooks, buffers and submodules stay in place.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import ConcurrencyError, DeclarationError, TreeError
from adprotocol.extend import declares, trainable_names
from adprotocol.hookspecs import View, hookimpl
from adprotocol.messages import kind_of
from adprotocol_torch import attributes, internals, stand_in
from adprotocol_torch.checkpoints import FIRST_PASSES
from adprotocol_torch.parameters import LOCAL, no_op, refused_in_graph, takes_gradient
from adprotocol_torch.tensors import remedy
from adprotocol_torch.tracking import within_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from adprotocol_torch.parameters import Calls

    # The parameters of a submodule, the name of one, and the tensor to put there.
    _Change = tuple[dict[str, Any], str, Any]

# Python itself has room for calls of fewer modules in each other.
_DEEPEST = 1_000

# For each call under way those of its thread, the ids of the modules that it uses, and whether it changes them.
_UNDER_WAY: dict[object, tuple[Calls, set[int], bool]] = {}


@hookimpl
def views() -> dict[type, Callable[[Any], View]]:
    """Show modules as dicts."""
    return {torch.nn.Module: _Contents}


class _Contents(View):
    """The tensors of a module by qualified name, in the order of named_parameters, and their places in it.

    A tensor with several names has the first. A question needs no names, so these are found when they are first read.
    """

    def __init__(self, module: torch.nn.Module) -> None:  # its attributes are set by `_collect`
        self._module = module
        if torch.compiler.is_dynamo_compiling():
            self._collect()

    def __getattr__(self, name: str) -> Any:
        self._collect()
        return object.__getattribute__(self, name)

    def _collect(self) -> None:
        module = self._module
        self.container: dict[str, Any] = {}
        self.flags: dict[str, bool | None] = {}
        # The further names of a tensor, each with the first.
        self.aliases: dict[str, str] = {}
        # The module and its submodules; PyTorch's own list of them recurses.
        self._owners: list[torch.nn.Module] = []
        self._places: dict[str, list[tuple[dict[str, Any], str]]] = {}
        # Dynamo has no id for every tensor.
        key: Callable[[Any], Any] = (lambda tensor: tensor) if torch.compiler.is_dynamo_compiling() else id
        names: dict[Any, str] = {}
        # The classes that were met and declare nothing.
        silent: set[type] = set()
        # A declaration holds for all submodules below.
        waiting: list[tuple[str, torch.nn.Module, bool, int]] = [("", module, False, 0)]
        while waiting:
            prefix, owner, frozen, depth = waiting.pop()
            if depth > _DEEPEST:
                raise TreeError(
                    f"the {type(module).__qualname__} given to adprotocol contains itself, {depth:,} levels below, in "
                    f"{kind_of(owner)}; keep a back reference in a list or a weakref, so that it is not a submodule"
                )
            self._owners.append(owner)
            parameters, buffers, children = internals.tables_of(owner)
            cls = type(owner)
            if "__trainable__" in owner.__dict__ and not hasattr(cls, "__trainable__"):
                raise DeclarationError(
                    f"{kind_of(owner)} instance has its own attribute __trainable__, which would be ignored; make it a "
                    "class attribute, or a property that depends on the instance, or use requires_grad_"
                )
            if cls not in silent and not declares(cls):
                silent.add(cls)
            allowed = None if cls in silent else trainable_names(owner, (*parameters, *buffers, *children))
            for name, tensor in (*parameters.items(), *buffers.items()) if buffers else parameters.items():
                if tensor is None:
                    continue
                path = prefix + name
                first, is_parameter = names.setdefault(key(tensor), path), not buffers or name in parameters
                if is_parameter:
                    self._places.setdefault(first, []).append((parameters, name))
                if first == path:
                    can = is_parameter and (tensor.is_floating_point() or tensor.is_complex())
                    takes = can and not frozen and (allowed is None or name in allowed)
                    self.container[path] = tensor
                    # A tensor that torch.func.functional_call puts there is no parameter, and has no flag.
                    self.flags[path] = (takes and takes_gradient(tensor)) if can else None
                elif is_parameter:
                    self.aliases[path] = first
            for name, child in reversed(children.items()):
                if child is not None:
                    below = frozen or (allowed is not None and name not in allowed)
                    waiting.append((f"{prefix}{name}.", child, below, depth + 1))
        if not torch.compiler.is_dynamo_compiling():
            _refuse_second_user(self._owners)

    def fill(self, filled: dict[str, Any]) -> tuple[torch.nn.Module, Callable[[], None]]:
        """Put other tensors into the module; return it, and the function that puts its own back."""
        changed = [
            (parameters, name, filled[path])
            for path, places in self._places.items()
            if filled[path] is not self.container[path]
            for parameters, name in places
        ]
        if torch.compiler.is_dynamo_compiling() and changed:
            raise refused_in_graph()
        if not changed:
            return self._module, no_op if torch.compiler.is_dynamo_compiling() else _enter(self._owners, changes=False)

        pairs = [
            (old, filled[path], internals.contents_of(filled[path]))
            for path, old in self.container.items()
            if filled[path] is not old
        ]
        # Again for a checkpoint that runs again, and for a pull that comes after the call.
        restore = LOCAL.calls.change(lambda: _put(changed, _enter(self._owners, changes=True)))
        return self._module, functools.partial(_put_back, restore, pairs)

    def others(self) -> list[Any]:
        """Return the tensors in other attributes."""
        if torch.compiler.is_dynamo_compiling():
            return [vars(owner)[name] for owner in self._owners for name in attributes.tensor_names(owner)]
        return list(attributes.tensors(self._owners))

    def asked(self) -> Sequence[Any]:
        """Return the first tensor that is tracked, if there is one: parameters and buffers come first."""
        if torch.compiler.is_dynamo_compiling():
            return (self.container, *self.others())
        if _UNDER_WAY and any(calls is not LOCAL.calls for calls, *_ in list(_UNDER_WAY.values())):
            self._collect()  # refuses them
        is_simple = not (internals.in_transform() or FIRST_PASSES)
        if is_simple and not torch.is_grad_enabled():
            return ()
        for tensor in _tensors(self._module):
            if (tensor.requires_grad or not is_simple) and within_gradient(tensor):
                return (tensor,)
        return ()

    def rebuild(self, filled: dict[str, Any]) -> torch.nn.Module:
        """Return a copy of the module with other tensors."""
        if torch.compiler.is_dynamo_compiling():
            raise stand_in.refused(
                self._module,
                " in a graph, for Dynamo does not trace copy.deepcopy; make it before the compiled function, or "
                "compile that without fullgraph=True",
            )
        return stand_in.make(self._module, self.container, filled)


def _tensors(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters and buffers of a module and its submodules, then the tensors in their other attributes."""
    waiting, owners = [module], {id(module): module}
    while waiting:  # depth first, for the first parameter lies deep
        parameters, buffers, children = internals.tables_of(waiting.pop())
        if parameters or buffers:
            yield from [tensor for tensor in (*parameters.values(), *buffers.values()) if tensor is not None]
        for child in reversed(children.values()):
            if child is not None and id(child) not in owners:
                owners[id(child)] = child
                waiting.append(child)
    yield from attributes.tensors(owners.values())


def _enter(owners: list[torch.nn.Module], *, changes: bool) -> Callable[[], Any]:
    """Note that a call uses modules, and whether it puts other tensors there, until the returned function is called."""
    key = object()
    # Before the look at the others, so that of two threads one at least sees the other.
    _UNDER_WAY[key] = (LOCAL.calls, set(map(id, owners)), changes)
    leave = functools.partial(_UNDER_WAY.pop, key)
    try:
        _refuse_second_user(owners, changes=changes)
    except ConcurrencyError:
        leave()
        raise
    return leave


def _refuse_second_user(owners: list[torch.nn.Module], *, changes: bool = False) -> None:
    """Refuse modules in use in another thread, if it or this one puts other tensors there."""
    for calls, used, changed in list(_UNDER_WAY.values()):
        if calls is not LOCAL.calls and (changes or changed) and not used.isdisjoint(map(id, owners)):
            raise ConcurrencyError(
                f"a {type(owners[0]).__qualname__} given to adprotocol is in use in two threads (asking is a use), one "
                f"in a call of grad with a where= for which it holds other tensors. {remedy('module-in-threads')}"
            )


@internals.skip  # a frame of its own where a graph breaks
def _put_back(restore: Callable[[], None], pairs: list[tuple[torch.Tensor, torch.Tensor, tuple[int, int]]]) -> None:
    """Put a module's tensors back; let them have what the call assigned to those in their place, as ActNorm does."""
    restore()
    for old, new, contents in pairs:
        current = internals.contents_of(new)
        if current != contents:
            if current[0] != contents[0]:
                old.data = new.data
            elif current[0] != internals.memory_of(old):
                with torch.no_grad():
                    old.copy_(new)


def _put(changed: list[_Change], leave: Callable[[], Any]) -> Callable[[], None]:
    before = [parameters[name] for parameters, name, _ in changed]
    for parameters, name, new in changed:
        parameters[name] = new

    def put_back() -> None:
        for (parameters, name, new), old in zip(changed, before, strict=True):
            # What the function put there itself stays, as after a plain call.
            if name in parameters and parameters[name] is new:
                parameters[name] = old
        leave()

    return put_back
