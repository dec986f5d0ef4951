"""The bindings of the core: numbers, NumPy arrays, containers, functions and labels.

With no framework installed the hooks work on these only. NumPy is never imported
here; its arrays are recognised once NumPy has been imported elsewhere.
"""

from __future__ import annotations

import itertools
import sys
import types
from functools import lru_cache, partial

from adprotocol._dispatch import binding as kind
from adprotocol._dispatch.binding import Binding, trainable_by_dtype
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.registry import REGISTRY, root
from adprotocol._dispatch.table import BINDINGS, install, is_array, unclaimed
from adprotocol._hooks import non_differentiable as constant
from adprotocol._hooks.is_concrete import all_concrete, array_is_concrete, is_concrete
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.within_gradient import ask
from adprotocol._trees import node
from adprotocol._trees.fields import is_enum
from adprotocol._trees.held import check_held, elements, expand, holds_objects, refilled
from adprotocol._trees.traversal import tree_leaves
from adprotocol._typing import Any

PLAIN_TYPES = (
    bool, int, float, complex, str, bytes, bytearray, memoryview, range, slice, type(None), type(...),
    type(NotImplemented),
    types.ModuleType, types.CodeType, types.FrameType, types.TracebackType,
)  # fmt: skip
FUNCTION_TYPES = (
    types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType,
    types.WrapperDescriptorType, types.MethodDescriptorType, staticmethod, partial,
    type(lru_cache(lambda: None)),
)  # fmt: skip

# Array libraries that have no derivatives, and classes declared as such: their arrays are constants.
WITHOUT_AD: set[str | type] = {
    "array", "array_api_strict", "blosc2", "cupy", "dask", "dpctl", "dpnp", "h5netcdf", "h5py", "mparray", "ndonnx",
    "numpy", "pandas", "polars", "pyarrow", "scipy", "sparse", "zarr",
}  # fmt: skip
# Those whose arrays may be around an array of a framework, so that each is searched for one.
_AROUND_ARRAYS = frozenset({"awkward", "marray", "pint", "xarray"})
# Those whose arrays are a graph, which a look computes.
_LAZY = frozenset({"dask", "ndonnx"})


def recognise(cls: type) -> Binding:  # one return for each kind
    """Return the binding of a class that no plugin claims.

    Raises `UnclaimedTypeError` for an array of a framework without a plugin.
    """
    if issubclass(cls, type):
        return BINDINGS.CLASS
    if _is_of_numpy(cls, "ndarray") or _is_of_numpy(cls, "void"):
        return BINDINGS.NUMPY
    if issubclass(cls, PLAIN_TYPES) or _is_number(cls):
        return BINDINGS.PLAIN
    functions = node.functions_of(cls)
    if functions is not None:
        return container_binding(cls, *functions)
    # A subclass of partial may be a node of a framework (jax.tree_util.Partial), which only an instance shows.
    is_function = issubclass(cls, FUNCTION_TYPES) and (cls is partial or not issubclass(cls, partial))
    if is_function or _is_of_numpy(cls, "ufunc"):
        return BINDINGS.FUNCTION
    if not is_array(cls):
        return BINDINGS.OPAQUE
    if is_without_ad(cls):
        return BINDINGS.WITHOUT_AD
    # A class that looks like an array but that a plugin flattens (flax.nnx.Param).
    functions = node.functions_of_blank(cls)
    if functions is not None:
        return container_binding(cls, *functions)
    if root(cls) in _AROUND_ARRAYS:
        return BINDINGS.OPAQUE
    raise unclaimed(cls)


def is_without_ad(cls: type) -> bool:
    """Return whether a class is declared to have no AD, by its root package or itself."""
    declared = WITHOUT_AD.union(*[plugin.without_ad for plugin in REGISTRY.active()])
    return not declared.isdisjoint((root(cls), *cls.__mro__))


_NUMBERS = itertools.count()


def container_binding(cls: type, flatten: Any, unflatten: Any, contents: Any = None) -> Binding:
    """Return a binding of a class of containers; a compiler that traces Python finds it by its name."""
    contents = contents or flatten
    children: Any = dict.values if cls is dict else lambda value: contents(value)[0]
    made = Binding(
        kind.CONTAINER,
        part=f"CONTAINER {next(_NUMBERS)}",
        within_gradient=lambda value: ask(children(value), value),
        non_differentiable=constant.container,
        is_concrete=lambda value: all_concrete(tuple(children(value))),
        flatten=flatten,
        unflatten=unflatten,
        contents=contents,
        origin=node.origin(cls),
    )
    install(made)
    return made


def _is_number(cls: type) -> bool:
    numbers = sys.modules.get("numbers")
    return (numbers is not None and issubclass(cls, numbers.Number)) or _is_of_numpy(cls, "generic")


def _is_of_numpy(cls: type, name: str) -> bool:
    base = getattr(sys.modules.get("numpy"), name, None)
    return base is not None and issubclass(cls, base)


def ask_array(value: Any) -> Any:
    """Answer for an array without AD: False, unless its elements are objects."""
    return holds_objects(value) and ask((value,))


def _trainable_number(value: Any) -> bool | None:
    """Answer for Python and NumPy numbers: a Python float takes a gradient, a Python complex only if selected."""
    if isinstance(value, float):
        # A member of an Enum of floats is a constant.
        return None if type(value) is not float and is_enum(type(value)) else True
    if isinstance(value, (int, str)):
        return None  # at once: a compiler may hold a symbol here, which has no attributes
    if isinstance(value, complex):
        return hasattr(value, "dtype")  # a complex NumPy scalar counts as an array
    dtype = getattr(value, "dtype", None)
    return True if dtype is not None and is_inexact(dtype) else None  # a NumPy scalar


def trainable_array(value: Any) -> bool | None:
    """Answer by the dtype of an array; refuse elements that would be frozen silently."""
    if holds_objects(value):
        for element in expand([value]):
            check_held(value, element)
    return trainable_by_dtype(value)


BINDINGS.recognise = recognise
BINDINGS.is_without_ad = is_without_ad
BINDINGS.container_binding = container_binding

install(
    Binding(
        kind.PLAIN, trainable=_trainable_number, explain="a number or other value that no framework differentiates"
    ),
    *PLAIN_TYPES,
)
_without_ad: dict[str, Any] = {
    "within_gradient": ask_array,
    "non_differentiable": constant.object_array,
    "is_concrete": array_is_concrete,
    "stands_for": elements,
    "unflatten": refilled,
    "trainable": trainable_array,
    "array_functions": lambda: sys.modules["numpy"],
}
install(Binding(kind.NUMPY, **_without_ad, explain="a NumPy array; frameworks wrap or copy it when they differentiate"))
_without_ad["is_concrete"] = lambda value: root(type(value)) not in _LAZY and array_is_concrete(value)
install(Binding(kind.NUMPY, part="WITHOUT_AD", **_without_ad, explain="an array of a library without AD: a constant"))
for _cls, _functions in node.BUILT_IN.items():
    install(container_binding(_cls, *_functions), _cls)
install(
    Binding(kind.FUNCTION, non_differentiable=constant.function, explain="a function; ask about its arguments"),
    *FUNCTION_TYPES,
)
install(Binding(kind.CLASS, non_differentiable=constant.refuse_class, explain="a class"), type)
install(
    Binding(
        kind.LABEL,
        non_differentiable=lambda label: NonDifferentiable(label.value),  # constant now, and labelled still
        is_concrete=lambda label: is_concrete(label.held),
        stands_for=lambda label: tree_leaves((label.held,)),
        explain="labelled NonDifferentiable, so a constant at every level",
    ),
    NonDifferentiable,
)
_object: dict[str, Any] = {
    "within_gradient": lambda value: ask((value,)),
    "non_differentiable": constant.opaque,
    "is_concrete": lambda value: all_concrete((value,)),
    "explain": "not an array",
}
install(Binding(kind.OPAQUE, **_object))
install(Binding(kind.OPAQUE, part="WRAPPER", **_object))  # around a function
