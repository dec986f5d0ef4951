"""`is_concrete`: may Python look at the elements of these values here?"""

from __future__ import annotations

from adprotocol._dispatch.binding import NUMPY, OPAQUE, UNSET
from adprotocol._dispatch.table import TABLE, is_array, lookup
from adprotocol._hooks.within_gradient import no_values
from adprotocol._trees.held import check_opaque, expand, holds_objects, search
from adprotocol._trees.traversal import tree_leaves
from adprotocol._typing import Any


def is_concrete(value: Any = UNSET, /, *others: Any) -> bool:
    """Return whether Python may branch on the elements of all of the values here.

    True exactly where ``bool(x.any())`` of each array returns: without an error, a graph break, or an answer that is
    frozen into a compiled program. Whether a derivative is taken does not matter.

    >>> import adprotocol, jax
    >>> def root(x):
    ...     if adprotocol.is_concrete(x) and (x < 0).any():
    ...         raise ValueError("root() of a negative number")
    ...     return x**0.5
    >>> jax.grad(root)(4.0).item()  # the numbers are there: it is checked
    0.25
    >>> jax.jit(root)(4.0).item()  # they are not: it is traced
    2.0

    Args:
        value: an array, number or any other value, or a container of them
            (dict, list, tuple, named tuple, dataclass, registered node), of any
            shapes and dtypes. Numbers, strings, None, functions and arrays of
            libraries without AD are concrete, lazy arrays (Dask's) are not.
        *others: more values, of any frameworks.

    Returns:
        A ``bool``, never staged. Under a tracing compiler it is a constant of the program.

    Raises:
        NoValuesError: without arguments.
        UnclaimedTypeError: an array of a framework without a plugin.
        OpaqueValueError: an object that hides framework arrays in attributes.
        PluginError: the plugin of the value's framework failed or is blocked.

    After ``jax.core.is_concrete``, and PennyLane's ``qml.math.is_abstract``.
    """
    binding = None if others else TABLE.get(type(value))
    if binding is not None:
        return binding.is_concrete(value)
    if value is UNSET:
        raise no_values("is_concrete")
    return all_concrete((value, *others))


def all_concrete(values: tuple[Any, ...]) -> bool:
    """Answer for several values of any kind, and for all that an object with a view shows."""
    for leaf in expand(tree_leaves(values), whole=True):
        binding = lookup(type(leaf))
        if binding.kind is OPAQUE:
            check_opaque(leaf, values)
            held = [item for item in search(leaf, is_array) if lookup(type(item)).kind is NUMPY]
            if not all(lookup(type(item)).is_concrete(item) for item in held):  # a lazy array in a wrapper
                return False
        elif not binding.is_concrete(leaf):
            return False
    return True


def array_is_concrete(value: Any) -> bool:
    """Answer for an array without AD: True, unless its elements are objects that say otherwise."""
    return not holds_objects(value) or all_concrete((value,))
