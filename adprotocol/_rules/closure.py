"""What a function with a rule must not reach beside its arguments: values that are differentiated."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from adprotocol._dispatch.binding import ARRAY, CLASS, FUNCTION, PLAIN, VIEWED
from adprotocol._dispatch.table import BINDINGS, lookup
from adprotocol._hooks.within_gradient import ask
from adprotocol._trees.held import search
from adprotocol.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable


def may_hold(function: Any) -> bool:
    """Tell whether a function may hold arrays; a plain function without closure and defaults cannot."""
    inner = getattr(function, "fun", function)
    return not isinstance(inner, types.FunctionType) or bool(inner.__closure__ or inner.__defaults__)


def hold_tracked(functions: Iterable[Any]) -> bool:
    """Tell whether a function holds a value that is differentiated, in its closure or its defaults."""
    held = [array for function in functions for array in closed_over(function)]
    return len(held) > 0 and ask(tuple(held)) is True


def hidden_error(name: str) -> RuleError:
    """Return the error for a function that uses a differentiated value that is no argument of it."""
    return RuleError(
        f"the function {name}, which has a derivative rule, uses a value that is differentiated and is no argument of "
        "it, so that this derivative would be lost; pass the value as a positional argument"
    )


def closed_over(function: Any) -> list[Any]:
    """Return the arrays of frameworks that a function holds, in its closure or its defaults."""
    found: list[Any] = []
    for cell in getattr(function, "__closure__", ()) or ():
        try:
            value = cell.cell_contents
        except ValueError:  # the name is not bound yet
            continue
        _add(value, found)
    for value in getattr(function, "__defaults__", ()) or ():
        _add(value, found)
    if not hasattr(function, "__code__"):
        _add(function, found)
    return found


def named(function: Any) -> list[Any]:
    """Return the arrays of frameworks that a function finds under global names."""
    code = getattr(function, "__code__", None)
    names = () if code is None else code.co_names
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    return [value for value in values if lookup(type(value)).kind is ARRAY]


def _add(value: Any, found: list[Any]) -> None:
    """Add the arrays that a value is or holds."""
    binding = lookup(type(value))
    while binding is BINDINGS.WRAPPER:  # what a framework made of a function (a compiled one)
        value = getattr(value, "__wrapped__", None)
        binding = lookup(type(value))
    kind = binding.kind
    if kind is PLAIN or kind is CLASS:
        return
    if binding.framework is not None and (kind is ARRAY or kind is VIEWED):
        found.append(value)
    elif kind is not FUNCTION or _holds(value):
        found.extend([item for item in search(value, _is_function) if lookup(type(item)).kind in (ARRAY, VIEWED)])


def _holds(function: Any) -> bool:
    """Tell whether a function holds anything at all."""
    if isinstance(function, types.FunctionType):
        return bool(function.__closure__ or function.__defaults__ or function.__kwdefaults__ or function.__dict__)
    if isinstance(function, types.BuiltinFunctionType):
        return not isinstance(function.__self__, (types.ModuleType, types.NoneType))
    return type(function).__module__ != "numpy"  # a ufunc


def _is_function(value: Any) -> bool:
    return lookup(type(value)).kind is FUNCTION
