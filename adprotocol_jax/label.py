"""`NonDifferentiable` as a node of JAX's pytrees, so that it may hold a tracer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from adprotocol import NonDifferentiable
from adprotocol_jax import internals
from adprotocol_jax.constant import as_constant_if_tracked


def register() -> None:
    """Register the label with ``jax.tree_util``; the value it holds is its one child."""
    key = jax.tree_util.GetAttrKey("value")

    def with_keys(label: NonDifferentiable[Any]) -> tuple[tuple[tuple[Any, Any]], None]:
        return ((key, _child(label)),), None

    def flatten(label: NonDifferentiable[Any]) -> tuple[tuple[Any], None]:
        return (_child(label),), None

    def unflatten(_metadata: None, children: Any) -> NonDifferentiable[Any]:
        (held,) = children
        return NonDifferentiable(held)

    jax.tree_util.register_pytree_with_keys(NonDifferentiable, with_keys, unflatten, flatten)
    internals.register_for_export(NonDifferentiable, "adprotocol.NonDifferentiable")


def _child(label: NonDifferentiable[Any]) -> Any:
    """Return what the label holds, without its tangents: a leaf of `jax.tree.leaves` is a way out of it, too."""
    held = label.held
    if isinstance(held, jax.core.Tracer):
        return as_constant_if_tracked(held)
    leaves, treedef = jax.tree.flatten(held)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return jax.tree.unflatten(treedef, map(as_constant_if_tracked, leaves))
    return held


def as_array(label: NonDifferentiable[Any]) -> Any:
    """Return the constant that a label holds as a JAX array."""
    return jnp.asarray(label.value)
