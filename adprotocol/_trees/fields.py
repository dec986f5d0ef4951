"""Fields: how a dataclass or an attrs class is flattened, by attribute."""

from __future__ import annotations

import sys
import types

from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import DeclarationError
from adprotocol.messages import with_article

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from adprotocol._dispatch.binding import Flatten, Unflatten

    Names = tuple[str, ...]

# The attribute by which a class declares its trainable fields.
DECLARATION = "__trainable__"
# What `typing` and attrs note in an instance about itself: its type arguments, and its hash.
NOTES = frozenset({"__orig_class__", "_attrs_cached_hash"})


def has_fields(cls: type) -> bool:
    """Return whether `cls` is a dataclass or an attrs class."""
    # As `dir` lists them, in a fifth of the time.
    return any("__dataclass_fields__" in vars(base) or "__attrs_attrs__" in vars(base) for base in cls.__mro__)


def is_enum(cls: type) -> bool:
    """Return whether the instances of `cls` are the members of an Enum."""
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(cls, enum.Enum)


def holds_attributes_alone(cls: type) -> bool:
    """Return whether an instance is its attributes and no more: it is not a dict or error, and no field is a property.

    A property keeps the value of its field in a second attribute.
    """
    makes = next(base for base in cls.__mro__ if isinstance(vars(base).get("__new__"), types.BuiltinFunctionType))
    fields = [vars(base).get(name) for base in cls.__mro__ for name in field_names(cls)]
    return makes is object and all(_is_slot(field) or not hasattr(type(field), "__set__") for field in fields)


def fields_of(cls: type) -> Iterable[Any]:
    """Return the fields of a dataclass or an attrs class, pseudo-fields included."""
    attrs_fields = getattr(cls, "__attrs_attrs__", None)
    return attrs_fields if attrs_fields is not None else getattr(cls, "__dataclass_fields__", {}).values()


def field_names(cls: type) -> Names:
    """Return the names of the fields of a dataclass or an attrs class."""
    if hasattr(cls, "__attrs_attrs__"):
        return tuple(field.name for field in fields_of(cls))
    from dataclasses import fields  # noqa: PLC0415  (15 ms; not at import)

    return tuple(field.name for field in fields(cls))


def attribute_names(value: Any) -> Iterable[str]:
    """Return the names of the attributes that an instance has in its ``__dict__``.

    >>> from types import SimpleNamespace
    >>> from adprotocol.tracing import attribute_names
    >>> list(attribute_names(SimpleNamespace(w=1.0, b=2.0)))
    ['w', 'b']
    """
    return getattr(value, "__dict__", ())


def attributes(value: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an instance; None in a compiler, which follows only attributes."""
    return getattr(value, "__dict__", None)


def declared_static(cls: type) -> frozenset[str]:
    """Return the fields of a class whose metadata declares them static, as Equinox and flax do."""
    return frozenset(
        field.name
        for field in fields_of(cls)
        if field.metadata.get("static", False) or not field.metadata.get("pytree_node", True)
    )


def by_fields(cls: type, static: Names = ()) -> tuple[Flatten, Unflatten]:
    """Return the functions that flatten a dataclass or an attrs class by attribute; `static` fields are metadata.

    Declared fields come first, then the attributes that ``__post_init__`` added. A
    ``cached_property`` is left out, so that it is computed again from the rebuilt
    fields instead of keeping a value that may be tracked. The metadata are the names, or
    the names and what static fields hold.
    """
    fields = field_names(cls)
    if DECLARATION in fields:  # one that was annotated
        static = (*static, DECLARATION)
    declared = tuple(name for name in fields if name not in static)
    # Slots that are not fields; those of an attrs class itself hold cached properties.
    bases = [base for base in cls.__mro__ if "__attrs_attrs__" not in vars(base)]
    slots = [name for base in bases for name in vars(base) if _is_slot(vars(base)[name]) and name not in fields]
    left_out = {name for base in cls.__mro__ for name in vars(base) if _is_cached(vars(base)[name])} | {*static, *NOTES}
    # Where all that an instance holds may be in its ``__dict__``, it is read at once, and written.
    direct = not (static or slots)

    def flatten(value: Any) -> tuple[tuple[Any, ...], Any, Names]:
        contents = attributes(value) if direct else None
        if contents is not None and tuple(contents) == fields:
            return tuple(contents.values()), fields, fields
        names = declared
        given = tuple(list(attribute_names(value)))  # noqa: C414  (Dynamo guards on only the keys in a list)
        if slots or given != fields:
            kept = [name for name in declared if hasattr(value, name)]
            kept += [name for name in given if name not in declared and name not in left_out]
            names = tuple(kept + [name for name in slots if hasattr(value, name)])
        if DECLARATION in names:
            raise DeclarationError(
                f"{with_article(cls.__qualname__)} instance has its own attribute {DECLARATION}, which would be "
                "ignored; make it a class attribute, or a property that depends on the instance"
            )
        children = tuple([getattr(value, name) for name in names])
        if not static:
            return children, names, names
        held = tuple([(name, getattr(value, name)) for name in static if hasattr(value, name)])
        return children, (names, held), names

    def unflatten(metadata: Any, children: Sequence[Any]) -> Any:
        # Without __init__ or a frozen __setattr__, as copy.copy does: the values
        # were accepted once, and ``init=False`` fields have no argument.
        value: Any = object.__new__(cls)
        contents = attributes(value) if direct and metadata is fields else None
        if contents is not None:
            i = 0
            for name in fields:
                contents[name] = children[i]
                i += 1  # noqa: SIM113
            return value
        names, held = metadata if static else (metadata, ())
        for name, child in zip(names, children, strict=True):
            object.__setattr__(value, name, child)
        for name, item in held:
            object.__setattr__(value, name, item)
        return value

    return flatten, unflatten


def _is_slot(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType)


def _is_cached(value: Any) -> bool:
    return type(value).__name__ == "cached_property"
