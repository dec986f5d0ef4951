"""`within_gradient`: is a derivative propagated through this value, here and now?"""

from __future__ import annotations

from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from typing import Any

from adprotocol._dispatch.binding import never
from adprotocol._dispatch.registry import wake_plugins
from adprotocol._dispatch.table import BINDINGS, TABLE, binding_of, sole_framework, unclaimed
from adprotocol._dynamo import trace_instead
from adprotocol._trees import traversal as tree
from adprotocol.errors import NoValuesError, OpaqueValueError, PluginError, UnclaimedTypeError, UndecidableError

# The number of objects held by one of unknown class up to which arrays are looked for.
LOOK_THROUGH = 10_000


class Nothing:
    """The type of the argument that was not given."""


_NOTHING = Nothing()


def _within_gradient_traced(*values: Any) -> Any:
    return ask(values or (_NOTHING,))


@trace_instead(_within_gradient_traced)
def within_gradient(value: Any = _NOTHING, /, *others: Any) -> Any:
    """Tell whether a derivative is being propagated through any of the values, here and now.

    True exactly when the framework would propagate a derivative, forward or
    reverse, at any nesting level, through an operation applied at this point of
    the program to a leaf of one of the values. Decided by the values, never by
    a flag of the library; a framework's own switch (``torch.no_grad``) counts.

    >>> import adprotocol, autograd
    >>> adprotocol.within_gradient(1.0)
    False
    >>> print(autograd.grad(lambda x: x * 2.0 if adprotocol.within_gradient(x) else x)(1.0))
    2.0

    Args:
        value: an array, number or any other value, or a container of them
            (dict, list, tuple, named tuple, dataclass, registered node), of any
            shapes and dtypes. Integer and boolean arrays, numbers, strings,
            None, functions and NumPy arrays are False.
        *others: more of them; True if any leaf of any value is tracked.

    Returns:
        A ``bool`` when the framework knows now. Under JAX's jit, scan or
        checkpoint it is a staged boolean scalar, shape ``()``, that becomes True
        or False when a transformation is applied later: branch on it with
        `adprotocol.cond`, not with ``if``.

    Raises:
        NoValuesError: without arguments (the answer depends on a value).
        MixedFrameworksError: the values belong to two frameworks.
        UnclaimedTypeError: an array of a framework without a plugin.
        OpaqueValueError: an object that hides framework arrays in attributes.
        PluginError: the plugin of the value's framework failed or is blocked.

    The definition is that of ``NNlib.within_gradient`` in Julia, extended to
    forward mode and to staging compilers.
    """
    if others:
        return ask((value, *others))
    try:
        # Two steps: CPython 3.11 specialises an attribute and a call, but not a
        # call of a slot's content (25 ns).
        query = TABLE[type(value)].within_gradient
    except KeyError:
        pass  # asked below, so that an error there does not show this one
    else:
        return query(value)
    return ask((value,))


def ask(values: tuple[Any, ...]) -> Any:
    """Answer for any number of values of any kind, those of a framework together."""
    found = asked = BINDINGS.plain
    tracked: list[Any] = []
    leaves = tree.flatten(values)
    # Every leaf is looked at, also after a True: two frameworks are an error.
    for leaf in leaves:
        binding = binding_of(type(leaf))
        if binding.is_object:
            return ask(tuple(shown(leaves)))
        if binding.framework is not None:
            if binding is not found:
                found = sole_framework(found, binding)
            if binding.within_gradient is not never:
                asked = binding
                tracked.append(leaf)
        elif binding.key == "numpy":
            if leaf.dtype.hasobject:
                return ask(tuple(elements(leaves)))
        elif binding.key == "opaque":
            check_opaque(leaf)
        elif binding.key == "nothing":
            raise no_values()
    if not tracked:
        return False
    if len(tracked) > 1 and asked.any_within_gradient is not None:
        return asked.any_within_gradient(tracked)
    answer: Any = False
    for leaf in tracked:
        one = asked.within_gradient(leaf)
        if one is True:
            return True
        if one is None:
            msg = f"the plugin {asked.framework!r} returned None from within_gradient; it must answer, now or staged"
            raise PluginError(msg)
        if one is not False:
            answer = one if answer is False else answer | one
    return answer


def elements(leaves: list[Any]) -> list[Any]:
    """Return the leaves with the elements, at any depth, in place of each object-dtype array."""
    found: list[Any] = []
    for leaf in leaves:
        if binding_of(type(leaf)).key == "numpy" and leaf.dtype.hasobject:
            try:
                found.extend(elements(tree.flatten(tuple(tree.plain_array(leaf).reshape(-1).tolist()))))
            except RecursionError as error:
                raise tree.too_deep(leaf) from error
        else:
            found.append(leaf)
    return found


def shown(leaves: list[Any]) -> list[Any]:
    """Return the leaves with what is shown of each object, such as a torch module, in its place."""
    found: list[Any] = []
    for leaf in leaves:
        binding = binding_of(type(leaf))
        if binding.is_object and binding.view is not None:
            found.append(binding.view(leaf).container)
        else:
            found.append(leaf)
    return found


def check_opaque(value: Any) -> None:
    """Refuse an object in whose attributes or items a framework's arrays hide.

    Such an object cannot be answered for, and False might be wrong. Looked at
    are attributes, items, the containers among them and the objects in those.
    """
    # The table has looked at the class; attributes may be the instance's own.
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        raise unclaimed(type(value))
    if hasattr(type(value), "__next__"):
        msg = (
            f"adprotocol was given an iterator, a {type(value).__qualname__}, and would use it up by looking; pass a "
            "list of its items (for a torch module, list(module.parameters()))"
        )
        raise OpaqueValueError(msg)
    seen, waiting = {id(value)}, [value]
    while waiting:
        if len(seen) > LOOK_THROUGH:
            msg = (
                f"adprotocol was given a {type(value).__module__}.{type(value).__qualname__}, which holds too many "
                "objects to look through for arrays; pass the arrays themselves"
            )
            raise OpaqueValueError(msg)
        for item in _held(waiting.pop()):
            if id(item) not in seen:
                seen.add(id(item))
                if check_held(value, item):
                    waiting.append(item)


def check_held(value: Any, item: Any) -> bool:
    """Refuse an object that holds a framework's array; tell whether the item is to be looked into in turn."""
    try:
        binding = binding_of(type(item))
        framework = binding.framework
        opaque = binding.key == "opaque"
    except UnclaimedTypeError:
        opaque = False
        framework = type(item).__module__
    if framework is not None:
        from adprotocol.divergence import OBJECTS  # noqa: PLC0415  (for the message only)

        msg = (
            f"adprotocol was given a {type(value).__module__}.{type(value).__qualname__}, which holds a "
            f"{framework} {type(item).__qualname__} but is no structure that can be taken apart. {OBJECTS.remedy}"
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
    return elements(tree.flatten(tuple(held)))


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    owner = cls.__name__.lstrip("_")
    return tuple(
        f"_{owner}{name}" if name.startswith("__") and not name.endswith("__") else name
        for name in names
        if name not in ("__dict__", "__weakref__")
    )


def explain(*values: Any) -> str:
    """Explain in text what `within_gradient` answers for the values, and why.

    >>> import adprotocol
    >>> print(adprotocol.explain(1.0))
    float: False (a number or other value that no framework differentiates)

    Args:
        *values: what one would give to `within_gradient`.

    Returns:
        One line for each leaf, with its type, its plugin, the answer and its reason.

    Raises:
        NoValuesError: without arguments.
    """
    if not values:
        raise no_values()
    wake_plugins()
    return "\n".join(_explain_one(leaf) for leaf in elements(tree.flatten(tuple(shown(tree.flatten(values))))))


def _explain_one(leaf: Any) -> str:
    binding = binding_of(type(leaf))
    plugin = f" [plugin {binding.framework}]" if binding.framework else ""
    try:
        answer = ask((leaf,))
    except (OpaqueValueError, UndecidableError) as error:
        return f"{type(leaf).__qualname__}: no answer ({error})"
    shown = answer if isinstance(answer, bool) else "staged"
    reason = binding.explain if isinstance(binding.explain, str) else binding.explain(leaf)
    return f"{type(leaf).__qualname__}{plugin}: {shown}" + (f" ({reason})" if reason else "")


def no_values() -> NoValuesError:
    """Return the error for a question without values."""
    return NoValuesError(
        "within_gradient() was given no values; the answer depends on the values it is asked about "
        "(there is no ambient flag): pass the array, or the parameters, whose derivative matters"
    )
