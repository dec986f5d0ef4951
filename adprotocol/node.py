"""The kinds of node: which classes the traversal takes apart, and how.

Dictionaries, lists, tuples and named tuples are optree's own. Dataclasses and
attrs classes become nodes on first sight, and so do the types that a plugin's
``tree_node`` knows (what is registered with ``jax.tree_util``, for one).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol import plugins
from adprotocol.tracing import run_while_tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Of our own, so that what others register with optree and how stays theirs.
NAMESPACE = "adprotocol"

# The types registered with optree in our namespace.
_NODES: set[type] = set()


def admit(cls: type) -> bool:
    """Make `cls` a node if it is a dataclass or an attrs class."""
    if cls in _NODES:
        return True
    return _has_fields(cls) and (
        # A framework that knows the class knows which fields are static (Equinox, flax.struct).
        # Only the type of the blank instance is looked at.
        admit_registered(cls) or _register(cls, _flatten_fields(cls), _unflatten_fields(cls))
    )


def admit_registered(cls: type) -> bool:
    """Make `cls` a node if a plugin knows it as a container, by a blank instance of it."""
    try:
        blank: Any = object.__new__(cls)
    except TypeError:  # abstract, or of an extension module
        return False
    return admit_value(blank)


@run_while_tracing
def admit_value(value: Any) -> bool:
    """Make the type of `value` a node if a plugin knows it as a container."""
    node = plugins.tree_node(value)
    return node is not None and _register(type(value), *node)


def _register(cls: type, flatten: Any, unflatten: Any) -> bool:
    import optree  # noqa: PLC0415

    with plugins.LOCK:
        if cls not in _NODES:
            optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)
            _NODES.add(cls)
    return True


def _has_fields(cls: type) -> bool:
    return "__dataclass_fields__" in dir(cls) or "__attrs_attrs__" in dir(cls)


def _field_names(cls: type) -> tuple[str, ...]:
    attrs_fields = getattr(cls, "__attrs_attrs__", None)
    if attrs_fields is not None:
        return tuple(field.name for field in attrs_fields)
    from dataclasses import fields  # noqa: PLC0415  (15 ms; not at import)

    return tuple(field.name for field in fields(cls))


def _flatten_fields(cls: type) -> Callable[[Any], tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]]:
    """Flatten by attribute: declared fields first, then what `__post_init__` added.

    A ``cached_property`` is left out, so that it is computed anew from the
    rebuilt fields instead of keeping a value that may be tracked.
    """
    declared = _field_names(cls)
    left_out = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_cached(value)}

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
        added = [name for name in getattr(value, "__dict__", ()) if name not in declared and name not in left_out]
        names = (*(name for name in declared if hasattr(value, name)), *added)
        return tuple(getattr(value, name) for name in names), names, names

    return flatten


def _is_cached(value: Any) -> bool:
    return type(value).__name__ == "cached_property"


def _unflatten_fields(cls: type) -> Callable[[tuple[str, ...], Iterable[Any]], Any]:
    def unflatten(names: tuple[str, ...], children: Iterable[Any]) -> Any:
        # Past __init__ and a frozen __setattr__, as copy.copy does: the values
        # were accepted once, and ``init=False`` fields have no argument.
        value: Any = object.__new__(cls)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(value, name, child)
        return value

    return unflatten
