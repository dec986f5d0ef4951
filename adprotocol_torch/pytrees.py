"""PyTorch's pytrees (``torch.utils._pytree``): what is registered there, and labels, nodes for torch.func."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from adprotocol import NonDifferentiable
from adprotocol.extend import unlabelled
from adprotocol.hookspecs import TreeLibrary, hookimpl
from adprotocol_torch.internals import pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@hookimpl
def tree_library() -> TreeLibrary:
    """Return the functions for PyTorch's pytrees."""
    return TreeLibrary(node, register)


def node(value: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Iterable[Any]], Any]] | None:
    """Return flatten and unflatten for the type of `value`, or None if it is a leaf for PyTorch."""
    definition = pytree.SUPPORTED_NODES.get(type(value))
    # A shape is a constant, which PyTorch would rebuild as a plain tuple.
    if definition is None or isinstance(value, torch.Size):
        return None
    # A dataclass is flattened by its fields: PyTorch leaves out fields that are None, so that a part of a model, with
    # None where there is no leaf, would have another structure than the whole.
    if getattr(definition.flatten_fn, "__qualname__", "").startswith("register_dataclass."):
        return None

    def unflatten(context: Any, children: Iterable[Any]) -> Any:
        return definition.unflatten_fn(list(children), context)

    with_keys = definition.flatten_with_keys_fn
    if with_keys is None:
        return definition.flatten_fn, unflatten

    def flatten(instance: Any) -> tuple[list[Any], Any, list[str]]:
        children, context = with_keys(instance)
        return [child for _, child in children], context, [_name(key) for key, _ in children]

    return flatten, unflatten


def register(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
    """Register a class, under its full name, by which ``torch.export`` saves it; a known one stays as it is."""
    if cls in pytree.SUPPORTED_NODES:
        return

    def without_keys(instance: Any) -> tuple[list[Any], Any]:
        children, metadata, _ = flatten(instance)
        return list(children), metadata

    def with_keys(instance: Any) -> tuple[list[Any], Any]:
        children, metadata, names = flatten(instance)
        return [(pytree.GetAttrKey(name), child) for name, child in zip(names, children, strict=True)], metadata

    pytree.register_pytree_node(
        cls,
        without_keys,
        lambda children, metadata: unflatten(metadata, children),
        serialized_type_name=f"{cls.__module__}.{cls.__qualname__}",
        to_dumpable_context=lambda metadata: metadata,  # JSON writes tuples as lists, and refuses what it cannot write
        from_dumpable_context=_as_tuples,
        flatten_with_keys_fn=with_keys,
    )


def _as_tuples(metadata: Any) -> Any:
    return tuple(map(_as_tuples, metadata)) if isinstance(metadata, list) else metadata


def _name(key: Any) -> str:
    # Of GetAttrKey, MappingKey, SequenceKey.
    return str(next((getattr(key, name) for name in ("name", "key", "idx") if hasattr(key, name)), key))


def register_label() -> None:
    """Register the label; the value it holds is its one child."""
    pytree.register_pytree_node(
        NonDifferentiable,
        lambda label: ([label.held], None),
        lambda held, _context: NonDifferentiable(*held),
        serialized_type_name="adprotocol.NonDifferentiable",
    )


def _torch_function(_cls: type, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
    return func(*unlabelled(args), **unlabelled(kwargs or {}))


@hookimpl
def label_protocol() -> dict[str, Any]:
    """Let PyTorch's functions read a label as the constant that it holds."""
    return {"__torch_function__": classmethod(_torch_function)}
