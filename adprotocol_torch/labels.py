"""`NonDifferentiable` as a node of PyTorch's trees, for the arguments of torch.func."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils import _pytree

from adprotocol import NonDifferentiable

if TYPE_CHECKING:
    from collections.abc import Iterable


def register() -> None:
    """Register the label; what it holds is its one child."""

    def flatten(label: NonDifferentiable[Any]) -> tuple[list[Any], None]:
        return [label.held], None

    def unflatten(children: Iterable[Any], _context: None) -> NonDifferentiable[Any]:
        (held,) = children
        return NonDifferentiable(held)

    _pytree.register_pytree_node(
        NonDifferentiable, flatten, unflatten, serialized_type_name="adprotocol.NonDifferentiable"
    )
