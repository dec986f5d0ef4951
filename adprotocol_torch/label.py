"""`NonDifferentiable` as a node of PyTorch's pytrees, for torch.func, and as an argument of PyTorch's functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol import NonDifferentiable
from adprotocol.extend import unlabelled
from adprotocol.hookspecs import hookimpl
from adprotocol_torch.internals import pytree

if TYPE_CHECKING:
    from collections.abc import Iterable


def register() -> None:
    """Register the label; the value it holds is its one child."""

    def flatten(label: NonDifferentiable[Any]) -> tuple[list[Any], None]:
        return [label.held], None

    def unflatten(children: Iterable[Any], _context: None) -> NonDifferentiable[Any]:
        (held,) = children
        return NonDifferentiable(held)

    pytree.register_pytree_node(
        NonDifferentiable, flatten, unflatten, serialized_type_name="adprotocol.NonDifferentiable"
    )


def _torch_function(_cls: type, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*unlabelled(args), **unlabelled(kwargs or {}))


@hookimpl
def label_protocol() -> dict[str, Any]:
    """Let PyTorch's functions read a label as the constant that it holds."""
    return {"__torch_function__": classmethod(_torch_function)}
