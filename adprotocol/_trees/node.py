"""Nodes: the classes that the traversal flattens, and how.

Dicts, lists, tuples and named tuples are optree's own. Dataclasses and attrs
classes become nodes when they are first met, as do the types that a plugin's hook
`tree_node` knows (those registered with the framework's own tree library).
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.registry import LOCK, REGISTRY
from adprotocol.errors import DeclarationError, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# The attribute by which a class declares its trainable fields.
DECLARATION = "__trainable__"

# A namespace of our own, apart from what others register with optree.
NAMESPACE = "adprotocol"

# The types registered with optree in our namespace.
_NODES: set[type] = set()


def admit(cls: type) -> bool:
    """Make `cls` a node if it is a dataclass or an attrs class."""
    if cls in _NODES:
        return True
    # A class that is registered with optree for every namespace keeps that; a member of an Enum is a constant.
    return (
        has_fields(cls)
        and not _is_in_optree(cls)
        and not is_enum(cls)
        and (
            # A framework that knows the class knows which of its fields are static.
            admit_registered(cls) or _register(cls, _flatten_fields(cls), _unflatten_fields(cls))
        )
    )


def _is_in_optree(cls: type) -> bool:
    import optree  # noqa: PLC0415

    return optree.register_pytree_node.get(cls, namespace=NAMESPACE) is not None


def is_enum(cls: type) -> bool:
    """Tell whether the instances of `cls` are the members of an Enum."""
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(cls, enum.Enum)


def admit_registered(cls: type) -> bool:
    """Make `cls` a node if a plugin, given a blank instance, knows it as a container."""
    try:
        blank: Any = object.__new__(cls)
    except TypeError:  # abstract, or of an extension module
        return False
    return admit_value(blank)


def admit_value(value: Any) -> bool:
    """Make the type of `value` a node if a plugin knows it as a container."""
    for plugin in REGISTRY.active():
        hook = plugin.hooks.get("tree_node")
        node = None if hook is None else hook(value)
        if node is not None:
            return _register(type(value), *node)
    return False


def _register(cls: type, flatten: Any, unflatten: Any) -> bool:
    import optree  # noqa: PLC0415

    with LOCK:
        if cls not in _NODES:
            optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)
            _NODES.add(cls)
    return True


def has_fields(cls: type) -> bool:
    """Tell whether `cls` is a dataclass or an attrs class."""
    return "__dataclass_fields__" in dir(cls) or "__attrs_attrs__" in dir(cls)


def field_names(cls: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or an attrs class."""
    attrs_fields = getattr(cls, "__attrs_attrs__", None)
    if attrs_fields is not None:
        return tuple(field.name for field in attrs_fields)
    from dataclasses import fields  # noqa: PLC0415  (15 ms; not at import)

    return tuple(field.name for field in fields(cls))


def _flatten_fields(cls: type) -> Callable[[Any], tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]]:
    """Flatten by attribute: declared fields first, then the attributes that `__post_init__` added.

    A ``cached_property`` is left out, so that it is computed again from the rebuilt
    fields instead of keeping a value that may be tracked.
    """
    declared = field_names(cls)
    left_out = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_cached(value)}
    slots = _slots(cls, declared)

    def flatten(value: Any) -> tuple[tuple[Any, ...], tuple[str, ...], tuple[str, ...]]:
        found = [name for name in declared if hasattr(value, name)]
        found += [name for name in getattr(value, "__dict__", ()) if name not in declared and name not in left_out]
        found += [name for name in slots if hasattr(value, name)]
        names = tuple(found)
        if DECLARATION in names:
            return declaring(value, names)
        return tuple([getattr(value, name) for name in names]), names, names

    def declaring(value: Any, names: tuple[str, ...]) -> tuple[tuple[Any, ...], Any, tuple[str, ...]]:
        if not hasattr(cls, DECLARATION):
            msg = (
                f"{with_article(cls.__qualname__)} instance has its own attribute {DECLARATION}, which would be "
                "ignored; make it a class attribute, or a property that depends on the instance"
            )
            raise DeclarationError(msg)
        # The declaration is metadata, not a child: the rebuilt object keeps it, so that it can be flattened again.
        rest = tuple(name for name in names if name != DECLARATION)
        return tuple(getattr(value, name) for name in rest), (rest, getattr(value, DECLARATION)), rest

    return flatten


def _slots(cls: type, declared: tuple[str, ...]) -> list[str]:
    """Return the slots of base classes that are not fields; in an attrs class they hold cached properties."""
    bases = [base for base in cls.__mro__ if not {"__dataclass_fields__", "__attrs_attrs__"} & set(vars(base))]
    return [
        name
        for base in bases
        for name, value in vars(base).items()
        if isinstance(value, types.MemberDescriptorType) and name not in declared
    ]


def _is_cached(value: Any) -> bool:
    return type(value).__name__ == "cached_property"


def _unflatten_fields(cls: type) -> Callable[[tuple[str, ...], Iterable[Any]], Any]:
    def unflatten(names: Any, children: Iterable[Any]) -> Any:
        # Without __init__ or a frozen __setattr__, as copy.copy does: the values
        # were accepted once, and ``init=False`` fields have no argument.
        value: Any = object.__new__(cls)
        if names and type(names[0]) is tuple:
            names, declaration = names
            object.__setattr__(value, DECLARATION, declaration)
        for name, child in zip(names, children, strict=True):
            object.__setattr__(value, name, child)
        return value

    return unflatten
