"""The embedded default: numbers, NumPy arrays, containers, functions and labels.

With no framework installed the four hooks work on these alone. NumPy is never
imported here; its arrays are recognised once somebody else has imported it.
"""

from __future__ import annotations

from typing import Any

from adprotocol import constant, query
from adprotocol.binding import Binding
from adprotocol.label import NonDifferentiable
from adprotocol.table import CONTAINER_TYPES, FUNCTION_TYPES, PLAIN_TYPES, install


def _ask_one(value: Any) -> Any:
    return query.ask((value,))


def _ask_array(value: Any) -> Any:
    return value.dtype.hasobject and query.ask((value,))


def _refuse_nothing(_value: Any) -> Any:
    raise query.no_values()


def _explain_array(value: Any) -> str:
    if value.dtype.hasobject:
        return "an object array, decided by its elements"
    return "a NumPy array; frameworks wrap or copy it when they differentiate"


install(
    Binding("plain", explain="a number or other value that no framework differentiates"),
    *PLAIN_TYPES,
)
install(
    Binding(
        "numpy",
        within_gradient=_ask_array,
        non_differentiable=constant.object_array,
        explain=_explain_array,
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
install(Binding("opaque", within_gradient=_ask_one, non_differentiable=constant.opaque, explain="not an array"))
install(Binding("nothing", within_gradient=_refuse_nothing, non_differentiable=_refuse_nothing), query.Nothing)
