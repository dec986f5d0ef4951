"""A ``torch.nn.Module`` shown as a dict from qualified name to tensor, and filled with other tensors for a call.

Nothing is done to a module whose tensors all stay: the common case, where the
parameters' own flags say what is trained. A parameter that the call freezes, or
trains against its flag, is replaced in the module's table of parameters, as
``torch.func.functional_call`` does, and put back afterwards. Hooks, buffers and
submodules are the module's own throughout.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import ConcurrencyError
from adprotocol.extend import View, trainable_names

if TYPE_CHECKING:
    from collections.abc import Callable

# Which thread has put other tensors into a submodule, by the id of the submodule.
_FILLED: dict[int, int] = {}


def view(module: torch.nn.Module) -> View:
    """Show parameters and buffers; one under several names has the first."""
    container: dict[str, Any] = {}
    flags: dict[str, bool | None] = {}
    places: dict[str, list[tuple[torch.nn.Module, str]]] = {}
    aliases: dict[str, str] = {}
    names: dict[int, str] = {}
    for prefix, owner, frozen in _submodules(module):
        _refuse_other_thread(module, owner)
        allowed = _allowed(owner)
        for name, parameter in owner._parameters.items():  # noqa: SLF001  (torch.func.functional_call writes there)
            if parameter is None:
                continue
            path = prefix + name
            first = names.setdefault(id(parameter), path)
            places.setdefault(first, []).append((owner, name))
            if first != path:
                aliases[path] = first
                continue
            container[path] = parameter
            declared = not frozen and (allowed is None or name in allowed)
            able = parameter.is_floating_point() or parameter.is_complex()
            flags[path] = (declared and parameter.requires_grad) if able else None
        for name, buffer in owner._buffers.items():  # noqa: SLF001
            if buffer is not None and names.setdefault(id(buffer), prefix + name) == prefix + name:
                container[prefix + name] = buffer
                flags[prefix + name] = None

    def fill(filled: dict[str, Any]) -> tuple[torch.nn.Module, Callable[[], None]]:
        changed = [
            (owner, name, container[path], filled[path])
            for path, owners in places.items()
            if filled[path] is not container[path]
            for owner, name in owners
        ]
        return module, _exchange(module, changed)

    return View(container, flags, fill, aliases)


def _submodules(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module, bool]]:
    """Return each submodule once for each of its names, with its prefix and whether a class above froze it."""
    found = []
    waiting: list[tuple[str, torch.nn.Module, bool]] = [("", module, False)]
    while waiting:
        prefix, owner, frozen = waiting.pop()
        found.append((prefix, owner, frozen))
        allowed = _allowed(owner)
        below = [
            (f"{prefix}{name}.", child, frozen or (allowed is not None and name not in allowed))
            for name, child in owner._modules.items()  # noqa: SLF001
            if child is not None
        ]
        waiting.extend(reversed(below))
    return found


def _allowed(owner: torch.nn.Module) -> set[str] | None:
    """Return the parameters and submodules that the class of a module declares as trainable; None for all."""
    return trainable_names(owner, (*owner._parameters, *owner._modules, *owner._buffers))  # noqa: SLF001


def _exchange(module: torch.nn.Module, changed: list[tuple[torch.nn.Module, str, Any, Any]]) -> Callable[[], None]:
    if torch.compiler.is_dynamo_compiling():
        put(changed)
        return lambda: put([(owner, name, new, old) for owner, name, old, new in changed])
    for owner, _, _, _ in changed:
        _refuse_other_thread(module, owner)
    mine = [id(owner) for owner, _, _, _ in changed if id(owner) not in _FILLED]
    for owner_id in mine:
        _FILLED[owner_id] = threading.get_ident()
    put(changed)

    def restore() -> None:
        put([(owner, name, new, old) for owner, name, old, new in changed])
        for owner_id in mine:
            _FILLED.pop(owner_id, None)

    return restore


def put(changed: list[tuple[torch.nn.Module, str, Any, Any]]) -> None:
    """Put the last tensor of each entry in the place of the one before it."""
    for owner, name, _, new in changed:
        owner._parameters[name] = new  # noqa: SLF001


def _refuse_other_thread(module: torch.nn.Module, owner: torch.nn.Module) -> None:
    if torch.compiler.is_dynamo_compiling():
        return
    thread = _FILLED.get(id(owner))
    if thread is not None and thread != threading.get_ident():
        msg = (
            f"the {type(module).__qualname__} given to adprotocol is being differentiated in another thread with a "
            "selection other than its flags, and holds other tensors meanwhile; give each thread a copy "
            "(copy.deepcopy(module)), or set requires_grad_ instead of where="
        )
        raise ConcurrencyError(msg)
