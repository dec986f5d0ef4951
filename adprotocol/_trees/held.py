"""What a value holds that the traversal does not flatten.

A value may stand for others: an object array for its elements, a module for its
parameters (`expand`). An object of unknown class is searched, and refused if it holds a
framework's arrays, because an answer for it might be wrong.
"""

from __future__ import annotations

import functools
import sys
import types
from collections import deque
from collections.abc import Mapping, ValuesView
from collections.abc import Set as AbstractSet

from adprotocol._dispatch.binding import FUNCTION, LABEL, NUMPY, OPAQUE
from adprotocol._dispatch.table import BINDINGS, is_array, lookup, unclaimed
from adprotocol._trees.traversal import binding_for, too_deep, tree_flatten, tree_leaves
from adprotocol._trees.treespec import paths
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import OpaqueValueError, UnclaimedTypeError
from adprotocol.messages import full_kind_of, with_article

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


def expand(leaves: Iterable[Any], *, whole: bool = False) -> list[Any]:
    """Replace each leaf that stands for other values by these, at any depth; a label is a constant and stays.

    Of an object with a view by what decides a question, or by the `whole`.
    """
    expanded: list[Any] = []
    for leaf in leaves:
        binding = lookup(type(leaf))
        stays = binding.stands_for is None or binding.kind is LABEL
        parts = None if stays else binding.stands_for(leaf)  # type: ignore[misc]
        if whole and not stays and binding.view is not None:
            parts = ((view := binding.view(leaf)).container, *view.others())
        if parts is None:
            expanded.append(leaf)
        else:
            try:
                expanded.extend(expand(tree_leaves(tuple(parts)), whole=whole))
            except RecursionError as error:
                raise too_deep(leaf) from error
    return expanded


def plain_array(array: Any) -> Any:
    """Return a NumPy array of any subclass (masked, record), or a record, as a plain array."""
    return sys.modules["numpy"].asarray(array)


def elements(array: Any) -> list[Any] | None:
    """Return the elements of an object array, which stands for them."""
    return plain_array(array).reshape(-1).tolist() if holds_objects(array) else None


def refilled(array: Any, parts: Sequence[Any]) -> Any:
    """Return an object array, or a record, with these elements: itself if it has them, else a copy."""
    if all(new is old for new, old in zip(parts, elements(array) or (), strict=True)):
        return array
    if isinstance(array, sys.modules["numpy"].void):
        return refilled(plain_array(array), parts)[()]
    result = array.copy()
    flat = plain_array(result).reshape(-1)
    for i, part in enumerate(parts):
        flat[i] = part
    return result


def holds_objects(array: Any) -> bool:
    """Return whether the elements of an array or scalar without AD are objects, or some fields of them are."""
    return getattr(getattr(array, "dtype", None), "hasobject", False)


def held(value: Any) -> list[Any]:
    """Return what an object holds: in attributes and slots, as items, and what a function closes over or is bound to.

    What a function finds among its global names is not meant.
    """
    if isinstance(value, types.FunctionType):  # first: a call of a function with a rule looks into closures
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return [*vars(value).values(), *cells, *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if type(value).__name__ in ("builtin_function_or_method", "ufunc"):
        return [getattr(value, "__self__", None)]
    has_dict, slots = layout(type(value))
    parts = list(value.__dict__.values()) if has_dict else []
    parts.extend([getattr(value, name) for name in slots if hasattr(value, name)])
    if isinstance(value, (types.MethodType, types.BuiltinFunctionType)):
        parts.extend((getattr(value, "__func__", None), value.__self__))
    elif isinstance(value, functools.partial):
        parts.extend((value.func, *value.args, *value.keywords.values()))
    elif isinstance(value, Mapping):
        parts.extend(value.values())
    elif isinstance(value, (list, tuple, deque, AbstractSet, ValuesView)):
        parts.extend(value)
    return parts


def layout(cls: type) -> tuple[bool, tuple[str, ...]]:
    """Return whether the instances of a class have a ``__dict__``, and the names of their slots."""
    members = [item for base in cls.__mro__ if vars(base).get("__slots__") for item in vars(base).items()]
    return cls.__dictoffset__ != 0, tuple(
        name for name, member in members if isinstance(member, types.MemberDescriptorType)
    )


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  (it raises where the name is not bound yet)
    except ValueError:
        return False
    return True


def is_function(value: Any) -> bool:
    """Return whether a value is a function, or an object around one, such as a cached or a compiled function."""
    binding = lookup(type(value))
    if binding.kind is OPAQUE:
        return binding is BINDINGS.WRAPPER or hasattr(value, "__wrapped__")
    return binding.kind is FUNCTION


def search(value: Any, enters: Callable[[Any], bool] = is_function) -> Iterator[Any]:
    """Yield each object that `value` holds, what is in containers, and what those hold for which `enters` is true.

    Each once. Without `enters`: what functions there hold.

    >>> from adprotocol.extend import search
    >>> list(search(lambda limits=[2.0, 3.0]: limits))
    [[2.0, 3.0], 2.0, 3.0]
    """
    seen, waiting = {id(value): value}, held(value)  # the objects are kept, so that no id is given to another
    for item in waiting:
        if id(item) in seen:
            continue
        seen[id(item)] = item
        yield item
        binding = binding_for(item)
        if binding.kind is NUMPY:
            waiting.extend(binding.stands_for(item) or ())  # type: ignore[misc]
        elif binding.contents is not None:
            waiting.extend(binding.contents(item)[0])
        elif enters(item):
            waiting.extend(held(item))


def check_opaque(value: Any, within: tuple[Any, ...] = (), remedy: str = "") -> None:
    """Refuse an object that holds a framework's arrays in its attributes or items: False might be wrong for it.

    The search covers attributes and items, the containers among them, and the objects in those. `within` are the
    values among which the object was found, for the message.
    """
    if _wraps_function(value):
        return
    # The class was judged by `recognise`.
    if is_array(value) and not is_array(type(value)):
        if BINDINGS.is_without_ad(type(value)):
            return
        raise unclaimed(type(value))
    if hasattr(type(value), "__next__"):
        raise OpaqueValueError(
            f"adprotocol was given an iterator ({type(value).__qualname__}){_place(value, within)}, which looking "
            "inside would exhaust; pass a list of its items (for a torch module, list(module.parameters()))"
        )
    for item in search(value, lambda inner: lookup(type(inner)).kind is OPAQUE):
        check_held(value, item, within, remedy)


def _wraps_function(value: Any) -> bool:
    """Return whether a framework made an object of a plain function, which is not searched either."""
    while lookup(type(value)) is BINDINGS.WRAPPER:
        value = getattr(value, "__wrapped__", None)
    return lookup(type(value)).kind is FUNCTION


def check_held(value: Any, item: Any, within: tuple[Any, ...] = (), remedy: str = "") -> None:
    """Refuse an object if `item`, which it holds, is a framework's array."""
    try:
        framework = lookup(type(item)).framework
    except UnclaimedTypeError:
        framework = type(item).__module__
    if framework is not None:
        from adprotocol.divergence import OBJECTS  # noqa: PLC0415  (for the message only)

        raise OpaqueValueError(
            f"adprotocol was given {full_kind_of(value)}{_place(value, within)}, which holds {with_article(framework)} "
            f"{type(item).__qualname__} but is not a structure that can be flattened. {remedy or OBJECTS.remedy}"
        )


def _place(value: Any, within: tuple[Any, ...]) -> str:
    """Return where among the values an object is, for a message; empty if it is one of them."""
    for tree in within:
        leaves, treespec = tree_flatten(tree)
        for i, leaf in enumerate(leaves):
            if leaf is value and tree is not value:
                return f" at {paths(treespec)[i]!r}"
    return ""
