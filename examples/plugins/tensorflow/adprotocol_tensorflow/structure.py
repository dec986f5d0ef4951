"""Structures: the containers of `tf.nest`, classes registered with it, and labels."""

from __future__ import annotations

import dataclasses
import weakref
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.core.function import trace_type
from tensorflow.core.function.trace_type import custom_nest_trace_type

from adprotocol import NonDifferentiable
from adprotocol.errors import StructureError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The classes registered by `register`, which adprotocol takes apart by itself.
_REGISTERED: weakref.WeakSet[type] = weakref.WeakSet()


def node(value: Any) -> Any:
    """Return how to take apart a class that has the two methods by which `tf.nest` does."""
    cls = type(value)
    if cls in _REGISTERED or cls is NonDifferentiable or not all(map(cls.__dict__.__contains__, _METHODS)):
        return None

    def flatten(value: Any) -> tuple[Any, ...]:
        metadata, children = value.__tf_flatten__()
        children = tuple(children)
        names = _names(value, children)
        return (children, metadata) if names is None else (children, metadata, names)

    return flatten, lambda metadata, children: cls.__tf_unflatten__(metadata, tuple(children))


_METHODS = ("__tf_flatten__", "__tf_unflatten__")


def _names(value: Any, children: tuple[Any, ...]) -> tuple[str, ...] | None:
    """Return the fields of a dataclass in which its children are, if each is in one."""
    if not dataclasses.is_dataclass(value):
        return None
    fields = [field.name for field in dataclasses.fields(value)]
    found = []
    for child in children:
        name = next((name for name in fields if name not in found and getattr(value, name, None) is child), None)
        if name is None:
            return None
        found.append(name)
    return tuple(found)


def register(cls: type, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]) -> None:
    """Give a dataclass the methods of `tf.nest`; attrs classes it knows."""
    known = next((base for base in cls.__mro__ if "__tf_flatten__" in vars(base)), None)
    if known is cls or not (known is None or known in _REGISTERED) or not dataclasses.is_dataclass(cls):
        return

    def tf_flatten(self: Any) -> tuple[Any, tuple[Any, ...]]:
        children, metadata, _ = flatten(self)
        return metadata, tuple(children)

    def tf_unflatten(made: type, metadata: Any, children: Any) -> Any:
        if made is not cls:  # which inherits this method
            msg = (
                f"{made.__qualname__} is not registered, and its base class {cls.__qualname__} is; register it as well"
            )
            raise StructureError(msg)
        return unflatten(metadata, children)

    cls.__tf_flatten__ = tf_flatten  # type: ignore[attr-defined]
    cls.__tf_unflatten__ = classmethod(tf_unflatten)  # type: ignore[attr-defined]
    _REGISTERED.add(cls)


def label_protocol() -> Mapping[str, Any]:
    """Return what makes a label a tensor for functions of TensorFlow, and a node for `tf.nest`."""

    def tf_tensor(self: NonDifferentiable[Any], dtype: Any = None, name: str | None = None) -> Any:
        return tf.convert_to_tensor(self.value, dtype, name=name)

    def tf_tracing_type(self: NonDifferentiable[Any], context: Any) -> Any:
        # Asked for before TensorFlow would take it for a NumPy array, which has an __array__ too.
        held = trace_type.from_value(self.held, context)
        return custom_nest_trace_type.CustomNestTraceType(NonDifferentiable, None, (held,))

    return {
        "__tf_tensor__": tf_tensor,
        "__tf_tracing_type__": tf_tracing_type,
        "__tf_flatten__": lambda self: (None, (self.held,)),
        "__tf_unflatten__": classmethod(lambda cls, _, children: cls(*children)),
    }
