"""Values that the traversal does not flatten: object arrays, objects with a view, and objects of unknown class.

Object arrays and views are expanded here. An object of unknown class is refused if
it holds a framework's arrays, because an answer for it might be wrong.
"""

from __future__ import annotations

import sys
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from adprotocol._dispatch.binding import HOLDER, NUMPY, OBJECT, OPAQUE
from adprotocol._dispatch.table import binding_of, unclaimed
from adprotocol._trees.path import paths_of
from adprotocol._trees.traversal import too_deep, tree_flatten, tree_leaves
from adprotocol.errors import OpaqueValueError, TreeError, UnclaimedTypeError, full_kind_of, with_article

# How many objects inside an object of unknown class are searched for arrays.
LOOK_THROUGH = 10_000


def expand_object_arrays(leaves: list[Any]) -> list[Any]:
    """Replace each object-dtype array among the leaves by its elements, at any depth."""
    found: list[Any] = []
    for leaf in leaves:
        if binding_of(type(leaf)).kind is NUMPY and leaf.dtype.hasobject:
            try:
                found.extend(expand_object_arrays(tree_leaves(tuple(plain_array(leaf).reshape(-1).tolist()))))
            except RecursionError as error:
                raise too_deep(leaf) from error
        else:
            found.append(leaf)
    return found


def plain_array(array: Any) -> Any:
    """Return a NumPy array of any subclass (masked, record) viewed as a plain array."""
    return array.view(sys.modules["numpy"].ndarray)


def expand_views(leaves: list[Any]) -> list[Any]:
    """Replace each object that has a view, such as a torch module, by the container of the view."""
    return [
        binding.view(leaf).container if binding.kind is OBJECT and binding.view is not None else leaf
        for leaf in leaves
        for binding in [binding_of(type(leaf))]
    ]


def expand_holders(leaves: list[Any]) -> list[Any]:
    """Replace each variable, such as one of Keras, by the array that it holds now."""
    return [leaf.value if binding_of(type(leaf)).kind is HOLDER else leaf for leaf in leaves]


def check_opaque(value: Any, within: tuple[Any, ...] = (), remedy: str = "") -> None:
    """Refuse an object that holds a framework's arrays in its attributes or items: False might be wrong for it.

    The search covers attributes and items, the containers among them, and the objects in those. `within` are the
    values among which the object was found, for the message.
    """
    # The class was judged by `recognise`; these attributes may belong to the instance alone.
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise unclaimed(type(value))
    if hasattr(type(value), "__next__"):
        msg = (
            f"adprotocol was given an iterator ({type(value).__qualname__}){_place(value, within)}, which looking "
            "inside would exhaust; pass a list of its items (for a torch module, list(module.parameters()))"
        )
        raise OpaqueValueError(msg)
    seen, waiting = {id(value)}, [value]
    while waiting:
        if len(seen) > LOOK_THROUGH:
            msg = (
                f"adprotocol was given {full_kind_of(value)}{_place(value, within)}, which holds too many objects to "
                "search for arrays; pass the arrays themselves"
            )
            raise OpaqueValueError(msg)
        for item in _held(waiting.pop()):
            if id(item) not in seen:
                seen.add(id(item))
                if check_held(value, item, within, remedy):
                    waiting.append(item)


def check_held(value: Any, item: Any, within: tuple[Any, ...] = (), remedy: str = "") -> bool:
    """Refuse an object if `item`, which it holds, is a framework's array; return whether to search the item too."""
    try:
        binding = binding_of(type(item))
        framework = binding.framework
        opaque = binding.kind is OPAQUE
    except UnclaimedTypeError:
        opaque = False
        framework = type(item).__module__
    if framework is not None:
        from adprotocol.divergence import OBJECTS  # noqa: PLC0415  (for the message only)

        msg = (
            f"adprotocol was given {full_kind_of(value)}{_place(value, within)}, which holds "
            f"{with_article(framework)} {type(item).__qualname__} but is not a structure that can be flattened. "
            f"{remedy or OBJECTS.remedy}"
        )
        raise OpaqueValueError(msg)
    return opaque


def _place(value: Any, within: tuple[Any, ...]) -> str:
    """Return where among the values an object is, for a message; empty if it is one of them."""
    for tree in within:
        leaves, treespec = tree_flatten(tree)
        for i, leaf in enumerate(leaves):
            if leaf is value and tree is not value:
                try:
                    return f" at {paths_of(tree, treespec).of_leaves[i]!r}"
                except TreeError:  # two leaves have the same path
                    return ""
    return ""


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
