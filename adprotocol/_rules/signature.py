"""The signatures of a function and of its rules, which take the same arguments after two of their own."""

from __future__ import annotations

import functools
import types

from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable, Mapping


def signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, or None for one of an extension module that has none.

    Of a ufunc of NumPy it is that of its inputs: ``out`` and the like are no arguments of a rule.
    """
    import inspect  # noqa: PLC0415  (6 ms; not at import)

    inputs = getattr(inspect.unwrap(function), "nin", None)
    if isinstance(inputs, int):
        return inspect.Signature([inspect.Parameter(f"x{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(inputs)])
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def by_position(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function that may be given by position, but those of ``*args``."""
    return [known for known in _parameters(function).values() if known.kind.name.startswith("POSITIONAL_")]


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    known = signature(function)
    return {} if known is None else known.parameters


def completed(
    function: Callable[..., Any], args: tuple[Any, ...], static: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with those by position that were given by name, and with defaults."""
    known = signature(function)
    if known is None:
        return args, static
    try:
        bound = known.bind(*args, **static)
    except TypeError:  # the call itself says what is wrong
        return args, static
    bound.apply_defaults()
    return bound.args, {name: value for name, value in static.items() if name in bound.kwargs}


def takes_arguments(rule: Callable[..., Any]) -> bool:
    """Return whether a rule takes more than its own two arguments by position."""
    kinds = [parameter.kind.name for parameter in _parameters(rule).values()]
    return signature(rule) is None or "VAR_POSITIONAL" in kinds or len(by_position(rule)) > 2  # noqa: PLR2004


def reads(rule: Callable[..., Any] | None, place: int) -> bool:
    """Return whether a rule may read what it gets at a place among its arguments; one that is None reads nothing."""
    if rule is None or type(rule) is not types.FunctionType:
        return rule is not None
    code = rule.__code__
    is_named = place < code.co_argcount
    if not is_named and not code.co_flags & _TAKES_MORE:
        return False
    name = code.co_varnames[place if is_named else code.co_argcount + code.co_kwonlyargcount]
    return name in _loaded(code)


@functools.cache
def _loaded(code: types.CodeType) -> frozenset[str]:
    """Return the names of the arguments and variables that the code of a function loads."""
    import dis  # noqa: PLC0415  (as inspect, which imports it)

    if not _SEES_ALL.isdisjoint(code.co_names):
        return frozenset(code.co_varnames)
    loads = [step.argval for step in dis.get_instructions(code) if "LOAD_FAST" in step.opname]
    # From Python 3.13 one step loads two.
    names = [name for load in loads for name in (load if isinstance(load, tuple) else (load,))]
    return frozenset((*names, *code.co_cellvars))


_TAKES_MORE = 0x04  # inspect.CO_VARARGS
# What gives a function its variables by other ways than their names.
_SEES_ALL = {"locals", "vars", "dir", "eval", "exec", "_getframe", "currentframe"}


def keyword_defaults(function: Callable[..., Any], rule: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a function's keyword-only arguments, as far as its rule takes them."""
    taken = _parameters(rule)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    return {
        name: parameter.default
        for name, parameter in _parameters(function).items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is not parameter.empty
        and (takes_any or name in taken)
    }
