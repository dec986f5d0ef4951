"""The view of a ``torch.nn.Module``: a dict from qualified name to tensor, to be filled with other tensors for a call.

In the common case the parameters' own flags decide, and the module is not touched.
A parameter that the call freezes, or trains against its flag, is replaced in the
module's table of parameters, as ``torch.func.functional_call`` does, and put back
afterwards. Hooks, buffers and submodules stay in place.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import parametrize

from adprotocol.errors import ConcurrencyError, DeclarationError, TreeError, UndecidableError, kind_of
from adprotocol.extend import View, declaring, trainable_names
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import distributed, functional_copy, internals
from adprotocol_torch.parameters import flag, original

if TYPE_CHECKING:
    from collections.abc import Callable


_LOCK = threading.Lock()


def _renew_lock() -> None:
    """Forget a lock that is held by a thread which the child of a fork has not."""
    global _LOCK  # noqa: PLW0603
    _LOCK = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)

# By id of a submodule, the thread that replaced its tensors.
_FILLED: dict[int, int] = {}

# The active calls: each thread, with the module that it uses.
_USED: list[tuple[int, torch.nn.Module]] = []


@hookimpl
def view_types() -> tuple[type, ...]:
    """Claim modules, which are viewed as a dict."""
    return (torch.nn.Module,)


@hookimpl
def view(value: torch.nn.Module) -> View:
    """Show parameters and buffers by qualified name; a tensor with several names has the first."""
    module = value
    container: dict[str, Any] = {}
    flags: dict[str, bool | None] = {}
    places: dict[str, list[tuple[torch.nn.Module, str]]] = {}
    aliases: dict[str, str] = {}
    names: dict[Any, str] = {}
    declares = declaring()
    is_traced = torch.compiler.is_dynamo_compiling()
    wrappers = () if is_traced else distributed.wrapper_types()

    def key(tensor: torch.Tensor) -> Any:
        return tensor if is_traced else id(tensor)  # Dynamo has no id for every tensor

    # In the order of named_parameters; a declaration holds for all submodules below.
    waiting: list[tuple[str, torch.nn.Module, bool, Any]] = [("", module, False, ())]
    while waiting:
        prefix, owner, frozen, above = waiting.pop()
        _refuse_other_thread(module, owner)
        if _is_above(owner, above):
            raise _contains_itself(module, owner)
        above = (owner, above)
        if wrappers and isinstance(owner, wrappers):
            distributed.note(owner)
        # torch.func.functional_call uses the same tables.
        parameters, buffers, children = owner._parameters, owner._buffers, owner._modules  # noqa: SLF001
        if "__trainable__" in owner.__dict__ and not hasattr(type(owner), "__trainable__"):
            msg = (
                f"{kind_of(owner)} instance has its own attribute __trainable__, which would be ignored; "
                "make it a class attribute, or a property that depends on the instance, or use requires_grad_"
            )
            raise DeclarationError(msg)
        allowed = trainable_names(owner, (*parameters, *buffers, *children)) if declares(owner) else None
        for name, parameter in parameters.items():
            if parameter is None:
                continue
            path = prefix + name
            first = names.setdefault(key(parameter), path)
            if first == path:
                container[path] = parameter
                places[path] = [(owner, name)]
                # A substitute for a parameter has the parameter's flag; another tensor, as
                # torch.func.functional_call puts it there, is not a parameter and has none.
                owned = original(parameter)
                trained = flag(owned) if isinstance(owned, torch.nn.Parameter) else True
                flags[path] = trained and not frozen and (allowed is None or name in allowed)
                if not (parameter.is_floating_point() or parameter.is_complex()):
                    flags[path] = None
            else:
                aliases[path] = first
                places[first].append((owner, name))
        for name, buffer in buffers.items():
            if buffer is not None and names.setdefault(key(buffer), prefix + name) == prefix + name:
                container[prefix + name] = buffer
                flags[prefix + name] = None
        waiting.extend(
            (f"{prefix}{name}.", child, frozen or (allowed is not None and name not in allowed), above)
            for name, child in reversed(children.items())
            if child is not None
        )

    def fill(filled: dict[str, Any]) -> tuple[torch.nn.Module, Callable[[], None]]:
        changed = [
            (owner, name, container[path], filled[path])
            for path, owners in places.items()
            if filled[path] is not container[path]
            for owner, name in owners
        ]
        return module, _exchange(module, changed)

    def rebuild(filled: dict[str, Any]) -> torch.nn.Module:
        return functional_copy.make(module, container, filled)

    return View(container, flags, fill, aliases, rebuild)


def _is_above(module: torch.nn.Module, above: Any) -> bool:
    while above:
        owner, above = above
        if owner is module:
            return True
    return False


def _exchange(module: torch.nn.Module, changed: list[tuple[torch.nn.Module, str, Any, Any]]) -> Callable[[], None]:
    if torch.compiler.is_dynamo_compiling():
        wrappers = distributed.wrapper_types()
        for owner in module.modules() if wrappers else ():
            if isinstance(owner, wrappers):
                raise distributed.refused(owner)
        put(changed)
        return lambda: put([(owner, name, new, old) for owner, name, old, new in changed])
    _refuse_scripted(changed)
    use = (threading.get_ident(), module)
    flat = _flat_weights(changed)
    with _LOCK:
        _refuse_other_threads(module, changed)
        _USED.append(use)
        added = {id(owner) for owner, _, _, _ in changed} - _FILLED.keys()
        _FILLED.update(dict.fromkeys(added, use[0]))
        put(changed)
    cache = _set_cached({})

    def restore() -> None:
        with _LOCK:
            put([(owner, name, new, old) for owner, name, old, new in changed])
            for owner, lists in flat:
                vars(owner).update(lists)
            for owner_id in added:
                del _FILLED[owner_id]
            del _USED[next(i for i, other in enumerate(_USED) if other is use)]
        _set_cached(cache)

    return restore


def _flat_weights(changed: list[tuple[torch.nn.Module, str, Any, Any]]) -> list[tuple[torch.nn.Module, dict[str, Any]]]:
    """Return the lists in which a recurrent module keeps its parameters, and which it rewrites."""
    names = ("_flat_weights", "_flat_weight_refs")
    owners = {id(owner): owner for owner, _, _, _ in changed if isinstance(owner, torch.nn.RNNBase)}
    return [(owner, {name: vars(owner)[name] for name in names if name in vars(owner)}) for owner in owners.values()]


def _refuse_scripted(changed: list[tuple[torch.nn.Module, str, Any, Any]]) -> None:
    """Refuse a scripted recurrent module inside torch.func: it computes with a list of its parameters of its own.

    The engine differentiates with respect to these as well, wherever they are used.
    """
    if not internals.functorch_is_active():
        return
    for owner, _, _, new in changed:
        if (
            isinstance(owner, torch.jit.ScriptModule)
            and hasattr(owner, "_flat_weights")
            and internals.level_of(new) > 0
        ):
            msg = (
                f"a scripted {owner.original_name} cannot be differentiated inside torch.func (vmap, jvp, grad) or a "
                "dual level: TorchScript computes with its own references to the parameters. Use the module as it was "
                "before torch.jit.script"
            )
            raise UndecidableError(msg)


def _set_cached(cache: Any) -> Any:
    """Exchange the cache of ``parametrize.cached()``: what it holds was computed before, so a constant of the call."""
    before = parametrize._cache  # noqa: SLF001
    if parametrize._cache_enabled:  # noqa: SLF001
        parametrize._cache = cache  # noqa: SLF001
    return before


def put(changed: list[tuple[torch.nn.Module, str, Any, Any]]) -> None:
    """Put the new tensor of each entry, its last item, into the module."""
    for owner, name, _, new in changed:
        owner._parameters[name] = new  # noqa: SLF001


def _contains_itself(module: torch.nn.Module, owner: torch.nn.Module) -> TreeError:
    return TreeError(
        f"the {type(module).__qualname__} given to adprotocol contains itself: {kind_of(owner)} is a submodule "
        " of its own submodule; keep the back reference in a list or a weakref, so that it is not a submodule"
    )


def _refuse_other_threads(module: torch.nn.Module, changed: list[Any]) -> None:
    if _FILLED:
        for owner in module.modules():
            _refuse_other_thread(module, owner)
    if changed and _USED:
        owners = {id(owner) for owner, _, _, _ in changed}
        for thread, used in _USED:
            if thread != threading.get_ident() and any(id(owner) in owners for owner in used.modules()):
                raise _used_by_two(module)


def _refuse_other_thread(module: torch.nn.Module, owner: torch.nn.Module) -> None:
    if torch.compiler.is_dynamo_compiling() or not _FILLED:
        return
    if _FILLED.get(id(owner), threading.get_ident()) != threading.get_ident():
        raise _used_by_two(module)


def _used_by_two(module: torch.nn.Module) -> ConcurrencyError:
    from adprotocol_torch.divergence import MODULE_IN_THREADS  # noqa: PLC0415  (for the message only)

    return ConcurrencyError(
        f"the {type(module).__qualname__} given to adprotocol is being differentiated in two threads, one of them "
        "with a where= that differs from its flags, for which the module temporarily holds other tensors. "
        f"{MODULE_IN_THREADS.remedy}"
    )
