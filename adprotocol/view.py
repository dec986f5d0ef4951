"""A view: the parts of an object that cannot be rebuilt, shown as a container.

A ``torch.nn.Module`` holds parameters under qualified names, but there is no
making another one from other tensors. In a structure it is shown as a dict from
name to tensor; the function that is differentiated gets the object itself, with
other tensors in it for the time of the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def _keep(container: Any) -> tuple[Any, Callable[[], None]]:
    return container, _nothing_to_undo


def _nothing_to_undo() -> None:
    pass


class View:
    """Hold what stands for an object in a structure.

    Args:
        container: a built-in container of the parts, by name.
        flags: a container like `container` with an answer of the hook
            ``trainable`` (True, False or None) for each leaf; None to ask each
            leaf itself.
        fill: takes a container like `container`, with other leaves, to the value
            that the function gets for the object, and a function without
            arguments that undoes what was done to the object. By default the
            container itself is the value.
        aliases: further names of parts, from name to name in `container`.
    """

    __slots__ = ("aliases", "container", "fill", "flags")

    def __init__(
        self,
        container: Any,
        flags: Any = None,
        fill: Callable[[Any], tuple[Any, Callable[[], None]]] = _keep,
        aliases: Mapping[str, str] | None = None,
    ) -> None:
        self.container = container
        self.flags = flags
        self.fill = fill
        self.aliases = aliases or {}
