"""The view of an ``mlx.nn.Module``: a dict from qualified name to array.

A module is a dict of arrays, modules, lists and dicts. What `freeze` has frozen has
the flag False. For a call the arrays of the model are replaced in these containers,
and put back afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
from mlx import nn

from adprotocol.extend import declares, trainable_names
from adprotocol.hookspecs import View

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Place = tuple[str, Any, Any, mx.array, bool | None]


def places(module: nn.Module) -> Iterator[Place]:
    """Iterate over the arrays of a module: name, container, key, array, and flag. A module met twice is met once."""
    for name, owner, key, value, flag in _walk(module):
        if isinstance(value, mx.array):
            yield name, owner, key, value, flag


def view(module: nn.Module) -> View:
    """Show the arrays by qualified name, with the flags that `freeze` sets."""
    found = list(places(module))
    container = {name: array for name, _, _, array, _ in found}
    flags = {name: flag for name, _, _, _, flag in found}
    aliases: dict[str, str] = {}
    for name, _, _, value, _ in _walk(module):
        if not isinstance(value, mx.array):
            aliases.update({name + part.removeprefix(value): part for part in container if _is_below(part, value)})

    def fill(filled: dict[str, mx.array]) -> tuple[nn.Module, Callable[[], None]]:
        changes = [(owner, key, array, filled[name]) for name, owner, key, array, _ in found]
        return module, exchange([change for change in changes if change[2] is not change[3]])

    def rebuild(filled: dict[str, mx.array]) -> nn.Module:
        copy: nn.Module = _copied(module, {})
        for name, owner, key, _, _ in places(copy):
            owner[key] = filled[name]
        return copy

    return View(container, flags=flags, fill=fill, aliases=aliases, rebuild=rebuild)


def exchange(changes: list[tuple[Any, Any, mx.array, mx.array]]) -> Callable[[], None]:
    """Put new arrays into containers; return what puts the old ones back."""
    for owner, key, _, new in changes:
        owner[key] = new

    def undo() -> None:
        for owner, key, old, _ in reversed(changes):
            owner[key] = old

    return undo


def _is_below(name: str, prefix: str) -> bool:
    return name == prefix or name.startswith(prefix + ".")


def _walk(module: nn.Module) -> Iterator[tuple[str, Any, Any, Any, bool | None]]:
    """Iterate over arrays, as `places`, and over the modules that were met before: their second name and the first."""
    first: dict[int, str] = {}

    def inside(prefix: str, owner: Any, items: Any, frozen: frozenset[Any] | None) -> Iterator[Any]:
        """`frozen` are the names of a module that take no gradient; None: nothing below does."""
        for key, value in list(items):
            name = f"{prefix}{key}"
            kept = frozen is None or key in frozen
            if isinstance(value, mx.array):
                inexact = mx.issubdtype(value.dtype, mx.inexact)
                yield name, owner, key, value, (not kept if inexact else None)
            elif isinstance(value, nn.Module):
                yield from of_module(name, value, frozen=kept)
            elif isinstance(value, (dict, list)):
                below = value.items() if isinstance(value, dict) else enumerate(value)
                yield from inside(f"{name}.", value, below, None if kept else frozenset())

    def of_module(name: str, owner: nn.Module, *, frozen: bool) -> Iterator[Any]:
        if id(owner) in first:
            yield name, None, None, first[id(owner)], None
            return
        first[id(owner)] = name
        # Names with an underscore are no parameters to MLX.
        items = [(key, value) for key, value in owner.items() if not key.startswith("_")]
        excluded = set(owner._no_grad)
        if declares(type(owner)):
            excluded |= {key for key, _ in items} - set(trainable_names(owner, tuple(owner)))
        yield from inside(f"{name}." if name else "", owner, items, None if frozen else frozenset(excluded))

    yield from of_module("", module, frozen=False)


def _copied(value: Any, known: dict[int, Any]) -> Any:
    """Return a copy of a module and of the containers in it; what they hold is the same."""
    if id(value) in known:
        return known[id(value)]
    if isinstance(value, nn.Module):
        copy = known[id(value)] = type(value).__new__(type(value))
        vars(copy).update(vars(value))
        vars(copy)["_no_grad"] = set(value._no_grad)
        dict.update(copy, {key: _copied(item, known) for key, item in value.items()})
        return copy
    if type(value) is dict:
        return {key: _copied(item, known) for key, item in value.items()}
    return [_copied(item, known) for item in value] if type(value) is list else value
