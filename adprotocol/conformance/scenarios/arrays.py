"""Arrays of each floating-point dtype, of many axes, and comparisons that every dtype can meet."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.shape import shape_of

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked


def first_element(array: Any) -> Any:
    """Return one element, by indexing alone."""
    # In a symbolic system the shape is an array too, and the number of dimensions is not.
    rank = getattr(array, "ndim", None)
    for _ in range(rank if isinstance(rank, int) else len(shape_of(array) or ())):
        array = array[0]
    return array


# The third has many elements.
_SHAPES: tuple[Any, ...] = (2.0, [2.0], [2.0] * 2000, [[2.0, 2.0], [2.0, 2.0]])


def each_array(h: Checked) -> Any:
    """Yield the name of each dtype, and an array of it in each shape."""
    for dtype in h.dtypes():
        for value in _SHAPES:
            yield f"{dtype}, {value!r:.20}", h.cast(h.array(value), dtype)


def dtypes_of_numpy(h: Checked) -> list[str]:
    """Return the names of those dtypes that NumPy has too: it has no bfloat16."""
    x = h.array(2.0)
    return [name for name in h.dtypes() if h.numpy(h.cast(x, name)).dtype.name == name]


def assert_near(h: Checked, got: Any, want: float, what: str, like: Any = None) -> None:
    """Compare all elements with a number that every floating-point dtype has; dtype and shape with those of `like`."""
    import numpy as np

    if like is not None:
        (dtype, shape), due = ((array.dtype, array.shape) for array in (h.numpy(got), h.numpy(like)))
        h.check((dtype, shape) == due, f"{what} has dtype {dtype} and shape {shape}; {due} was expected")
    found = np.asarray(h.numpy(got), dtype=float)
    h.check(bool(np.all(np.abs(found - want) < 0.01)), f"{what}: {found} was found, {want:g} expected")


SHAPES = ((1,), (2, 1, 3), (1, 2, 1, 2))


def filled(h: Checked, shape: tuple[int, ...], value: float) -> Any:
    """Return an array of a shape, of equal elements."""
    return h.array(nested(shape, value))


def nested(shape: tuple[int, ...], value: float) -> Any:
    """Return nested lists of a shape, of equal numbers."""
    made: Any = value
    for length in reversed(shape):
        made = [made] * length
    return made


def first(array: Any, shape: tuple[int, ...]) -> Any:
    """Return the first element of an array of that shape."""
    return functools.reduce(operator.getitem, [0] * len(shape), array)


def corner(shape: tuple[int, ...], value: float) -> Any:
    """Return nested lists with a value at the first element, and zeros elsewhere."""
    head, *rest = shape
    inner = tuple(rest)
    zeros = [nested(inner, 0.0) for _ in range(head - 1)]
    return [corner(inner, value) if inner else value, *zeros]
