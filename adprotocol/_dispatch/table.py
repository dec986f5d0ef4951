"""The table: from the type of a value to the binding that serves it.

.. code-block:: text

    within_gradient(x) ──> TABLE[type(x)] ──> plugin's within_gradient(x)
                              │ first sight of the type
                              └──> resolve: plugins claim it? a number, NumPy,
                                   a container, a function? else an error

A call costs one dictionary lookup (P4). The table is filled on first sight of a
type and emptied when the set of plugins changes. What cannot be known from the
type alone (an object of a class nobody knows) is never stored, because the
class may be registered later.
"""

from __future__ import annotations

import sys
import types
from functools import partial

from adprotocol._dispatch import registry as plugins
from adprotocol._dispatch.binding import ARRAY, CONSTANT, OBJECT, VIEWED, Binding
from adprotocol._dynamo import run_while_tracing, trace_instead
from adprotocol.errors import MixedFrameworksError, PluginError, UnclaimedTypeError


class Bindings:
    """Hold each binding as an attribute, under its key.

    Dynamo follows an attribute whose name is a constant; a dictionary that is
    filled while it traces it cannot follow, for its guards would fail at once.
    """

    plain: Binding
    numpy: Binding
    container: Binding
    function: Binding
    type: Binding
    label: Binding
    opaque: Binding


BINDINGS = Bindings()
TABLE: dict[type, Binding] = {}
# What `TABLE` starts with, and goes back to when plugins change.
KNOWN: dict[type, Binding] = {}

PLAIN_TYPES = (
    bool, int, float, complex, str, bytes, bytearray, memoryview, range, slice,
    type(None), type(...), type(NotImplemented), types.ModuleType, types.CodeType,
)  # fmt: skip
FUNCTION_TYPES = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, staticmethod, classmethod, property, partial,
)  # fmt: skip
CONTAINER_TYPES = (dict, list, tuple)

# Array libraries that have no derivatives: their arrays are constants.
WITHOUT_AD = frozenset({"array", "cupy", "dask", "h5py", "numpy", "pandas", "polars", "pyarrow", "scipy", "zarr"})


def install(binding: Binding, *classes: type) -> None:
    """Enter a binding of the core, with the types known to be its own from the start."""
    setattr(BINDINGS, binding.key, binding)
    for cls in classes:
        KNOWN[cls] = TABLE[cls] = binding


def _empty() -> None:
    with plugins.LOCK:
        for plugin in plugins.REGISTRY.active():
            for binding in plugin.bindings:
                if binding.is_object:
                    binding.within_gradient = BINDINGS.opaque.within_gradient
                    binding.non_differentiable = BINDINGS.opaque.non_differentiable
                setattr(BINDINGS, binding.key, binding)
        TABLE.clear()
        TABLE.update(KNOWN)


plugins.REGISTRY.watchers.append(_empty)


@run_while_tracing
def bind(cls: type) -> str:
    """Return the key of the binding for `cls`, resolving the type on first sight.

    Raises `UnclaimedTypeError` for an array of a framework without a plugin and
    `PluginError` for one whose plugin failed or is blocked.
    """
    known = TABLE.get(cls)
    if known is not None:
        return known.key
    plugins.REGISTRY.refresh()
    with plugins.LOCK:
        binding = _resolve(cls)
        if binding is not BINDINGS.opaque:
            TABLE[cls] = binding
        return binding.key


def of_plugin(name: str, kind: str = ARRAY) -> Binding:
    """Return one of the bindings of an active plugin."""
    return getattr(BINDINGS, f"{kind} {name}")  # type: ignore[no-any-return]


def _binding_traced(cls: type) -> Binding:
    return getattr(BINDINGS, bind(cls))  # type: ignore[no-any-return]


@trace_instead(_binding_traced)
def binding_of(cls: type) -> Binding:
    """Return the binding for `cls`."""
    known = TABLE.get(cls)
    return _binding_traced(cls) if known is None else known


def _resolve(cls: type) -> Binding:
    claimants = plugins.REGISTRY.claimants(cls)
    if claimants:
        plugin = claimants[0]
        constant = plugin.hooks.get("constant_types")
        if constant is not None and cls in constant():
            return of_plugin(plugin.name, CONSTANT)
        return of_plugin(plugin.name, VIEWED if issubclass(cls, plugin.viewed) else ARRAY)
    unusable = plugins.REGISTRY.unusable(cls)
    if unusable is not None:
        raise _plugin_error(cls, unusable)
    for plugin in plugins.REGISTRY.active():
        if issubclass(cls, plugin.viewed):
            return of_plugin(plugin.name, OBJECT)
    if issubclass(cls, type):
        return BINDINGS.type
    if issubclass(cls, PLAIN_TYPES) or _is_number(cls):
        return BINDINGS.plain
    if _is_numpy(cls):
        return BINDINGS.numpy
    if _is_container(cls):
        return BINDINGS.container
    # A kind of partial that is registered with a framework (jax.tree_util.Partial) is a node, known by its values.
    if issubclass(cls, FUNCTION_TYPES) and (cls is partial or not issubclass(cls, partial)):
        return BINDINGS.function
    if _is_array(cls):
        if _root(cls) in WITHOUT_AD:
            return BINDINGS.plain
        if _is_registered(cls):
            return BINDINGS.container
        raise unclaimed(cls)
    return BINDINGS.opaque


def _root(cls: type) -> str:
    return str(cls.__module__).partition(".")[0]


def _is_number(cls: type) -> bool:
    numbers = sys.modules.get("numbers")
    if numbers is not None and issubclass(cls, numbers.Number):
        return True
    numpy = sys.modules.get("numpy")
    generic = getattr(numpy, "generic", None)
    return generic is not None and issubclass(cls, generic)


def _is_numpy(cls: type) -> bool:
    numpy = sys.modules.get("numpy")
    ndarray = getattr(numpy, "ndarray", None)
    return ndarray is not None and issubclass(cls, ndarray)


def _is_container(cls: type) -> bool:
    import optree  # noqa: PLC0415  (P1: not at import)

    from adprotocol._trees import node  # noqa: PLC0415  (it looks types up here)

    if cls in CONTAINER_TYPES or node.admit(cls):
        return True
    # optree's own kinds (OrderedDict, deque, ...), those registered with it for
    # every namespace, named tuples and struct sequences.
    return (
        optree.register_pytree_node.get(cls, namespace=node.NAMESPACE) is not None
        or optree.is_namedtuple_class(cls)
        or optree.is_structseq_class(cls)
    )


def _is_registered(cls: type) -> bool:
    """Tell whether a plugin takes apart a class that looks like an array (flax.nnx.Param)."""
    from adprotocol._trees import node  # noqa: PLC0415

    return node.admit_registered(cls)


def _is_array(cls: type) -> bool:
    return any(hasattr(cls, name) for name in ("__array_namespace__", "__dlpack__", "__jax_array__")) or (
        hasattr(cls, "shape") and hasattr(cls, "dtype")
    )


def unclaimed(cls: type) -> UnclaimedTypeError:
    """Return the error for an array type that no plugin claims."""
    root = _root(cls)
    active = [plugin.name for plugin in plugins.REGISTRY.active()]
    remedy = f"Install a plugin for {root!r}, publish one (adprotocol.hookspecs tells how)"
    if root in active:
        remedy = "Its framework's plugin does not claim this type: pass the array itself, upgrade the plugin"
    return UnclaimedTypeError(
        f"adprotocol was given a {cls.__module__}.{cls.__qualname__}, an array that no plugin claims (active plugins: "
        f"{', '.join(active) or 'none'}), so whether it carries a derivative is unknown. {remedy}, or convert it to "
        "NumPy first"
    )


def _plugin_error(cls: type, plugin: plugins.Plugin) -> PluginError:
    name = f"{cls.__module__}.{cls.__qualname__}"
    if plugin.state == plugins.BLOCKED:
        msg = (
            f"adprotocol was given a {name}, but the plugin {plugin.name!r} is blocked; "
            f"take it out of the environment variable {plugins.BLOCK_VARIABLE}"
        )
        return PluginError(msg)
    error = PluginError(
        f"adprotocol was given a {name}, but its plugin {plugin.name!r} failed: {plugin.reason}. "
        "Run `python -m adprotocol doctor` for the remedy; values of other frameworks are not affected"
    )
    error.__cause__ = plugin.error
    return error


def sole_framework(found: Binding, binding: Binding) -> Binding:
    """Return that one of two bindings that belongs to a framework; refuse two frameworks."""
    if binding.framework is None or binding.framework == found.framework:
        return found
    if found.framework is None:
        return binding
    msg = (
        f"one call was given values of two frameworks, {found.framework} and {binding.framework}; "
        "adprotocol answers for one at a time: convert one of them, or ask in two calls"
    )
    raise MixedFrameworksError(msg)
