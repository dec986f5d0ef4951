"""The checks on a new plugin: pluggy's, and those that pluggy leaves to its hook call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from adprotocol.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

    import pluggy


def new_manager() -> pluggy.PluginManager:
    """Return a pluggy manager that knows the hooks of the protocol."""
    import pluggy as _pluggy  # noqa: PLC0415  (25 ms; not at import)

    from adprotocol import hookspecs  # noqa: PLC0415

    manager = _pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def checked_hooks(implementation: object, name: str) -> tuple[dict[str, Callable[..., Any]], int]:
    """Let pluggy check one plugin apart from the others; return its functions and priority."""
    from adprotocol.hookspecs import REQUIRED  # noqa: PLC0415

    trial = new_manager()
    trial.register(implementation, name)
    trial.check_pending()
    hooks: dict[str, Callable[..., Any]] = {}
    priority = 0
    for caller in trial.get_hookcallers(implementation) or ():
        for impl in caller.get_hookimpls():
            if impl.wrapper or impl.hookwrapper:
                msg = (
                    f"{name}: hook {caller.name!r} is a wrapper, which would never run, because hooks are called "
                    "directly; mark it with a plain @hookimpl"
                )
                raise PluginError(msg)
            defaulted = [name for name in impl.kwargnames if caller.spec and name in caller.spec.argnames]
            if defaulted or caller.spec is None:
                what = (
                    f"gives {', '.join(defaulted)} a default, so pluggy does not pass it" if defaulted else "is unknown"
                )
                msg = f"{name}: hook {caller.name!r} {what}; use the signature given in adprotocol.hookspecs"
                raise PluginError(msg)
            _check_parameters(impl.function, name)
            hooks[caller.name] = _positional(impl, caller.spec)
            priority += impl.trylast - impl.tryfirst
    missing = [hook for hook in REQUIRED if hook not in hooks]
    unmarked = [hook for hook in missing if callable(getattr(implementation, hook, None))]
    if unmarked:
        msg = (
            f"plugin {name!r} defines {', '.join(unmarked)} without the decorator adprotocol.hookspecs.hookimpl; add it"
        )
        raise PluginError(msg)
    if missing:
        msg = f"plugin {name!r} lacks the required hook(s) {', '.join(missing)}; adprotocol.hookspecs documents them"
        raise PluginError(msg)
    return hooks, priority


def _check_parameters(function: Callable[..., Any], name: str) -> None:
    import inspect  # noqa: PLC0415  (pluggy has imported it)

    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            msg = (
                f"{name}: hook {function.__name__!r} takes {parameter}, which adprotocol.hookspecs does not document; "
                "take the documented arguments only"
            )
            raise PluginError(msg)


# A plugin may not claim numbers, containers or NumPy arrays.
_NOT_TO_CLAIM = frozenset(
    {
        "object",
        "type",
        "int",
        "float",
        "complex",
        "bool",
        "str",
        "bytes",
        "NoneType",
        "dict",
        "list",
        "tuple",
        "set",
        "frozenset",
        "function",
        "numpy.ndarray",
        "numpy.generic",
    }
)


def checked_types(types: Any, name: str, hook: str = "array_types") -> tuple[type, ...]:
    """Return the types that a hook of a plugin lists, checked to be classes that it may claim."""
    claimed: tuple[type, ...] = tuple(types)
    wrong = [cls for cls in claimed if not isinstance(cls, type)]
    if wrong:
        msg = f"plugin {name!r}: {hook} returned {wrong[0]!r}, which is not a class"
        raise PluginError(msg)
    names = [f"{cls.__module__}.{cls.__qualname__}".removeprefix("builtins.") for cls in claimed]
    foreign = [claim for claim in names if claim in _NOT_TO_CLAIM]
    if foreign:
        msg = (
            f"plugin {name!r}: {hook} claims {', '.join(foreign)}, which no framework owns; claim only classes of the "
            "framework"
        )
        raise PluginError(msg)
    return claimed


def _positional(impl: Any, spec: Any) -> Callable[..., Any]:
    """Return a function that takes the arguments of the specification in order.

    pluggy lets an implementation name fewer arguments, in any order.
    """
    function: Callable[..., Any] = impl.function
    wanted, given = tuple(spec.argnames), tuple(impl.argnames)
    if wanted == given:
        return function
    positions = [wanted.index(argument) for argument in given]
    return lambda *args: function(*(args[i] for i in positions))
