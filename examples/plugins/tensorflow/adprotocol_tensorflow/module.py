"""`tf.Module` as a structure: its variables under their qualified names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adprotocol.errors import OpaqueValueError
from adprotocol.extend import declares, trainable_names
from adprotocol.hookspecs import View

if TYPE_CHECKING:
    from collections.abc import Callable


def view(module: tf.Module) -> View:
    """Show the variables of a module, each under its first name."""
    variables: dict[str, Any] = {}
    flags: dict[str, bool | None] = {}
    aliases: dict[str, str] = {}
    first: dict[Any, str] = {}
    for path, variable in module._flatten(predicate=lambda one: isinstance(one, tf.Variable), with_path=True):
        name = ".".join(map(str, path))
        if first.setdefault(variable.ref(), name) != name:
            aliases[name] = first[variable.ref()]
            continue
        variables[name] = variable
        inexact = variable.dtype.is_floating or variable.dtype.is_complex
        flags[name] = variable.trainable and _is_declared(module, path) if inexact else None

    def fill(container: dict[str, Any]) -> tuple[Any, Callable[[], None]]:
        """Return the module: variables are differentiated as they are, so the leaves are its own."""
        for name, leaf in container.items():
            if leaf is not variables[name]:
                msg = (
                    f"adprotocol cannot run a tf.Module with {type(leaf).__qualname__} in the place of its variable "
                    f"{name!r}; assign to the variable, or pass the tensors themselves"
                )
                raise OpaqueValueError(msg)
        return module, _nothing

    return View(variables, flags, fill, aliases)


def _is_declared(owner: Any, path: tuple[Any, ...]) -> bool:
    """Return whether no class on the way down to a variable leaves it out."""
    for part in path:
        if isinstance(owner, tf.Module) and declares(type(owner)) and part not in trainable_names(owner, vars(owner)):
            return False
        try:
            owner = owner[part]
        except TypeError:
            owner = getattr(owner, part)
    return True


def _nothing() -> None:
    """Leave the module as it is."""
