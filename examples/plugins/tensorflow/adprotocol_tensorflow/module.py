"""`tf.Module` as a structure: its variables under their qualified names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import tensorflow as tf

from adprotocol.errors import OpaqueValueError
from adprotocol.extend import View

if TYPE_CHECKING:
    from collections.abc import Callable


def view(module: tf.Module) -> View:
    """Show the variables of a module, each under its first name."""
    found = module._flatten(predicate=lambda one: isinstance(one, tf.Variable), with_path=True)  # noqa: SLF001  (documented, for subclasses)
    variables = {".".join(map(str, path)): variable for path, variable in found}

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

    return View(variables, fill=fill)


def _nothing() -> None:
    """Leave the module as it is."""
