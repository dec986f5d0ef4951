"""The signatures of a function and of its rules, which take the same arguments after two of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable


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
    known = signature(function)
    found = () if known is None else known.parameters.values()
    return [parameter for parameter in found if parameter.kind.name in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]


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
    """Tell whether a rule takes more than its own two arguments by position."""
    known = signature(rule)
    if known is None:
        return True
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in known.parameters.values())
    return takes_any or len(by_position(rule)) > 2  # noqa: PLR2004


def keyword_defaults(function: Callable[..., Any], rule: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a function's keyword-only arguments, as far as its rule takes them."""
    of_function, of_rule = signature(function), signature(rule)
    if of_function is None:
        return {}
    taken = {} if of_rule is None else of_rule.parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
    return {
        name: parameter.default
        for name, parameter in of_function.parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
        and parameter.default is not parameter.empty
        and (takes_any or name in taken)
    }
