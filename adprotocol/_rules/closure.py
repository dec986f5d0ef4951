"""The search of closures and defaults for differentiated values: the rule of a function gives no derivative by them."""

from __future__ import annotations

import types

from adprotocol._dispatch.binding import ARRAY, VIEWED
from adprotocol._dispatch.table import lookup
from adprotocol._hooks.within_gradient import ask
from adprotocol._trees.held import search
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import RuleError

if TYPE_CHECKING:
    from collections.abc import Iterable


def may_hold(function: Any) -> bool:
    """Return whether a function may hold arrays; a plain function without closure and defaults cannot."""
    inner = getattr(function, "fun", function)
    is_function = isinstance(inner, types.FunctionType)
    return not is_function or bool(inner.__closure__ or inner.__defaults__ or inner.__kwdefaults__)


def closed_over(function: Any) -> list[Any]:
    """Return the arrays of frameworks in the closure and the defaults of a function, and of functions there."""
    items = search(function) if may_hold(function) else ()
    return [item for item in items if lookup(type(item)).kind in (ARRAY, VIEWED)]


def hold_tracked(functions: Iterable[Any]) -> bool:
    """Return whether one of the functions has a value that is differentiated in its closure or its defaults."""
    held = [array for function in functions for array in closed_over(function)]
    return len(held) > 0 and ask(tuple(held)) is True


def hidden_error(name: str) -> RuleError:
    """Return the error for a function that uses a differentiated value that is not an argument of it."""
    return RuleError(
        f"the function {name}, which has a derivative rule, uses a value that is differentiated and is no argument of "
        "it, so that this derivative would be lost; pass the value as a positional argument"
    )


def by_name(function: Any) -> list[Any]:
    """Return the arrays of frameworks among the global variables that a function names."""
    names = getattr(getattr(function, "__code__", None), "co_names", ())
    values = [function.__globals__[name] for name in names if name in function.__globals__]
    return [value for value in values if lookup(type(value)).kind is ARRAY]
