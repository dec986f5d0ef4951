"""Dtypes of any framework, known by what they call themselves: no framework is imported."""

from __future__ import annotations

import functools

from adprotocol._typing import Any

# The first that a name holds: bfloat16 and __bf16 as C calls them, uint8, complex64.
_MARKS = (
    ("complex", "complex"),
    ("float", "float"),
    ("bf16", "float"),
    ("half", "float"),
    ("double", "float"),
    ("bool", "bool"),
    ("int", "int"),
)


def dtype_name(dtype: Any) -> str:
    """Return a dtype as users write it: float32 for torch.float32 and ``<dtype: 'float32'>``."""
    for name in (getattr(dtype, "name", None), getattr(getattr(dtype, "as_numpy_dtype", None), "__name__", None)):
        if isinstance(name, str):
            return name
    words = "".join([sign if sign.isalnum() or sign == "_" else " " for sign in str(dtype)]).split()
    return words[-1] if words else ""


def _kind(_cls: type, dtype: Any) -> str:
    name = dtype_name(dtype).lower()
    return next((kind for mark, kind in _MARKS if mark in name), "")


# By class too: the dtypes of two libraries may be equal, and array_api_strict warns of a comparison. 4 µs for the name
# of one.
_known_kind = functools.cache(_kind)


def kind_of_dtype(dtype: Any) -> str:
    """Return bool, int, float or complex, as the name of a dtype tells; empty if it does not."""
    try:
        return _known_kind(type(dtype), dtype)  # type: ignore[arg-type]
    except TypeError:  # without a hash
        return _kind(type(dtype), dtype)


def is_inexact(dtype: Any) -> bool:
    """Return whether a dtype is floating-point or complex."""
    kind = getattr(dtype, "kind", "V")
    # bfloat16 and the 8-bit floats have kind 'V', like every dtype that NumPy does not know.
    if isinstance(kind, str) and kind != "V":
        return kind in "fc"
    return getattr(dtype, "names", None) is None and kind_of_dtype(dtype) in ("float", "complex")


def holds(dtype: Any, number: complex) -> bool:
    """Return whether arrays of a dtype can hold a Python number: integers no fraction, booleans nothing but a bool."""
    kind = kind_of_dtype(dtype)
    if isinstance(number, bool):
        return kind != ""
    kinds = ("int", "float", "complex")
    return kind in (kinds if isinstance(number, int) else kinds[1:] if isinstance(number, float) else kinds[2:])
