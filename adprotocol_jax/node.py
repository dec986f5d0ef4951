"""Containers that are registered with ``jax.tree_util``: Equinox modules, flax.struct, and the like."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import jax
from jax.tree_util import DictKey, FlattenedIndexKey, GetAttrKey, SequenceKey

from adprotocol import register_trainable
from adprotocol.extend import declares
from adprotocol_jax import internals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NODES = jax.tree_util.default_registry


def node(value: Any) -> Any:
    """Return flatten, unflatten and contents for the type of `value`, or None if it is a leaf for JAX."""
    functions = internals.node_functions(type(value))
    if functions is None:
        return None
    # What flax calls a statistic is no parameter; nothing in JAX's trees says so.
    statistic = getattr(sys.modules.get("flax.nnx"), "BatchStat", None)
    if statistic is not None and isinstance(value, statistic) and not declares(type(value)):
        register_trainable(statistic, [])
    to_children, of_children = functions
    if internals.is_by_fields(to_children):
        return _by_fields(of_children)

    def flatten(instance: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        found, metadata = _NODES.flatten_one_level_with_keys(instance)
        return [child for _, child in found], metadata, _names(found)

    def contents(instance: Any) -> tuple[tuple[Any, ...], Any, None]:
        children, metadata = to_children(instance)
        return tuple(children), metadata, None

    return flatten, of_children, contents


def _by_fields(of_children: Callable[[Any, Any], Any]) -> tuple[Callable[..., Any], ...]:
    """Return the functions of a class of ``register_dataclass``: JAX flattens it without Python, 0.2 µs against 2."""
    names: tuple[str, ...] = ()
    treedef: Any = None
    fields: Callable[[Any], tuple[Any, ...]] | None = None

    def flatten(instance: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        nonlocal names, treedef, fields
        if treedef is None:
            found, metadata = _NODES.flatten_one_level_with_keys(instance)
            names = _names(found)
            if metadata == () and len(names) > 1:
                fields = attrgetter(*names)
            # JAX asks first about the instance, then about its children.
            root = iter((False,))
            treedef = jax.tree_util.tree_structure(instance, is_leaf=lambda _: next(root, True))
        children, metadata = _NODES.flatten_one_level(instance)
        return children, metadata, names

    def unflatten(metadata: Any, children: Any) -> Any:
        # Without static fields there is one treedef.
        return of_children(metadata, children) if metadata else treedef.unflatten(children)

    def contents(instance: Any) -> tuple[Any, Any, Any]:
        return flatten(instance) if fields is None else (fields(instance), (), None)

    return flatten, unflatten, contents


def register(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Iterable[Any]], Any]) -> None:
    """Register a class, with the names of its children as keys; one that JAX knows stays as it is."""
    if internals.is_registered(cls):
        return

    def without_keys(instance: Any) -> tuple[Any, Any]:
        children, metadata, _ = flatten(instance)
        return children, metadata

    def with_keys(instance: Any) -> tuple[Any, Any]:
        children, metadata, names = flatten(instance)
        return [(GetAttrKey(name), child) for name, child in zip(names, children, strict=True)], metadata

    jax.tree_util.register_pytree_with_keys(cls, with_keys, unflatten, without_keys)


def _names(found: Iterable[tuple[Any, Any]]) -> tuple[str, ...]:
    return tuple([key.name if type(key) is GetAttrKey else _name(key) for key, _ in found])


def _name(key: Any) -> str:
    if isinstance(key, GetAttrKey):
        return str(key.name)
    if isinstance(key, SequenceKey):
        return str(key.idx)
    if isinstance(key, (DictKey, FlattenedIndexKey)):
        return str(key.key)
    return str(key).lstrip(".")  # a key class of the user
