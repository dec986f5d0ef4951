"""The checks on a new plugin: pluggy's, and those that pluggy leaves to its hook call."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any

from adprotocol.errors import PluginError, full_name
from adprotocol.tree_library import TreeLibrary

if TYPE_CHECKING:
    from collections.abc import Callable

    import pluggy

    from adprotocol.view import View


def checked_hooks(implementation: object, name: str) -> tuple[dict[str, Callable[..., Any]], int]:
    """Let pluggy check one plugin apart from the others; return its functions and priority."""
    from adprotocol.hookspecs import REQUIRED  # noqa: PLC0415  (imports pluggy: 25 ms; not at import)

    manager = _manager()
    manager.register(implementation, name)
    manager.check_pending()
    hooks: dict[str, Callable[..., Any]] = {}
    priority = 0
    for caller in manager.get_hookcallers(implementation) or ():
        for impl in caller.get_hookimpls():
            fault = _fault(impl, caller.spec)
            if fault:
                msg = f"{name}: hook {caller.name!r} {fault}"
                raise PluginError(msg, remedy=_remedy(caller.name, is_wrapper=impl.wrapper or impl.hookwrapper))
            hooks[caller.name] = _positional(impl, caller.spec)
            priority += impl.trylast - impl.tryfirst
    missing = [hook for hook in REQUIRED if hook not in hooks]
    unmarked = ", ".join(hook for hook in missing if callable(getattr(implementation, hook, None)))
    if unmarked:
        msg = f"plugin {name!r} defines {unmarked} without the decorator adprotocol.hookspecs.hookimpl; add it"
        raise PluginError(msg, remedy=f"mark {unmarked} with @hookimpl")
    if missing:
        lacking = ", ".join(missing)
        msg = f"plugin {name!r} lacks the required hook(s) {lacking}; adprotocol.hookspecs documents them"
        raise PluginError(msg, remedy=f"implement {lacking} as adprotocol.hookspecs documents")
    return hooks, priority


def _manager() -> pluggy.PluginManager:
    import pluggy as _pluggy  # noqa: PLC0415  (25 ms; not at import)

    from adprotocol import hookspecs  # noqa: PLC0415

    manager = _pluggy.PluginManager(hookspecs.PROJECT)
    manager.add_hookspecs(hookspecs)
    return manager


def _fault(impl: pluggy.HookImpl, spec: Any) -> str:
    """Say what is wrong with a hook that pluggy accepts; empty if nothing is."""
    import inspect  # noqa: PLC0415  (pluggy has imported it)

    if impl.wrapper or impl.hookwrapper:
        return "is a wrapper, which would never run, because hooks are called directly; mark it with a plain @hookimpl"
    if spec is None:
        return "is unknown; use the signature given in adprotocol.hookspecs"
    defaulted = ", ".join(name for name in impl.kwargnames if name in spec.argnames)
    if defaulted:
        return (
            f"gives {defaulted} a default, so pluggy does not pass it; use the signature given in adprotocol.hookspecs"
        )
    for parameter in inspect.signature(impl.function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            return (
                f"takes {parameter}, which adprotocol.hookspecs does not document; take the documented arguments only"
            )
    return ""


def _positional(impl: pluggy.HookImpl, spec: Any) -> Callable[..., Any]:
    """Return a function that takes the arguments of the specification in order.

    pluggy lets an implementation name fewer arguments, in any order.
    """
    function: Callable[..., Any] = impl.function
    wanted, given = tuple(spec.argnames), tuple(impl.argnames)
    if wanted == given:
        return function
    positions = [wanted.index(argument) for argument in given]
    return lambda *args: function(*(args[i] for i in positions))


def remedy_for(error: BaseException) -> str:
    """Return what the author of a plugin does about an error of its checks; empty if that is not known."""
    import pluggy as _pluggy  # noqa: PLC0415

    if not isinstance(error, _pluggy.PluginValidationError):
        return getattr(error, "remedy", "")
    # pluggy's error is text alone.
    named = re.search(r"\bhook '(\w+)'", str(error))
    return _remedy(named[1], is_wrapper="wrapper=True" in str(error)) if named else ""


def _remedy(hook: str, *, is_wrapper: bool = False) -> str:
    import difflib  # noqa: PLC0415  (for the message only)

    if is_wrapper:
        return "remove wrapper=True from its hooks"
    known = {name: caller for name, caller in vars(_manager().hook).items() if not name.startswith("_")}
    if hook in known:
        return f"name its arguments as in {hook}({', '.join(known[hook].spec.argnames)})"
    near = difflib.get_close_matches(hook, known, n=1)
    return f"rename {hook} to {near[0]}" if near else f"remove {hook}; the hooks are {', '.join(known)}"


# A plugin may not claim numbers, containers or NumPy arrays.
_BUILT_IN: tuple[type, ...] = (
    object, type, int, float, complex, bool, str, bytes, type(None), dict, list, tuple, set, frozenset, FunctionType
)  # fmt: skip
_NOT_TO_CLAIM = {*map(full_name, _BUILT_IN), "numpy.ndarray", "numpy.generic"}


def _refused(name: str, hook: str, fault: str, remedy: str) -> PluginError:
    return PluginError(f"plugin {name!r}: {hook} {fault}", remedy=f"{remedy} from {hook}")


def checked_types(found: Any, name: str, hook: str = "array_types") -> dict[type, Any]:
    """Return what a hook says of each type that it lists (True in a sequence), if a plugin may claim these types."""
    listed = tuple(found)
    own = "return the framework's own classes"
    wrong = [cls for cls in listed if not isinstance(cls, type)]
    if wrong:
        raise _refused(name, hook, f"returned {wrong[0]!r}, which is not a class", own)
    foreign = [full_name(cls).removeprefix("builtins.") for cls in listed if full_name(cls) in _NOT_TO_CLAIM]
    if foreign:
        fault = f"claims {', '.join(foreign)}, which no framework owns; claim only classes of the framework"
        raise _refused(name, hook, fault, own)
    types = dict(found) if isinstance(found, Mapping) else dict.fromkeys(listed, True)
    unclear = [cls for cls, said in types.items() if hook == "array_types" and not isinstance(said, bool)]
    if unclear:
        fault = f"maps {full_name(unclear[0])} to {types[unclear[0]]!r:.60}, which is not a bool"
        raise _refused(name, hook, fault, "return True for each class whose instances can carry a derivative, or False")
    return types


def checked_views(found: Any, name: str) -> dict[type, Callable[[Any], View]]:
    """Return what the hook `views` returned, if it is a mapping from classes that a plugin may claim to functions."""
    if not isinstance(found, Mapping) or not all(map(callable, found.values())):
        fault = f"returned {found!r:.60}, which is not a mapping from classes to functions"
        raise _refused(name, "views", fault, "return a dict from each class to the function that shows it")
    return checked_types(found, name, "views")


def checked_tree_library(found: Any, name: str) -> TreeLibrary:
    """Return what the hook `tree_library` returned, if it is a tree library."""
    if not isinstance(found, TreeLibrary):
        fault = f"returned {found!r:.60}, which is not an adprotocol.extend.TreeLibrary"
        raise _refused(name, "tree_library", fault, "return a TreeLibrary")
    return found


def checked_labels(found: Any, name: str) -> Mapping[str, Any]:
    """Return what the hook `label_protocol` returned, if it is a mapping from names to methods."""
    if not isinstance(found, Mapping) or not all(isinstance(method, str) for method in found):
        fault = f"returned {found!r:.60}, which is not a mapping from names to methods"
        raise _refused(name, "label_protocol", fault, "return a dict from the name of each method to the method")
    return found
