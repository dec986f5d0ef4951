"""Nodes: the classes that the traversal flattens, and the two functions for each.

Built-in containers, named tuples, dataclasses and attrs classes are nodes as they
are. Others are if the user registered them with optree, or with a tree library that
a plugin knows; neither is imported for it.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict, defaultdict, deque
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.registry import LOCK, REGISTRY
from adprotocol._dispatch.table import TABLE
from adprotocol._trees.fields import by_fields, has_fields, is_enum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from adprotocol._dispatch.binding import Flatten, Unflatten

    Functions = tuple[Flatten, Unflatten]

# optree's namespace in which its users register classes for this package alone.
NAMESPACE = "adprotocol"

# The functions of the classes that were met, and those classes that are flattened by their fields because no
# framework knew them.
_NODES: dict[type, Functions] = {}
_BY_FIELDS: set[type] = set()

# The classes that `register_structure` was given, each with its functions.
STRUCTURES: dict[type, Functions] = {}

# The functions `version` of the tree libraries of active plugins, and what they last returned.
VERSIONS: list[Callable[[], int]] = []
_SEEN: list[int] = []


def in_order(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the keys of a dict in the order of its leaves, whatever the order in which they were added."""
    try:
        return tuple(sorted(keys))
    except TypeError:
        try:
            return tuple(sorted(keys, key=lambda key: (f"{type(key).__module__}.{type(key).__qualname__}", key)))
        except TypeError:  # keys without an order
            return keys


def _flatten_sequence(value: Any) -> Any:
    return value, None, tuple(range(len(value)))


def _flatten_dict(value: Any) -> Any:
    given = tuple(value)
    names = in_order(given)
    return [value[key] for key in names], (names if given == names else given, names), names


def _unflatten_dict(metadata: Any, children: Any) -> Any:
    given, names = metadata
    found = dict(zip(names, children, strict=True))
    return found if given is names else {key: found[key] for key in given}


def _flatten_default_dict(value: Any) -> Any:
    children, metadata, names = _flatten_dict(value)
    return children, (value.default_factory, metadata), names


BUILT_IN: dict[type, Functions] = {
    list: (_flatten_sequence, lambda _, children: list(children)),
    tuple: (_flatten_sequence, lambda _, children: tuple(children)),
    dict: (_flatten_dict, _unflatten_dict),
    OrderedDict: (
        lambda value: (list(value.values()), tuple(value), tuple(value)),
        lambda keys, children: OrderedDict(zip(keys, children, strict=True)),
    ),
    defaultdict: (
        _flatten_default_dict,
        lambda metadata, children: defaultdict(metadata[0], _unflatten_dict(metadata[1], children)),
    ),
    deque: (
        lambda value: (list(value), value.maxlen, tuple(range(len(value)))),
        lambda maxlen, children: deque(children, maxlen),
    ),
}


# The children of some in any order, which need not be sorted for a question.
CHILDREN: dict[type, Callable[[Any], Collection[Any]]] = {
    dict: lambda value: value.values(),
    list: lambda value: value,
    tuple: lambda value: value,
}


def functions_of(cls: type) -> Functions | None:
    """Return the functions that flatten and rebuild the instances of `cls`, or None if these are leaves."""
    known = BUILT_IN.get(cls) or _NODES.get(cls) or _of_tuple(cls) or _of_optree(cls) or STRUCTURES.get(cls)
    if known is None and has_fields(cls) and not is_enum(cls):
        # A framework that knows the class knows which of its fields are static.
        known = of_blank(cls)
        if known is None:
            known = by_fields(cls)
            _BY_FIELDS.add(cls)
    if known is not None:
        _NODES[cls] = known
    return known


def of_value(value: Any) -> Functions | None:
    """Return the functions for the class of `value` that a plugin knows by its framework's own tree library."""
    for plugin in REGISTRY.active():
        found = None if plugin.tree_library is None else plugin.tree_library.node(value)
        if found is not None:
            _NODES[type(value)] = named = _with_names(*found)
            return named
    return None


def of_blank(cls: type) -> Functions | None:
    """Return the functions of a class that a plugin knows, given a blank instance."""
    try:
        # A class that is a dict, say, is made by the function of its base, which `object` refuses to stand in for.
        made_by_base = isinstance(cls.__new__, types.BuiltinFunctionType)
        blank: Any = cls.__new__(cls) if made_by_base else object.__new__(cls)
    except TypeError:  # abstract, or of an extension module
        return None
    return of_value(blank)


def _of_optree(cls: type) -> Functions | None:
    """Return the functions of a class that the user registered with optree, in our namespace or for all."""
    optree = sys.modules.get("optree")
    find = getattr(getattr(optree, "register_pytree_node", None), "get", None)  # none while it is being imported
    entry = None if find is None else find(cls, namespace=NAMESPACE)
    return None if entry is None else _with_names(entry.flatten_func, entry.unflatten_func)


def _with_names(flatten: Callable[[Any], Any], unflatten: Unflatten) -> Functions:
    """Let a function that flattens return names always: the positions, if it knows none."""

    def named(value: Any) -> Any:
        found = flatten(value)
        children = tuple(found[0])
        names = found[2] if len(found) > 2 and found[2] is not None else range(len(children))  # noqa: PLR2004
        return children, found[1], tuple(names)

    return named, unflatten


def _of_tuple(cls: type) -> Functions | None:
    """Return the functions of a named tuple, or of a struct sequence (``time.struct_time``)."""
    if not issubclass(cls, tuple):
        return None
    fields = getattr(cls, "_fields", None)
    if isinstance(fields, tuple) and all(isinstance(name, str) for name in fields):
        # A class of its own function __new__ may compute with what it is given (a PackedSequence of PyTorch does).
        makes = next(base for base in cls.__mro__ if "__new__" in vars(base))
        make = cls if "_fields" in vars(makes) else lambda *children: tuple.__new__(cls, children)
        return lambda value: (value, None, fields), lambda _, children: make(*children)
    size = getattr(cls, "n_sequence_fields", None)
    if size is None:
        return None  # a shape of PyTorch, for one, is a constant
    names = _names_of_sequence(cls, size)
    return lambda value: (value, None, names), lambda _, children: cls(children)


def _names_of_sequence(cls: type, size: int) -> tuple[str, ...]:
    """Return the names of the fields of a struct sequence, some of which may have positions alone."""
    probe = cls(range(size))
    members = [name for name, value in vars(cls).items() if isinstance(value, types.MemberDescriptorType)]
    by_position = {getattr(probe, name): name for name in reversed(members)}
    return tuple(by_position.get(i, str(i)) for i in range(size))


def forget(classes: Iterable[type]) -> None:
    """Look again, when they are next met, at those of the classes that are flattened by their fields."""
    with LOCK:
        for cls in _BY_FIELDS.intersection(classes):
            _NODES.pop(cls, None)
            TABLE.pop(cls, None)
            _BY_FIELDS.remove(cls)


def generation() -> int:
    """Return a number that changes with the set of plugins; forget classes that a framework has learnt since.

    A call each time, which a compiler runs while it traces: it would see a list of before, if a plugin is loaded then.
    """
    if _BY_FIELDS:
        found = [version() for version in VERSIONS]
        if found != _SEEN:
            _SEEN[:] = found
            forget(_BY_FIELDS)
    return len(VERSIONS)


def _plugins_changed() -> None:
    libraries = [plugin.tree_library for plugin in REGISTRY.active()]
    VERSIONS[:] = [library.version for library in libraries if library is not None and library.version is not None]
    forget(_BY_FIELDS)


REGISTRY.on_change.append(_plugins_changed)
