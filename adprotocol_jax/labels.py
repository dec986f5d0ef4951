"""`NonDifferentiable` as a node of JAX's trees, so that it may hold a tracer."""

from __future__ import annotations

from typing import Any

import jax

from adprotocol import NonDifferentiable


def register() -> None:
    """Register the label with ``jax.tree_util``; what it holds is its one child."""
    key = jax.tree_util.GetAttrKey("value")

    def with_keys(label: NonDifferentiable[Any]) -> tuple[tuple[tuple[Any, Any]], None]:
        return ((key, label.held),), None

    def flatten(label: NonDifferentiable[Any]) -> tuple[tuple[Any], None]:
        return (label.held,), None

    def unflatten(_metadata: None, children: Any) -> NonDifferentiable[Any]:
        (held,) = children
        return NonDifferentiable(held)

    jax.tree_util.register_pytree_with_keys(NonDifferentiable, with_keys, unflatten, flatten)
