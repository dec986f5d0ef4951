"""What a value holds that the traversal does not flatten.

A value may stand for others: an object array for its elements, a module for its
parameters, a variable for its array (`expand`). An object of unknown class is
searched, and refused if it holds a framework's arrays, because an answer for it
might be wrong.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import FUNCTION, LABEL, OBJECT, OPAQUE
from adprotocol._dispatch.table import BINDINGS, lookup, unclaimed
from adprotocol._trees.fields import attribute_names
from adprotocol._trees.path import paths_of
from adprotocol._trees.traversal import binding_for, too_deep, tree_flatten, tree_leaves
from adprotocol.errors import OpaqueValueError, TreeError, UnclaimedTypeError, full_kind_of, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Attributes = tuple[tuple[str, Any], ...]

# How many objects inside an object of unknown class are searched for arrays.
LOOK_THROUGH = 10_000

ITERABLE = (Mapping, list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
# The attributes by which NumPy's iterators hold arrays: the collector of garbage does not know them.
_OF_ITERATORS = ("base", "operands", "iters")


def expand(leaves: Iterable[Any]) -> list[Any]:
    """Replace each leaf that stands for other values by these, at any depth; a label is a constant and stays."""
    found: list[Any] = []
    for leaf in leaves:
        binding = lookup(type(leaf))
        stays = binding.stands_for is None or binding.kind is LABEL
        parts = None if stays else binding.stands_for(leaf)  # type: ignore[misc]
        if parts is None:
            found.append(leaf)
        else:
            try:
                found.extend(expand(tree_leaves(tuple(parts))))
            except RecursionError as error:
                raise too_deep(leaf) from error
    return found


def plain_array(array: Any) -> Any:
    """Return a NumPy array of any subclass (masked, record), or a record, as a plain array."""
    return sys.modules["numpy"].asarray(array)


def holds_objects(array: Any) -> bool:
    """Tell whether the elements of a NumPy array or scalar are objects, or some fields of them are."""
    return array.dtype.hasobject  # type: ignore[no-any-return]


def held(value: Any) -> list[Any]:
    """Return what an object holds: in attributes and slots, as items, and what a function closes over or is bound to.

    A weak reference holds what it refers to. What a function finds among its global names is not meant.
    """
    if isinstance(value, weakref.ReferenceType):
        return [value()]
    if type(value) in weakref.ProxyTypes:
        return [value.__repr__.__self__]  # a method of what it refers to
    found = in_attributes(value)
    if isinstance(value, types.FunctionType):
        cells = value.__closure__ or ()
        found.extend([cell.cell_contents for cell in cells if _is_filled(cell)])
        found.extend((*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()))
        return found
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        return [*found, getattr(value, "__func__", None), value.__self__]
    if isinstance(value, functools.partial):
        return [*found, value.func, *value.args, *value.keywords.values()]
    found.extend(referents(value))
    if isinstance(value, Mapping):
        found.extend(value.items())
    elif isinstance(value, slice):
        found.extend((value.start, value.stop, value.step))
    elif hasattr(value, "__next__") and type(value).__module__ == "numpy":
        found.extend(getattr(value, name, None) for name in _OF_ITERATORS)
    elif isinstance(value, ITERABLE):
        found.extend(value)
    return found


def in_attributes(value: Any) -> list[Any]:
    """Return what an object holds in its ``__dict__``."""
    return list(getattr(value, "__dict__", {}).values())


def referents(value: Any) -> list[Any]:
    """Return what an object of any class refers to, as Python's collector of garbage sees it, but classes and modules.

    A class written in C holds things where no attribute shows them: a deque, an error, an iterator, a generator.
    """
    return [item for item in gc.get_referents(value) if not isinstance(item, (type, types.ModuleType))]


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (it raises where the name is not bound yet)
    except ValueError:
        return False
    return True


def search(value: Any, enters: Callable[[Any], bool], holds: Callable[[Any], Iterable[Any]] = held) -> Iterator[Any]:
    """Yield each object that `value` holds, what is in containers, and what those hold for which `enters` is true.

    Each once. `holds` says what an object holds.
    """
    seen, found = {id(value): value}, list(holds(value))  # the objects are kept, so that no id is given to another
    for item in found:
        if id(item) in seen:
            continue
        seen[id(item)] = item
        yield item
        binding = binding_for(item)
        stays = binding.stands_for is None or binding.kind in (LABEL, OBJECT)
        parts = None if stays else binding.stands_for(item)  # type: ignore[misc]
        if parts is not None:
            found.extend(parts)
        elif binding.children is not None:
            found.extend(binding.children(item))
        elif enters(item):
            found.extend(holds(item))


def check_opaque(value: Any, within: tuple[Any, ...] = (), remedy: str = "") -> None:
    """Refuse an object that holds a framework's arrays in its attributes or items: False might be wrong for it.

    The search covers attributes and items, the containers among them, and the objects in those. `within` are the
    values among which the object was found, for the message.
    """
    if _wraps_function(value):
        return
    marks = ("shape", "dtype")
    # A class that has both was judged by `recognise`.
    if all(hasattr(value, name) for name in marks) and not all(hasattr(type(value), name) for name in marks):
        raise unclaimed(type(value))
    if hasattr(type(value), "__next__"):
        msg = (
            f"adprotocol was given an iterator ({type(value).__qualname__}){_place(value, within)}, which looking "
            "inside would exhaust; pass a list of its items (for a torch module, list(module.parameters()))"
        )
        raise OpaqueValueError(msg)
    refuse_arrays(value, value, within, remedy)


def checked_attributes(value: Any) -> Attributes:
    """Return the attributes, which are constants, of a value that is flattened without them; refuse arrays in them."""
    if not getattr(value, "__dict__", None):
        return ()
    found = kept_attributes(value)
    refuse_arrays(value, found)
    return found


def kept_attributes(value: Any) -> Attributes:
    """Return the attributes of an instance, by name."""
    return tuple([(name, getattr(value, name)) for name in attribute_names(value)])


def check_array(array: Any) -> None:
    """Refuse arrays in the attributes and slots of a NumPy array of a subclass."""
    if type(array) is not sys.modules["numpy"].ndarray:
        refuse_arrays(array, array)


def refuse_arrays(value: Any, searched: Any, within: tuple[Any, ...] = (), remedy: str = "") -> None:
    """Refuse `value` if a framework's array is among what `searched`, the value itself or a part of it, holds."""
    for count, item in enumerate(search(searched, _is_opaque)):
        if count > LOOK_THROUGH:
            msg = (
                f"adprotocol was given {full_kind_of(value)}{_place(value, within)}, which holds too many objects to "
                "search for arrays; pass the arrays themselves"
            )
            raise OpaqueValueError(msg)
        check_held(value, item, within, remedy)


def _wraps_function(value: Any) -> bool:
    """Tell whether a framework made an object of a plain function, which is not searched either."""
    while lookup(type(value)) is BINDINGS.WRAPPER:
        value = getattr(value, "__wrapped__", None)
    return lookup(type(value)).kind is FUNCTION


def _is_opaque(value: Any) -> bool:
    return lookup(type(value)).kind is OPAQUE


def check_held(value: Any, item: Any, within: tuple[Any, ...] = (), remedy: str = "") -> None:
    """Refuse an object if `item`, which it holds, is a framework's array."""
    try:
        framework = lookup(type(item)).framework
    except UnclaimedTypeError:
        framework = type(item).__module__
    if framework is not None:
        from adprotocol.divergence import OBJECTS  # noqa: PLC0415  (for the message only)

        msg = (
            f"adprotocol was given {full_kind_of(value)}{_place(value, within)}, which holds "
            f"{with_article(framework)} {type(item).__qualname__} but is not a structure that can be flattened. "
            f"{remedy or OBJECTS.remedy}"
        )
        raise OpaqueValueError(msg)


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
