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
from adprotocol.extend import View, declaring, trainable_names

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
    declares = declaring()
    # In the order of named_parameters; what a class declares holds for all below.
    waiting: list[tuple[str, torch.nn.Module, bool]] = [("", module, False)]
    while waiting:
        prefix, owner, frozen = waiting.pop()
        _refuse_other_thread(module, owner)
        # torch.func.functional_call looks at the same tables.
        parameters, buffers, children = owner._parameters, owner._buffers, owner._modules  # noqa: SLF001
        allowed = trainable_names(owner, (*parameters, *buffers, *children)) if declares(owner) else None
        for name, parameter in parameters.items():
            if parameter is None:
                continue
            path = prefix + name
            first = names.setdefault(id(parameter), path)
            if first == path:
                container[path] = parameter
                places[path] = [(owner, name)]
                flags[path] = parameter.requires_grad and not frozen and (allowed is None or name in allowed)
                if not (parameter.is_floating_point() or parameter.is_complex()):
                    flags[path] = None
            else:
                aliases[path] = first
                places[first].append((owner, name))
        for name, buffer in buffers.items():
            if buffer is not None and names.setdefault(id(buffer), prefix + name) == prefix + name:
                container[prefix + name] = buffer
                flags[prefix + name] = None
        waiting.extend(
            (f"{prefix}{name}.", child, frozen or (allowed is not None and name not in allowed))
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

    return View(container, flags, fill, aliases)


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
    if torch.compiler.is_dynamo_compiling() or not _FILLED:
        return
    thread = _FILLED.get(id(owner))
    if thread is not None and thread != threading.get_ident():
        msg = (
            f"the {type(module).__qualname__} given to adprotocol is being differentiated in another thread with a "
            "selection other than its flags, and holds other tensors meanwhile; give each thread a copy "
            "(copy.deepcopy(module)), or set requires_grad_ instead of where="
        )
        raise ConcurrencyError(msg)
