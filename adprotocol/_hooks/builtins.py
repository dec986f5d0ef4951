"""The embedded default: numbers, NumPy arrays, containers, functions and labels.

With no framework installed the four hooks work on these alone. NumPy is never
imported here; its arrays are recognised once somebody else has imported it.
"""

from __future__ import annotations

from typing import Any

from adprotocol._dispatch.binding import Binding, inexact, is_inexact
from adprotocol._dispatch.table import CONTAINER_TYPES, FUNCTION_TYPES, PLAIN_TYPES, binding_of, install
from adprotocol._gradients.framework import DEFAULT
from adprotocol._hooks import non_differentiable as constant
from adprotocol._hooks import within_gradient as query
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._trees.node import is_enum


def _ask_one(value: Any) -> Any:
    return query.ask((value,))


def _ask_array(value: Any) -> Any:
    return value.dtype.hasobject and query.ask((value,))


def _refuse_nothing(_value: Any) -> Any:
    raise query.no_values()


def _trainable_number(value: Any) -> bool | None:
    """Answer for Python's and NumPy's numbers: a Python float takes a gradient, a complex number if it is selected."""
    if isinstance(value, float):
        # A member of an Enum of floats is a constant.
        return None if type(value) is not float and is_enum(type(value)) else True
    if isinstance(value, (int, str)):
        return None  # at once: a compiler may hold a symbol here, which has no attributes
    if isinstance(value, complex):
        return hasattr(value, "dtype")  # NumPy's complex scalar is one of its arrays
    dtype = getattr(value, "dtype", None)
    # A scalar of NumPy. Arrays of libraries without AD that are plain values here take none.
    return True if dtype is not None and hasattr(value, "flat") and is_inexact(dtype) else None


def _trainable_array(value: Any) -> bool | None:
    if value.dtype.hasobject:
        # Elements that take gradients would silently be frozen. The boxes of the framework
        # that differentiates NumPy are at home there, and are another call's.
        for element in query.elements([value]):
            if binding_of(type(element)).framework != DEFAULT:
                query.check_held(value, element)
    return inexact(value)


def _trainable_opaque(value: Any) -> None:
    # An object that hides arrays would silently be frozen.
    query.check_opaque(value)


def _explain_array(value: Any) -> str:
    if value.dtype.hasobject:
        return "an object array, decided by its elements"
    return "a NumPy array; frameworks wrap or copy it when they differentiate"


install(
    Binding("plain", trainable=_trainable_number, explain="a number or other value that no framework differentiates"),
    *PLAIN_TYPES,
)
install(
    Binding(
        "numpy",
        within_gradient=_ask_array,
        non_differentiable=constant.object_array,
        explain=_explain_array,
        trainable=_trainable_array,
    )
)
install(
    Binding("container", within_gradient=_ask_one, non_differentiable=constant.container),
    *CONTAINER_TYPES,
)
install(
    Binding("function", non_differentiable=constant.function, explain="a function; ask about its arguments"),
    *FUNCTION_TYPES,
)
install(
    Binding("type", non_differentiable=constant.refuse_class, explain="a class"),
    type,
)
install(
    Binding(
        "label",
        non_differentiable=constant.label,
        explain="labelled NonDifferentiable, so a constant at every level",
    ),
    NonDifferentiable,
)
install(
    Binding(
        "opaque",
        within_gradient=_ask_one,
        non_differentiable=constant.opaque,
        explain="not an array",
        trainable=_trainable_opaque,
    )
)
install(Binding("nothing", within_gradient=_refuse_nothing, non_differentiable=_refuse_nothing), query.Nothing)
