"""Containers that are registered with ``jax.tree_util``: Equinox modules, flax.struct, and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def node(value: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Iterable[Any]], Any]] | None:
    """Return flatten and unflatten for the type of `value`, or None if JAX takes it for a leaf."""
    if jax.tree_util.all_leaves([value]):
        return None

    def flatten(instance: Any) -> tuple[list[Any], Any]:
        return jax.tree_util.tree_flatten(instance, is_leaf=lambda x: x is not instance)

    def unflatten(treedef: Any, children: Iterable[Any]) -> Any:
        return jax.tree_util.tree_unflatten(treedef, list(children))

    return flatten, unflatten
