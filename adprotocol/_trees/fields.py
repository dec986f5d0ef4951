"""Fields: how a dataclass or an attrs class is flattened, by attribute."""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from adprotocol.errors import DeclarationError, StructureError, kind_of, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Names = tuple[str, ...]
    # Attributes that are set beside the children.
    Held = tuple[tuple[str, Any], ...]
    Flatten = Callable[[Any], tuple[tuple[Any, ...], Any, Names]]
    Unflatten = Callable[[Any, Sequence[Any]], Any]

# The attribute by which a class declares its trainable fields.
DECLARATION = "__trainable__"
# The attribute by which an instance knows the type arguments that its generic class was called with.
ARGUMENTS = "__orig_class__"
# The attribute in which an instance of an attrs class keeps its hash; None until it is asked for.
HASH = "_attrs_cached_hash"


def has_fields(cls: type) -> bool:
    """Tell whether `cls` is a dataclass or an attrs class."""
    return "__dataclass_fields__" in dir(cls) or "__attrs_attrs__" in dir(cls)


def maker(cls: type) -> Any:
    """Return the class whose ``__new__``, written in C, makes the instances of `cls`: object, if these hold attributes.

    Another class (dict, deque, an error) holds more than attributes.
    """
    return next(base for base in cls.__mro__ if isinstance(vars(base).get("__new__"), types.BuiltinFunctionType))


def is_enum(cls: type) -> bool:
    """Tell whether the instances of `cls` are the members of an Enum."""
    enum = sys.modules.get("enum")
    return enum is not None and issubclass(cls, enum.Enum)


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
    >>> from adprotocol.extend import attribute_names
    >>> list(attribute_names(SimpleNamespace(w=1.0, b=2.0)))
    ['w', 'b']
    """
    return getattr(value, "__dict__", ())


def attributes(value: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an instance; None in a compiler, which follows attributes alone."""
    return value.__dict__  # type: ignore[no-any-return]


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
    fields instead of keeping a value that may be tracked, and so is a hash. The metadata
    are the names, or the names and what is set beside the children.
    """
    fields = field_names(cls)
    declared = tuple(name for name in fields if name not in static)
    # Where all fields are in the ``__dict__``, and reading one runs no code, it is read at once, and written.
    slots = _slots(cls, fields)
    # Dynamo of PyTorch 2.6 knows ``object.__new__`` by that name alone.
    base: Any = maker(cls)
    make = None if base is object else base.__new__
    direct = not (static or slots or DECLARATION in fields) and _are_plain(cls, fields)
    left_out = {*recomputed(cls), *static, HASH}
    may_keep_hash = hasattr(cls, "__attrs_attrs__")
    described = _described(cls, declared)

    def flatten(value: Any) -> tuple[tuple[Any, ...], Any, Names]:
        contents = attributes(value) if direct else None
        if contents is not None and tuple(contents) == fields:
            return tuple(contents.values()), fields, fields
        given = tuple(list(attribute_names(value)))  # noqa: C414  (Dynamo guards on the keys in a list alone)
        if given == fields and not slots:
            names = declared
        else:
            found = [name for name in declared if hasattr(value, name)]
            found += [name for name in given if name not in declared and name not in left_out]
            names = tuple(found + [name for name in slots if hasattr(value, name)])
        if described:
            stored = _stored(object.__new__(cls) if make is None else make(cls), described, value)
            names = tuple([name for name in names if name not in stored])
        held: Held = ()
        if static:
            held = tuple([(name, getattr(value, name)) for name in static if hasattr(value, name)])
            check_static(cls, held)
        if ARGUMENTS in given:
            held = (*held, (ARGUMENTS, getattr(value, ARGUMENTS)))
        if may_keep_hash and hasattr(value, HASH):
            held = (*held, (HASH, None))
        if DECLARATION in names:
            return declaring(value, names, held)
        return tuple([getattr(value, name) for name in names]), (names, held) if static or held else names, names

    def declaring(value: Any, names: Names, held: Held) -> tuple[tuple[Any, ...], Any, Names]:
        if not hasattr(cls, DECLARATION):
            msg = (
                f"{with_article(cls.__qualname__)} instance has its own attribute {DECLARATION}, which would be "
                "ignored; make it a class attribute, or a property that depends on the instance"
            )
            raise DeclarationError(msg)
        # The declaration is metadata, not a child: the rebuilt object keeps it, so that it can be flattened again.
        held = (*held, (DECLARATION, getattr(value, DECLARATION)))
        rest = tuple([name for name in names if name != DECLARATION])
        return tuple([getattr(value, name) for name in rest]), (rest, held), rest

    def unflatten(metadata: Any, children: Sequence[Any]) -> Any:
        # Without __init__ or a frozen __setattr__, as copy.copy does: the values
        # were accepted once, and ``init=False`` fields have no argument.
        value: Any = object.__new__(cls) if make is None else make(cls)
        contents = attributes(value) if direct and metadata is fields else None
        if contents is not None:
            i = 0
            for name in fields:
                contents[name] = children[i]
                i += 1  # noqa: SIM113
            return value
        names, held = metadata if metadata and type(metadata[0]) is tuple else (metadata, ())
        for name, child in zip(names, children, strict=True):
            object.__setattr__(value, name, child)
        for name, item in held:
            object.__setattr__(value, name, item)
        return value

    return flatten, unflatten


def by_fields_and_items(cls: type) -> tuple[Flatten, Unflatten]:
    """Return the functions for a dataclass or an attrs class that is also a dict (``ModelOutput`` of transformers).

    An item that a field of its name holds too is one child.
    """
    flatten_fields, unflatten_fields = by_fields(cls)
    base: Any = OrderedDict if issubclass(cls, OrderedDict) else dict

    def flatten(value: Any) -> tuple[tuple[Any, ...], Any, Names]:
        children, metadata, names = flatten_fields(value)
        fields = dict(zip(names, children, strict=True))
        keys = tuple(base.keys(value))
        own = tuple([key for key in keys if key not in fields or base.__getitem__(value, key) is not fields[key]])
        items = [base.__getitem__(value, key) for key in own]
        return (*children, *items), (metadata, names, keys, own), (*names, *own)

    def unflatten(metadata: Any, children: Iterable[Any]) -> Any:
        of_fields, names, keys, own = metadata
        given = tuple(children)
        value = unflatten_fields(of_fields, given[: len(names)])
        found = dict(zip((*names, *own), given, strict=True))
        for key in keys:
            base.__setitem__(value, key, found[key])
        return value

    return flatten, unflatten


def check_static(cls: type, held: tuple[tuple[str, Any], ...]) -> None:
    """Refuse static fields that cannot be hashed, and arrays, even of a class that hashes them by identity."""
    try:
        hash(held)
    except TypeError:
        wrong = next(pair for pair in held if not _is_hashable(pair[1]))
    else:
        wrong = next((pair for pair in held if hasattr(type(pair[1]), "__dlpack__")), ("", None))
    name, item = wrong
    if name:
        msg = (
            f"the static field {name!r} of {cls.__qualname__} holds {kind_of(item)}, which cannot be hashed and "
            "compared; static fields are part of the structure, by which frameworks decide whether to compile again. "
            f"Give it a hashable value (a tuple for a list), or do not declare {name!r} static: label it "
            "NonDifferentiable to keep it constant"
        )
        raise StructureError(msg)


def _is_hashable(item: Any) -> bool:
    try:
        hash(item)
    except TypeError:
        return False
    return True


def _slots(cls: type, declared: tuple[str, ...]) -> list[str]:
    """Return the slots that are not fields; those of an attrs class itself hold cached properties."""
    bases = [base for base in cls.__mro__ if "__attrs_attrs__" not in vars(base)]
    return [name for base in bases for name, value in vars(base).items() if _is_slot(value) and name not in declared]


def _are_plain(cls: type, names: Names) -> bool:
    """Tell whether the attributes of instances with these names are what is in their ``__dict__``."""
    own: Any = cls.__getattribute__
    if own is not object.__getattribute__ or cls.__dictoffset__ == 0:
        return False
    return not any(hasattr(type(vars(base).get(name)), "__set__") for base in cls.__mro__ for name in names)


def _described(cls: type, names: Names) -> Names:
    """Return those of the fields that a property, or another descriptor of the user's, reads and writes."""
    own = {name: next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None) for name in names}
    return tuple(name for name, found in own.items() if hasattr(type(found), "__set__") and not _is_slot(found))


def _stored(blank: Any, described: Names, value: Any) -> set[str]:
    """Return the attributes in which the descriptors of fields keep the values, found by writing to a new instance."""
    try:
        for name in described:
            object.__setattr__(blank, name, getattr(value, name))
    except Exception:  # noqa: BLE001  (they are the user's, and may need other fields)
        return set()
    slots = [name for base in type(blank).__mro__ for name in vars(base) if _is_slot(vars(base)[name])]
    return {*attribute_names(blank), *[name for name in slots if hasattr(blank, name)]}.difference(described)


def _is_slot(value: Any) -> bool:
    return isinstance(value, types.MemberDescriptorType)


def recomputed(cls: type) -> set[str]:
    """Return the attributes that are no children: those of a ``cached_property``, and the type arguments."""
    cached = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_cached(value)}
    return {*cached, ARGUMENTS}


def _is_cached(value: Any) -> bool:
    return type(value).__name__ == "cached_property"
