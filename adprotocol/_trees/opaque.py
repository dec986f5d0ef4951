"""What the traversal does not see into: object arrays, objects with a view, and objects of unknown class.

The first two are looked into. The last are refused if they hold a framework's
arrays: an answer about them would not be known to be right.
"""

from __future__ import annotations

import sys
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from adprotocol._dispatch.binding import Kind
from adprotocol._dispatch.table import binding_of, unclaimed
from adprotocol._trees.traversal import too_deep, tree_leaves
from adprotocol.divergence import OBJECTS
from adprotocol.errors import OpaqueValueError, UnclaimedTypeError

# The number of objects that one of unknown class may hold before the search for arrays is given up.
LOOK_THROUGH = 10_000


def expand_object_arrays(leaves: list[Any]) -> list[Any]:
    """Return the leaves with the elements, at any depth, in place of each object-dtype array."""
    found: list[Any] = []
    for leaf in leaves:
        if binding_of(type(leaf)).kind is Kind.NUMPY and leaf.dtype.hasobject:
            try:
                found.extend(expand_object_arrays(tree_leaves(tuple(plain_array(leaf).reshape(-1).tolist()))))
            except RecursionError as error:
                raise too_deep(leaf) from error
        else:
            found.append(leaf)
    return found


def plain_array(array: Any) -> Any:
    """Return a view of a NumPy array of any subclass (masked, record) as a plain one."""
    return array.view(sys.modules["numpy"].ndarray)


def expand_views(leaves: list[Any]) -> list[Any]:
    """Return the leaves with the container of its view in place of each object that has one."""
    return [
        binding.view(leaf).container if binding.kind is Kind.OBJECT and binding.view is not None else leaf
        for leaf in leaves
        for binding in [binding_of(type(leaf))]
    ]


def check_opaque(value: Any) -> None:
    """Refuse an object in whose attributes or items a framework's arrays hide.

    Searched are its attributes and items, the containers among them, and the objects in those.
    """
    # `unclaimed` judges the class; the attributes may be the instance's own.
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise unclaimed(type(value))
    if hasattr(type(value), "__next__"):
        msg = (
            f"adprotocol was given an iterator ({type(value).__qualname__}), which looking inside would exhaust; pass "
            "a list of its items (for a torch module, list(module.parameters()))"
        )
        raise OpaqueValueError(msg)
    seen, waiting = {id(value)}, [value]
    while waiting:
        if len(seen) > LOOK_THROUGH:
            msg = (
                f"adprotocol was given a {type(value).__module__}.{type(value).__qualname__}, which holds too many "
                "objects to search for arrays; pass the arrays themselves"
            )
            raise OpaqueValueError(msg)
        for item in _held(waiting.pop()):
            if id(item) not in seen:
                seen.add(id(item))
                if check_held(value, item):
                    waiting.append(item)


def check_held(value: Any, item: Any) -> bool:
    """Refuse an object that holds a framework's array; tell whether the item has to be searched in turn."""
    try:
        binding = binding_of(type(item))
        framework = binding.framework
        opaque = binding.kind is Kind.OPAQUE
    except UnclaimedTypeError:
        opaque = False
        framework = type(item).__module__
    if framework is not None:
        msg = (
            f"adprotocol was given a {type(value).__module__}.{type(value).__qualname__}, which holds a "
            f"{framework} {type(item).__qualname__} but is not a structure that can be flattened. {OBJECTS.remedy}"
        )
        raise OpaqueValueError(msg)
    return opaque


def _held(value: Any) -> list[Any]:
    held: list[Any] = list(getattr(value, "__dict__", {}).values())
    for cls in type(value).__mro__:
        held.extend(getattr(value, name) for name in _slots(cls) if hasattr(value, name))
    if isinstance(value, Mapping):
        held.extend(value.values())
    elif isinstance(value, (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)):
        held.extend(value)
    return expand_object_arrays(tree_leaves(tuple(held)))


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    owner = cls.__name__.lstrip("_")
    return tuple(
        f"_{owner}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    )
