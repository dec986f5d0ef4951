"""Shapes of any framework. In a program that is staged a size may be no int: None, or a scalar of the program."""

from __future__ import annotations

from adprotocol._dispatch.table import lookup
from adprotocol._typing import Any


def sizes(value: Any) -> tuple[Any, ...] | None:
    """Return the shape of an array as far as it is known: None, or None in it, where it is not."""
    shape = getattr(value, "shape", ())
    if callable(shape) or (isinstance(shape, tuple) and shape):
        return shape_of(value)
    try:
        return tuple(shape)
    except (TypeError, ValueError):
        return None


def shape_of(value: Any) -> tuple[Any, ...] | None:
    """Return the shape of an array, or of a number, which may be boxed; None for what is neither."""
    shape, binding = getattr(value, "shape", None), lookup(type(value))
    if shape is None:
        return () if isinstance(value, (int, float, complex)) or binding.framework is not None else None
    functions: Any = binding.array_functions() if binding.framework and binding.array_functions else None
    if hasattr(functions, "shape"):
        return functions.shape(value)  # type: ignore[no-any-return]
    if isinstance(shape, tuple):
        # A number of a system of matrices alone, which has no dtypes either.
        return () if not hasattr(value, "dtype") and shape == (1, 1) else shape
    return None if callable(shape) else sizes(value)


def is_known(size: Any, number: int | None = None) -> bool:
    """Return whether a size is known now, and is `number` if that is given."""
    return isinstance(size, int) and number in (None, size)


def may_be_equal(shape: Any, other: Any) -> bool:
    """Return whether two shapes are equal as far as they are known."""
    if shape is None or other is None or len(shape) != len(other):
        return shape is None or other is None
    # A generator, as for all(), takes 0.5 µs more.
    return False not in [a == b for a, b in zip(shape, other, strict=True) if isinstance(a, int) and isinstance(b, int)]
