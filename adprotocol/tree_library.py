"""A tree library: how a framework's own trees flatten a class, and how they learn a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Children = Iterable[Any]
    Metadata = Any
    Flattened = tuple[Children, Metadata] | tuple[Children, Metadata, Iterable[str]]
    Unflatten = Callable[[Metadata, Children], Any]
    Node = tuple[Callable[[Any], Flattened], Unflatten]


class TreeLibrary(NamedTuple):
    """Hold the functions that reach a framework's own tree library, such as ``jax.tree_util``.

    Args:
        node: takes a value; returns ``(flatten, unflatten)`` for its type, or None if
            the library does not know that. ``flatten`` takes an instance and returns
            ``(children, metadata)`` or ``(children, metadata, names)``, with hashable,
            comparable metadata and the names of the children in paths (by default
            their positions). ``unflatten`` takes ``(metadata, children)`` and must
            accept any children. Called once for each type except the built-in
            containers; for a dataclass, whose static fields only the framework may
            know, with a blank instance that has no attributes yet.
        register: takes ``(cls, flatten, unflatten)`` and registers a dataclass or an
            attrs class with the library, as `adprotocol.register_structure` asks.
            ``flatten`` takes an instance and returns its children, the metadata
            (hashable and comparable: names and static fields), and the names of the
            children, for libraries that show paths; ``unflatten`` takes any
            children, and calls no constructor. Leave a class that the library knows
            as it is. Called when the class is registered, or, for those registered
            before, when the plugin is loaded: at the end of the import of its
            framework. By default the library learns no class.
    """

    node: Callable[[Any], Node | None]
    register: Callable[[type, Callable[[Any], Any], Unflatten], None] | None = None
