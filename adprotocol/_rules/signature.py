"""The signatures of a function and of its rules, which take the same arguments after two of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.errors import RuleError

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable


def signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, or None for one of an extension module that has none."""
    import inspect  # noqa: PLC0415  (6 ms; not at import)

    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def positional(
    function: Callable[..., Any], args: tuple[Any, ...], static: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call with those by position that may be given so, though given by name."""
    known = signature(function)
    if known is None:
        return args, static
    by_name = {
        name for name, parameter in known.parameters.items() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    }
    if not by_name.intersection(static):
        return args, static
    bound = known.bind(*args, **static)
    if by_name.intersection(bound.kwargs):  # after one that was left out
        bound.apply_defaults()
    return bound.args, bound.kwargs


def takes_arguments(rule: Callable[..., Any]) -> bool:
    """Tell whether a rule takes more than its own two arguments by position."""
    known = signature(rule)
    if known is None:
        return True
    kinds = [parameter.kind.name for parameter in known.parameters.values()]
    by_position = [kind for kind in kinds if kind in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD")]
    return "VAR_POSITIONAL" in kinds or len(by_position) > 2  # noqa: PLR2004


def refuse_arity(rule: Callable[..., Any], function: Callable[..., Any], method: str, first: str) -> None:
    """Raise `RuleError` if a rule cannot be called with its own two arguments and those of the function."""
    of_function, of_rule = signature(function), signature(rule)
    if of_function is None or of_rule is None:
        return
    required = [
        name
        for name, parameter in of_function.parameters.items()
        if parameter.kind.name in ("POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD") and parameter.default is parameter.empty
    ]
    static = [name for name, parameter in of_function.parameters.items() if parameter.kind.name == "KEYWORD_ONLY"]
    by_name = {name: None for name in static if of_function.parameters[name].default is parameter_empty(of_function)}
    try:
        of_rule.bind(None, None, *required, **by_name)
    except TypeError as error:
        called = ", ".join([first, "returned", *required, *(f"{name}=..." for name in by_name)])
        msg = f"the rule given to {method} has the signature {of_rule}, but is called as rule({called}): {error}"
        raise RuleError(msg) from None


def parameter_empty(known: inspect.Signature) -> Any:
    """Return the mark of a parameter without a default."""
    return known.empty
