"""Nodes: the classes that the traversal flattens, and the two functions for each.

Built-in containers, named tuples, dataclasses and attrs classes are nodes as they
are. Others are if the user registered them with optree, or with a tree library that
a plugin knows; neither is imported for it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque

from adprotocol._dispatch.registry import LOCK, REGISTRY
from adprotocol._dispatch.table import TABLE
from adprotocol._trees.fields import by_fields, has_fields, holds_attributes_alone, is_enum
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.messages import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from adprotocol._dispatch.binding import Flatten, Unflatten

    # The last, if there is one, may return None for the names.
    Functions = tuple[Flatten, Unflatten] | tuple[Flatten, Unflatten, Callable[[Any], Any]]

# optree's namespace in which its users register classes for this package only.
NAMESPACE = "adprotocol"

# The functions of the classes that were met, and those classes that are flattened by their fields because no
# framework knew them.
_NODES: dict[type, Functions] = {}
_BY_FIELDS: set[type] = set()

# Those that a framework's own trees know, and whether each is a buffer.
_BY_LIBRARY: dict[type, bool] = {}

# The classes that `register_structure` was given, each with its functions.
STRUCTURES: dict[type, Functions] = {}


# Cache: dict keys (all strings) -> the same keys sorted. Sorting them takes three times as long.
_IN_ORDER: dict[tuple[Any, ...], tuple[Any, ...]] = {}
_KEPT = 1_000


def in_order(keys: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the keys of a dict in the order of its leaves, whatever the order in which they were added."""
    names = _IN_ORDER.get(keys)
    if names is None:
        try:
            names = tuple(sorted(keys))
        except TypeError:  # keys without an order
            return keys
        if len(keys) < _KEPT and set(map(type, keys)) == {str}:
            if len(_IN_ORDER) >= _KEPT:
                _IN_ORDER.clear()
            _IN_ORDER[keys] = names
    return names


_POSITIONS = tuple(range(64))


def _flatten_sequence(value: Any) -> Any:
    size = len(value)
    return value, None, _POSITIONS[:size] if size <= len(_POSITIONS) else tuple(range(size))


def _flatten_dict(value: Any) -> Any:
    given = tuple(value)
    names = in_order(given)
    if names == given:
        return list(value.values()), (given, names), names
    return [value[key] for key in names], (given, names), names


def _unflatten_dict(metadata: Any, children: Any) -> Any:
    given, names = metadata
    filled = dict.fromkeys(given)
    i = 0
    for name in names:  # a third of the time of zip with strict=True
        filled[name] = children[i]
        i += 1  # noqa: SIM113
    return filled


def _flatten_default_dict(value: Any) -> Any:
    children, metadata, names = _flatten_dict(value)
    return children, (value.default_factory, metadata), names


BUILT_IN: dict[type, Functions] = {
    list: (_flatten_sequence, lambda _, children: children),
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


def functions_of(cls: type) -> Functions | None:
    """Return the functions that flatten and rebuild the instances of `cls`, or None if these are leaves."""
    known = BUILT_IN.get(cls) or _NODES.get(cls) or _of_tuple(cls) or _of_optree(cls) or STRUCTURES.get(cls)
    if known is None and has_fields(cls) and not is_enum(cls):
        # A framework that knows the class knows which of its fields are static.
        known = functions_of_blank(cls)
        if known is None and holds_attributes_alone(cls):
            known = by_fields(cls)
            _BY_FIELDS.add(cls)
    if known is not None:
        _NODES[cls] = known
    return known


def origin(cls: type) -> str | None:
    """Return how a class is known: ``"library"`` or ``"buffer"`` by a framework's own trees, ``"fields"`` by none."""
    if cls in _BY_LIBRARY:
        return "buffer" if _BY_LIBRARY[cls] else "library"
    return "fields" if cls in _BY_FIELDS else None


def library_functions(value: Any) -> Functions | None:
    """Return the functions for the class of `value` that a plugin knows by its framework's own tree library."""
    for plugin in REGISTRY.active():
        pair = None if plugin.tree_library is None else plugin.tree_library.node(value)
        if pair is not None:
            _NODES[type(value)] = functions = checked(*pair)
            _BY_LIBRARY[type(value)] = plugin.tree_library.is_buffer(value)  # type: ignore[union-attr]
            return functions
    return None


def functions_of_blank(cls: type) -> Functions | None:
    """Return the functions of a class that a plugin knows, given a blank instance."""
    try:
        return library_functions(object.__new__(cls))
    except TypeError:  # abstract, or of an extension module
        return None


def _of_optree(cls: type) -> Functions | None:
    """Return the functions of a class that the user registered with optree, in our namespace or for all."""
    optree = sys.modules.get("optree")
    find = getattr(getattr(optree, "register_pytree_node", None), "get", None)  # none while it is being imported
    entry = None if find is None else find(cls, namespace=NAMESPACE)
    return None if entry is None else checked(entry.flatten_func, entry.unflatten_func)


def checked(
    flatten: Callable[[Any], Any], unflatten: Unflatten, contents: Callable[[Any], Any] | None = None
) -> Functions:
    """Let a user's `flatten` return names always (the positions, if it knows none), and its `unflatten` keep None."""

    def with_names(value: Any) -> Any:
        parts = flatten(value)
        if type(parts[0]) is list and type(parts[-1]) is tuple and len(parts) == 3:  # noqa: PLR2004
            return parts
        children = tuple(parts[0])
        names = parts[2] if len(parts) > 2 and parts[2] is not None else range(len(children))  # noqa: PLR2004
        return children, parts[1], tuple(names)

    def keeping_none(metadata: Any, children: Any) -> Any:
        value = unflatten(metadata, children)
        if type(None) in map(type, children):
            check_none(value, children, metadata, contents or flatten, unflatten)
        return value

    return (with_names, keeping_none) if contents is None else (with_names, keeping_none, contents)


def check_none(
    value: Any, children: Any, metadata: Any, flatten: Callable[[Any], Any], unflatten: Callable[[Any, Any], Any]
) -> None:
    """Refuse a node that has a default in place of None, which would look like a leaf that is trained.

    A class that keeps None in every place is asked no more.
    """
    for child, again in zip(children, flatten(value)[0], strict=False):
        if child is None and again is not None:
            raise ValueError(f"{type(value).__qualname__} puts {shown(again)} in the place of None")
    try:
        empty = flatten(unflatten(metadata, [None] * len(children)))[0]
    except Exception:  # noqa: BLE001  (the constructor is the user's)
        return
    if type(value) in TABLE and not [part for part in empty if part is not None]:
        TABLE[type(value)].unflatten = unflatten


def _of_tuple(cls: type) -> Functions | None:
    """Return the functions of a named tuple, or of a struct sequence (``torch.return_types.max``)."""
    if not issubclass(cls, tuple):
        return None
    if hasattr(cls, "n_sequence_fields"):
        names = cls.__match_args__  # type: ignore[attr-defined]
        return lambda value: (value, None, names), lambda _, children: cls(children)
    fields = getattr(cls, "_fields", None)
    if not (isinstance(fields, tuple) and all(isinstance(name, str) for name in fields)):
        return None  # a shape of PyTorch, for one, is a constant
    # A class of its own function __new__ may compute with what it is given (a PackedSequence of PyTorch does).
    makes = next(base for base in cls.__mro__ if "__new__" in vars(base))
    make = cls if "_fields" in vars(makes) else lambda *children: tuple.__new__(cls, children)
    return lambda value: (value, None, fields), lambda _, children: make(*children)


def forget(classes: Iterable[type]) -> None:
    """Look again at the classes when they are next met."""
    with LOCK:
        for cls in tuple(classes):
            _NODES.pop(cls, None)
            TABLE.pop(cls, None)
            _BY_FIELDS.discard(cls)


REGISTRY.on_change.append(lambda: forget(_BY_FIELDS))
