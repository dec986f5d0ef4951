"""Nodes: the classes that the traversal flattens, and how.

Dicts, lists, tuples and named tuples are optree's own. Dataclasses and attrs
classes become nodes when they are first met, as do the types that a plugin's hook
`tree_library` knows (those registered with the framework's own tree library).
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.registry import LOCK, REGISTRY
from adprotocol.errors import DeclarationError, StructureError, kind_of, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Flatten = Callable[[Any], tuple[tuple[Any, ...], Any, tuple[str, ...]]]
    Unflatten = Callable[[Any, Iterable[Any]], Any]
    Functions = tuple[Flatten, Unflatten]

# The attribute by which a class declares its trainable fields.
DECLARATION = "__trainable__"

# A namespace of our own, apart from what others register with optree.
NAMESPACE = "adprotocol"

# The types registered with optree in our namespace, and those of them that are flattened by their fields because
# no framework knew them.
_NODES: set[type] = set()
_BY_FIELDS: set[type] = set()

# The classes that `register_structure` was given, each with its functions.
STRUCTURES: dict[type, Functions] = {}

# The functions `version` of the tree libraries of active plugins, and what they last returned.
_VERSIONS: list[Callable[[], int]] = []
_SEEN: list[int] = []


def admit(cls: type) -> bool:
    """Make `cls` a node if it is a dataclass or an attrs class."""
    if cls in _NODES or (cls in STRUCTURES and enter(cls)):
        return True
    # A class that is registered with optree for every namespace keeps that; a member of an Enum is a constant.
    return (
        has_fields(cls)
        and not _is_in_optree(cls)
        and not is_enum(cls)
        and (
            # A framework that knows the class knows which of its fields are static.
            admit_registered(cls) or _register_by_fields(cls)
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
        node = None if plugin.tree_library is None else plugin.tree_library.node(value)
        if node is not None:
            return _register(type(value), *node)
    return False


def _register(cls: type, flatten: Any, unflatten: Any) -> bool:
    import optree  # noqa: PLC0415

    with LOCK:
        if cls in _BY_FIELDS:
            optree.unregister_pytree_node(cls, namespace=NAMESPACE)
            _BY_FIELDS.discard(cls)
            _NODES.discard(cls)
        if cls not in _NODES:
            optree.register_pytree_node(cls, flatten, unflatten, namespace=NAMESPACE)
            _NODES.add(cls)
    return True


def _register_by_fields(cls: type) -> bool:
    with LOCK:
        if cls not in _NODES:
            _register(cls, *by_fields(cls))
            _BY_FIELDS.add(cls)
    return True


def enter(cls: type) -> bool:
    """Make a class that `register_structure` was given a node; return whether it is one by that."""
    # A class that others registered with optree keeps that.
    if cls in _BY_FIELDS or not (cls in _NODES or _is_in_optree(cls)):
        _register(cls, *STRUCTURES[cls])
    return cls in _NODES


def look_again() -> bool:
    """Look again at the classes flattened by their fields, if a framework has learnt new classes since.

    Return whether one of them is registered there now.
    """
    if not _BY_FIELDS:
        return False
    found = [version() for version in _VERSIONS]
    if found == _SEEN:
        return False
    with LOCK:
        _SEEN[:] = found
        known = [admit_registered(cls) for cls in tuple(_BY_FIELDS)]
        return any(known)


def known_libraries() -> int:
    """Return how many frameworks' tree libraries are known; one more when its plugin has been loaded."""
    return len(_VERSIONS)


def _plugins_changed() -> None:
    libraries = [plugin.tree_library for plugin in REGISTRY.active()]
    _VERSIONS[:] = [library.version for library in libraries if library is not None and library.version is not None]
    _SEEN.clear()


REGISTRY.on_change.append(_plugins_changed)


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


def attribute_names(value: Any) -> Iterable[str]:
    """Return the names of the attributes that an instance has in its ``__dict__``.

    >>> from types import SimpleNamespace
    >>> from adprotocol.extend import attribute_names
    >>> list(attribute_names(SimpleNamespace(w=1.0, b=2.0)))
    ['w', 'b']
    """
    return getattr(value, "__dict__", ())


def declared_static(cls: type) -> frozenset[str]:
    """Return the fields of a class whose metadata declares them static, as Equinox and flax do."""
    attrs_fields = getattr(cls, "__attrs_attrs__", None)
    fields = attrs_fields if attrs_fields is not None else cls.__dataclass_fields__.values()  # type: ignore[attr-defined]
    return frozenset(
        field.name
        for field in fields
        if field.metadata.get("static", False) or not field.metadata.get("pytree_node", True)
    )


def by_fields(cls: type, static: tuple[str, ...] = ()) -> Functions:
    """Return the functions that flatten a dataclass or an attrs class by its fields; `static` ones are metadata."""
    if not static:
        return _flatten_fields(cls), _unflatten_fields(cls)
    flatten_others, unflatten_others = _flatten_fields(cls, frozenset(static)), _unflatten_fields(cls)

    def flatten(value: Any) -> tuple[tuple[Any, ...], Any, tuple[str, ...]]:
        children, metadata, names = flatten_others(value)
        held = tuple([(name, getattr(value, name)) for name in static if hasattr(value, name)])
        check_static(cls, held)
        return children, (metadata, held), names

    def unflatten(metadata: Any, children: Iterable[Any]) -> Any:
        others, held = metadata
        value = unflatten_others(others, children)
        for name, item in held:
            object.__setattr__(value, name, item)
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


def _flatten_fields(cls: type, static: frozenset[str] = frozenset()) -> Flatten:
    """Flatten by attribute: declared fields first, then the attributes that `__post_init__` added.

    A ``cached_property`` is left out, so that it is computed again from the rebuilt
    fields instead of keeping a value that may be tracked.
    """
    fields = field_names(cls)
    declared = tuple(name for name in fields if name not in static)
    left_out = {name for base in cls.__mro__ for name, value in vars(base).items() if _is_cached(value)} | static
    slots = _slots(cls, fields)

    def flatten(value: Any) -> tuple[tuple[Any, ...], Any, tuple[str, ...]]:
        found = [name for name in declared if hasattr(value, name)]
        found += [name for name in attribute_names(value) if name not in declared and name not in left_out]
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


def _unflatten_fields(cls: type) -> Unflatten:
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
