"""`NonDifferentiable` as a node of JAX's pytrees, so that it may hold a tracer."""

from __future__ import annotations

from typing import Any

import jax
import jax.export
import jax.numpy as jnp

from adprotocol import NonDifferentiable
from adprotocol_jax import internals


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
    jax.export.register_pytree_node_serialization(
        NonDifferentiable,
        serialized_name="adprotocol.NonDifferentiable",
        serialize_auxdata=lambda _metadata: b"",
        deserialize_auxdata=lambda _data: None,
    )


def _child(label: NonDifferentiable[Any]) -> Any:
    """Return the label's value without its tangent; `jax.tree.leaves` is one way to reach it."""
    held = label.held
    if isinstance(held, jax.core.Tracer) and internals.is_inexact(held):
        return jax.lax.stop_gradient(held)
    return held


def as_array(label: NonDifferentiable[Any]) -> Any:
    """Return the constant that a label holds as a JAX array."""
    return jnp.asarray(label.value)
