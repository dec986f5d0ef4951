"""Arrays of more than two axes, some of length one."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from adprotocol.conformance.checks import Checked

SHAPES = ((1,), (2, 3), (2, 1, 3), (1, 2, 1, 2), (1, 1, 1, 1, 2))


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
