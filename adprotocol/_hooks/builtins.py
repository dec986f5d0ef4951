"""The bindings of the core: numbers, NumPy arrays, containers, functions and labels.

With no framework installed the hooks work on these alone. NumPy is never imported
here; its arrays are recognised once NumPy has been imported elsewhere.
"""

from __future__ import annotations

import itertools
import sys
import types
from functools import lru_cache, partial

from adprotocol._dispatch.binding import (
    CLASS,
    CONTAINER,
    FUNCTION,
    LABEL,
    NUMPY,
    OPAQUE,
    PLAIN,
    Binding,
    trainable_by_dtype,
)  # fmt: skip
from adprotocol._dispatch.dtype import is_inexact
from adprotocol._dispatch.registry import root
from adprotocol._dispatch.table import BINDINGS, install, unclaimed
from adprotocol._hooks import non_differentiable as constant
from adprotocol._hooks.label import NonDifferentiable
from adprotocol._hooks.within_gradient import ask
from adprotocol._trees import node
from adprotocol._trees.fields import is_enum
from adprotocol._trees.held import check_held, expand, holds_objects, plain_array
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

# Array libraries that have no derivatives: their arrays are constants.
WITHOUT_AD = frozenset({"array", "cupy", "dask", "h5py", "numpy", "pandas", "polars", "pyarrow", "scipy", "zarr"})


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
        return of_container(*functions, origin=node.origin(cls))
    # A subclass of partial may be a node of a framework (jax.tree_util.Partial), which only an instance shows.
    if issubclass(cls, FUNCTION_TYPES) and (cls is partial or not issubclass(cls, partial)):
        return BINDINGS.FUNCTION
    if _is_of_numpy(cls, "ufunc"):
        return BINDINGS.FUNCTION
    if is_array(cls):
        if root(cls) in WITHOUT_AD:
            return BINDINGS.PLAIN
        # A class that looks like an array but that a plugin flattens (flax.nnx.Param).
        functions = node.of_blank(cls)
        if functions is not None:
            return of_container(*functions, origin=node.origin(cls))
        raise unclaimed(cls)
    return BINDINGS.OPAQUE


_NUMBERS = itertools.count()


def of_container(
    flatten: Any, unflatten: Any, contents: Any = None, *, children: Any = None, origin: str | None = None
) -> Binding:
    """Return a binding of a class of containers; a compiler that traces Python finds it by its name."""
    contents = contents or flatten
    children = children or (lambda value: contents(value)[0])
    binding = Binding(
        CONTAINER,
        within_gradient=lambda value: ask(children(value), value),
        non_differentiable=constant.container,
        flatten=flatten,
        unflatten=unflatten,
        contents=contents,
        origin=origin,
    )
    binding.name = f"CONTAINER {next(_NUMBERS)}"
    setattr(BINDINGS, binding.name, binding)
    return binding


def _is_number(cls: type) -> bool:
    numbers = sys.modules.get("numbers")
    return (numbers is not None and issubclass(cls, numbers.Number)) or _is_of_numpy(cls, "generic")


def _is_of_numpy(cls: type, name: str) -> bool:
    base = getattr(sys.modules.get("numpy"), name, None)
    return base is not None and issubclass(cls, base)


def is_array(cls: type) -> bool:
    """Return whether a class has the marks of an array."""
    return any(hasattr(cls, name) for name in ("__array_namespace__", "__dlpack__", "__jax_array__")) or (
        hasattr(cls, "shape") and hasattr(cls, "dtype")
    )


def _ask_one(value: Any) -> Any:
    return ask((value,))


def ask_array(value: Any) -> Any:
    """Answer for an array: False, unless its elements are objects."""
    return value.dtype.hasobject and ask((value,))


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
    # A NumPy scalar takes a gradient; an array of a library without AD, a plain value here, does not.
    return True if dtype is not None and hasattr(value, "flat") and is_inexact(dtype) else None


def trainable_array(value: Any) -> bool | None:
    """Answer by the dtype of an array; refuse elements that would be frozen silently."""
    if value.dtype.hasobject:
        for element in expand([value]):
            check_held(value, element)
    return trainable_by_dtype(value)


def elements(array: Any) -> list[Any] | None:
    """Return the elements of an object array, which stands for them."""
    return plain_array(array).reshape(-1).tolist() if holds_objects(array) else None


def _labelled(label: NonDifferentiable) -> list[Any]:
    return tree_leaves((label.held,))


def _constant_label(label: NonDifferentiable) -> NonDifferentiable:
    """Make the value in a label constant now, and keep the label."""
    return NonDifferentiable(label.value)


BINDINGS.recognise = recognise
BINDINGS.of_container = of_container

install(
    Binding(PLAIN, trainable=_trainable_number, explain="a number or other value that no framework differentiates"),
    *PLAIN_TYPES,
)
install(
    Binding(
        NUMPY,
        within_gradient=ask_array,
        non_differentiable=constant.object_array,
        stands_for=elements,
        explain="a NumPy array; frameworks wrap or copy it when they differentiate",
        trainable=trainable_array,
        array_functions=lambda: sys.modules["numpy"],
    )
)
for _cls, _functions in node.BUILT_IN.items():
    install(of_container(*_functions, children=dict.values if _cls is dict else None), _cls)
install(
    Binding(FUNCTION, non_differentiable=constant.function, explain="a function; ask about its arguments"),
    *FUNCTION_TYPES,
)
install(
    Binding(CLASS, non_differentiable=constant.refuse_class, explain="a class"),
    type,
)
install(
    Binding(
        LABEL,
        non_differentiable=_constant_label,
        stands_for=_labelled,
        explain="labelled NonDifferentiable, so a constant at every level",
    ),
    NonDifferentiable,
)
_object: dict[str, Any] = {
    "within_gradient": _ask_one,
    "non_differentiable": constant.opaque,
    "explain": "not an array",
}
install(Binding(OPAQUE, **_object))
BINDINGS.WRAPPER = Binding(OPAQUE, part="OPAQUE around a function", **_object)
install(BINDINGS.WRAPPER)
