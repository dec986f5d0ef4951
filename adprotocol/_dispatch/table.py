"""The table: from the type of a value to the binding that serves it.

.. code-block:: text

    within_gradient(x) ──> TABLE[type(x)] ──> the plugin's within_gradient(x)
                              │ a type met for the first time
                              └──> claimed by a plugin? else one of the core's kinds? else an error

A call costs one dictionary lookup, a tenth of pluggy's hook call. A type is resolved
when it is first met, and the table is emptied when the set of plugins changes. An
unknown class is never entered, because it may be registered later.
"""

from __future__ import annotations

from adprotocol._dispatch import registry
from adprotocol._dispatch.binding import ARRAY, CONSTANT, OBJECT, VIEWED, Binding
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import MixedFrameworksError, PluginError, UnclaimedTypeError
from adprotocol.messages import full_name, with_article

if TYPE_CHECKING:
    from collections.abc import Callable


class Bindings:
    """Hold each binding as an attribute, by its name.

    Dynamo follows an attribute whose name is a constant. It cannot follow a
    dictionary that is filled during tracing, because its guards would fail at once.
    """

    PLAIN: Binding
    NUMPY: Binding
    WITHOUT_AD: Binding
    FUNCTION: Binding
    CLASS: Binding
    LABEL: Binding
    OPAQUE: Binding
    WRAPPER: Binding
    # Returns the binding of a type that no plugin claims, and that of a class of containers, given the functions that
    # flatten and rebuild its instances; `adprotocol._hooks.builtins` sets both.
    recognise: Callable[[type], Binding]
    container_binding: Callable[..., Binding]
    is_without_ad: Callable[[type], bool]


BINDINGS = Bindings()
TABLE: dict[type, Binding] = {}
# The entries with which `TABLE` starts, also when plugins change.
KNOWN: dict[type, Binding] = {}
# Unknown classes that no plugin claims, until plugins change: these may still be registered as nodes.
_UNCLAIMED: set[type] = set()


def install(binding: Binding, *classes: type) -> None:
    """Enter a binding of the core, with the types that it serves from the start."""
    setattr(BINDINGS, binding.name, binding)
    for cls in classes:
        KNOWN[cls] = TABLE[cls] = binding


def _empty() -> None:
    with registry.LOCK:
        for plugin in registry.REGISTRY.active():
            for binding in plugin.bindings.values():
                if binding.kind is OBJECT:
                    for hook in ("within_gradient", "non_differentiable", "is_concrete"):
                        setattr(binding, hook, getattr(BINDINGS.OPAQUE, hook))
                setattr(BINDINGS, binding.name, binding)
        TABLE.clear()
        TABLE.update(KNOWN)
        _UNCLAIMED.clear()


registry.REGISTRY.on_change.append(_empty)


def resolve(cls: type) -> str:
    """Return the name of the binding for `cls`, resolving a type that is met for the first time.

    Raises `UnclaimedTypeError` for an array of a framework without a plugin and
    `PluginError` for one whose plugin failed or is blocked.
    """
    known = TABLE.get(cls)
    if known is not None:
        return known.name
    registry.REGISTRY.refresh()
    with registry.LOCK:
        # Another thread may have entered it meanwhile, or have emptied the table and filled it again.
        binding = TABLE.get(cls) or (BINDINGS.recognise(cls) if cls in _UNCLAIMED else _resolve(cls))
        if binding is BINDINGS.OPAQUE:
            _UNCLAIMED.add(cls)
        else:
            TABLE[cls] = binding
        return binding.name


def plugin_binding(name: str) -> Binding:
    """Return the binding for the arrays of an active plugin."""
    return getattr(BINDINGS, f"{ARRAY} {name}")  # type: ignore[no-any-return]


def lookup(cls: type) -> Binding:
    """Return the binding for `cls`."""
    try:
        return TABLE[cls]
    except KeyError:
        pass  # resolved below, so that an error there is not chained to this one
    return getattr(BINDINGS, resolve(cls))  # type: ignore[no-any-return]


def _resolve(cls: type) -> Binding:
    claimants = registry.REGISTRY.claimants(cls)
    if claimants:
        plugin = claimants[0]
        if cls in plugin.constants:
            return plugin.bindings[CONSTANT, None]
        return _viewed(cls, plugin, VIEWED) or plugin.bindings[ARRAY, None]
    unusable = registry.REGISTRY.unusable(cls)
    if unusable is not None:
        raise _unusable(cls, unusable)
    for plugin in registry.REGISTRY.active():
        binding = BINDINGS.WRAPPER if cls in plugin.functions else _viewed(cls, plugin, OBJECT)
        if binding is not None:
            return binding
    return BINDINGS.recognise(cls)


def _viewed(cls: type, plugin: registry.Plugin, kind: str) -> Binding | None:
    """Return the binding of a plugin with the view for `cls`, if it has one."""
    nearest = registry.nearest_base(cls, [base for binding, base in plugin.bindings if binding is kind and base])
    return None if nearest is None else plugin.bindings[kind, nearest[1]]


def is_array(value: Any) -> bool:
    """Return whether a class, or a value, has the marks of an array; only shape and dtype are those of a setting."""
    return any(
        hasattr(value, name) for name in ("__array_namespace__", "__dlpack__", "__jax_array__", "__array__")
    ) or all(hasattr(value, name) for name in ("shape", "dtype", "__add__"))


def unclaimed(cls: type) -> UnclaimedTypeError:
    """Return the error for an array type that no plugin claims."""
    root = registry.root(cls)
    active = [plugin.name for plugin in registry.REGISTRY.active()]
    remedy = f"Install a plugin for {root!r}, publish one (adprotocol.hookspecs says how)"
    if not registry.REGISTRY.known():
        remedy = registry.NONE_FOUND
    if root in active:
        remedy = "Its framework's plugin does not claim this type: pass the array itself, upgrade the plugin"
    return UnclaimedTypeError(
        f"adprotocol was given {with_article(full_name(cls))}, an array whose type no plugin claims (active plugins: "
        f"{', '.join(active) or 'none'}), so it is unknown whether it carries a derivative. {remedy}, "
        "make a class around an array a structure by adprotocol.register_structure, or, if it certainly carries none, "
        f"convert it to NumPy first or call adprotocol.plugins.register_without_ad({root!r})"
    )


def _unusable(cls: type, plugin: registry.Plugin) -> PluginError:
    name = with_article(full_name(cls))
    if plugin.state == registry.BLOCKED:
        return PluginError(
            f"adprotocol was given {name}, but its plugin {plugin.name!r} is blocked; "
            f"remove it from the environment variable {registry.BLOCK_VARIABLE}"
        )
    error = PluginError(
        f"adprotocol was given {name}, but its plugin {plugin.name!r} failed: {plugin.reason}. "
        "Run `python -m adprotocol doctor` for the remedy; values of other frameworks are not affected"
    )
    error.__cause__ = plugin.error
    return error


def join(sole: Binding, binding: Binding) -> Binding:
    """Return the one of two bindings that belongs to a framework, or the first.

    Raises `MixedFrameworksError` for two frameworks.
    """
    if binding.framework is None or binding.framework == sole.framework:
        return sole
    if sole.framework is None:
        return binding
    raise MixedFrameworksError(
        f"one call was given values of two frameworks, {sole.framework} and {binding.framework}; "
        "a call answers for one framework: convert one of the values, or make two calls"
    )
