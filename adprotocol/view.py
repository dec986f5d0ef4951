"""A view: the parts of an object that cannot be rebuilt, shown as a container.

A ``torch.nn.Module`` holds parameters under qualified names, but cannot be rebuilt
from other tensors. In a structure it is shown as a dict from name to tensor; the
differentiated function gets the object itself, with other tensors in it during the
call.
"""

from __future__ import annotations

from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class View:
    """Show an object in a structure as a container of its parts.

    Args:
        container: a built-in container of the parts, by name.
        flags: a container like `container` with the answer of the hook
            ``trainable`` (True, False or None) for each leaf; by default the hook
            is called for each leaf.
        fill: takes a container like `container` with other leaves; returns the
            value that the function gets in place of the object, and a function
            without arguments that undoes the change to the object. By default the
            container itself is the value.
        aliases: further names of parts, each mapped to a name in `container`.
        rebuild: takes a container like `container` with other leaves; returns a new
            value that is used as the object is and holds these. It leaves the object
            alone and shares no list, dict or flag with it, so that a change to the one
            is none to the other. By default the container itself is the value.
        others: returns what else the object holds that may be differentiated, such as
            tensors in plain attributes: no leaves, but a question about the object is
            about these as well.
    """

    __slots__ = ("aliases", "container", "fill", "flags", "others", "rebuild")

    def __init__(  # noqa: PLR0913, PLR0917  (the fields)
        self,
        container: Any,
        flags: Any = None,
        fill: Callable[[Any], tuple[Any, Callable[[], None]]] = lambda container: (container, lambda: None),
        aliases: Mapping[str, str] | None = None,
        rebuild: Callable[[Any], Any] = lambda container: container,
        others: Callable[[], Sequence[Any]] = lambda: (),
    ) -> None:
        self.container: Any = container
        self.flags: Any = flags
        self.fill: Callable[[Any], tuple[Any, Callable[[], None]]] = fill
        self.aliases: Mapping[str, str] = aliases or {}
        self.others: Callable[[], Sequence[Any]] = others
        self.rebuild: Callable[[Any], Any] = rebuild
