"""Containers that are registered with PyTorch's pytrees (``torch.utils._pytree``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import _pytree  # PyTorch has no public tree library; its own packages register here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def node(value: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Iterable[Any]], Any]] | None:
    """Return flatten and unflatten for the type of `value`, or None if PyTorch takes it for a leaf."""
    definition = _pytree.SUPPORTED_NODES.get(type(value))
    if definition is None:
        return None

    def unflatten(context: Any, children: Iterable[Any]) -> Any:
        return definition.unflatten_fn(list(children), context)

    return definition.flatten_fn, unflatten
