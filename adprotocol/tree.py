"""The one traversal: optree, in a namespace of our own.

Dictionaries, lists, tuples and named tuples are optree's. Dataclasses and attrs
classes become nodes on first sight, and so do the types that a plugin's
``tree_node`` knows. Everything else is a leaf. optree is imported when a
container is first met.

Under ``torch.compile`` Dynamo replaces optree's C++ functions by Python it can
trace (``torch._dynamo.polyfills.pytree``), so nothing here is written twice.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from adprotocol import plugins
from adprotocol.errors import TreeError
from adprotocol.table import bind, binding_of
from adprotocol.tracing import run_while_tracing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NAMESPACE = "adprotocol"

# The types registered with optree in our namespace.
_NODES: set[type] = set()


def flatten(values: tuple[Any, ...]) -> list[Any]:
    """Return the leaves of several values in order; arrays and numbers cost one lookup each."""
    found: list[Any] = []
    for value in values:
        if is_container(value):
            found.extend(leaves(value))
        else:
            found.append(value)
    return found


def is_container(value: Any) -> bool:
    """Tell whether the traversal takes `value` apart; a type that plugins know is admitted on first sight."""
    key = binding_of(type(value)).key
    return key == "container" or (key == "opaque" and _admit_registered(value))


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of one container in order; ``None`` is a leaf.

    Raises `TreeError` for a structure that contains itself or is too deep.
    """
    import optree  # noqa: PLC0415  (P1: not at import)

    while True:
        try:
            found = optree.tree_leaves(tree, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError as error:
            raise too_deep(tree) from error
        if not _admit_all(found):
            return found


def tree_map(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return a container, or a single leaf, with `function` applied to every leaf."""
    import optree  # noqa: PLC0415

    if not is_container(tree):
        return function(tree)
    while True:
        try:
            found, treespec = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
        except RecursionError as error:
            raise too_deep(tree) from error
        if not _admit_all(found):
            break
    mapped = [function(leaf) for leaf in found]
    try:
        return optree.tree_unflatten(treespec, mapped)
    except TypeError as error:
        msg = (
            f"the {type(tree).__qualname__} given to adprotocol holds a container that cannot be rebuilt from its "
            f"parts ({error}); register its class with optree, or pass the arrays themselves"
        )
        raise TreeError(msg) from error


def structure(tree: Any) -> Any:
    """Return the optree treespec of `tree`, to compare structures by."""
    import optree  # noqa: PLC0415

    flatten((tree,))  # admits the types first
    return optree.tree_structure(tree, none_is_leaf=True, namespace=NAMESPACE)


def plain_array(array: Any) -> Any:
    """Return a view of a NumPy array of any subclass (masked, record) as a plain one."""
    return array.view(sys.modules["numpy"].ndarray)


def too_deep(tree: Any) -> TreeError:
    """Return the error for a structure that contains itself or is too deep."""
    return TreeError(
        f"the {type(tree).__qualname__} given to adprotocol contains itself, or is nested deeper than the "
        "traversal can follow; break the cycle, or pass the arrays themselves"
    )


def _admit_all(found: list[Any]) -> bool:
    """Make nodes of the container types among the leaves; tell whether there were any."""
    admitted = False
    for cls in {type(leaf) for leaf in found}:
        key = bind(cls)
        if key == "container":
            admitted = True
        elif key == "opaque":
            admitted |= _admit_registered(next(leaf for leaf in found if type(leaf) is cls))
    return admitted


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
    return _admit_registered(blank)


@run_while_tracing
def _admit_registered(value: Any) -> bool:
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
