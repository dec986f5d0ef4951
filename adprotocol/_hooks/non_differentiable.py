"""`non_differentiable`: the same value, constant for every AD mode, order and level."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

from adprotocol._dispatch.binding import CLASS, FUNCTION, OBJECT, OPAQUE
from adprotocol._dispatch.table import binding_of
from adprotocol._dispatch.wrapper import wrap
from adprotocol._trees.opaque import check_opaque, plain_array
from adprotocol._trees.traversal import is_container, too_deep, tree_map
from adprotocol.errors import NotConstantError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# Code flags of functions whose body runs after the call has returned
# (inspect.CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR; inspect takes 6 ms to import).
_RUNS_LATER = 0x20 | 0x80 | 0x200


def non_differentiable(value: T, /) -> T:
    """Make a value constant for every AD mode, order and nesting level, or a function's result.

    >>> import adprotocol, autograd
    >>> print(autograd.grad(lambda x: x * adprotocol.non_differentiable(x))(3.0))
    3.0

    On a plain function or method it is a decorator. The function runs on
    constant arguments, positional and keyword, and its result is constant, even
    with respect to values it closes over:

    >>> @adprotocol.non_differentiable
    ... def scale(x):
    ...     return abs(x)
    >>> print(autograd.grad(lambda x: x / scale(x))(-4.0))
    0.25

    Args:
        value: an array of any shape and dtype, or a container (dict, list,
            tuple, named tuple, dataclass, registered node), which is rebuilt
            with constant leaves. Leaves that are not arrays come back as the
            identical object. Or a function.

    Returns:
        The same value, or the wrapped function with its metadata.

    Raises:
        NotConstantError: a class, a generator function or a coroutine function.
        OpaqueValueError: an object that hides framework arrays in attributes.
        UnclaimedTypeError: an array of a framework without a plugin.

    After ``ChainRulesCore.@non_differentiable`` (Julia),
    ``jax.lax.stop_gradient`` and ``torch.Tensor.detach``.
    """
    return binding_of(type(value)).non_differentiable(value)  # type: ignore[no-any-return]


def leaf(value: Any) -> Any:
    """Make one leaf constant; a function or class inside a structure stays unchanged."""
    binding = binding_of(type(value))
    if binding.kind in (FUNCTION, CLASS):
        return value
    if binding.kind in (OPAQUE, OBJECT):
        check_opaque(value)
        return value
    return binding.non_differentiable(value)


def _argument(value: Any) -> Any:
    binding = binding_of(type(value))
    return value if binding.kind in (OPAQUE, OBJECT) else leaf(value)


def constant_tree(value: Any) -> Any:
    """Make a container or a single value constant; a function stays unchanged and is not decorated."""
    return tree_map(leaf, value)


def container(value: Any) -> Any:
    """Make a container constant; one that wraps a function (equinox.filter_jit) is decorated like a function."""
    if hasattr(value, "__wrapped__") or isinstance(value, functools.partial):
        return function(value)
    return constant_tree(value)


def opaque(value: Any) -> Any:
    """Handle an object of unknown class: a plugin's container, a callable, or any other object."""
    if is_container(value):
        return container(value)
    check_opaque(value)
    return function(value) if callable(value) else value


def object_array(value: Any) -> Any:
    """Make the elements of an object-dtype NumPy array constant; other NumPy arrays already are."""
    if not value.dtype.hasobject:
        return value
    result = value.copy()
    flat = plain_array(result).reshape(-1)
    if value.dtype.names is not None:
        for name in value.dtype.names:
            flat[name] = object_array(flat[name])
        return result
    elements = flat.tolist()
    try:
        constants = [constant_tree(element) for element in elements]
    except RecursionError as error:
        raise too_deep(value) from error
    if all(new is old for new, old in zip(constants, elements, strict=True)):
        return value
    for i, constant in enumerate(constants):
        flat[i] = constant
    return result


def function(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs on constants and returns constants."""
    if isinstance(fun, staticmethod):
        return staticmethod(function(fun.__func__))
    if isinstance(fun, (classmethod, property)):
        kind = type(fun).__name__
        msg = f"non_differentiable was given a {kind}; put it below @{kind}, on the function itself"
        raise NotConstantError(msg)
    code = getattr(fun, "__code__", None)
    if code is not None and code.co_flags & _RUNS_LATER:
        msg = (
            f"non_differentiable was given {fun.__qualname__}, a generator or coroutine function, whose body runs "
            "after the call returns; decorate the plain function that computes each value"
        )
        raise NotConstantError(msg)

    def constant_function(*args: Any, **kwargs: Any) -> Any:
        # An opaque argument (`self`) passes unchanged: the values in it count as closed over.
        constants = [tree_map(_argument, argument) for argument in args]
        keywords = {name: tree_map(_argument, argument) for name, argument in kwargs.items()}
        return constant_tree(fun(*constants, **keywords))

    return wrap(constant_function, fun)


def refuse_class(cls: type) -> Any:
    """Refuse a class: neither its instances nor its constructor would be constant."""
    msg = (
        f"non_differentiable was given the class {cls.__qualname__}; make a value constant with "
        "non_differentiable(value), label one field with NonDifferentiable(value), or decorate its methods"
    )
    raise NotConstantError(msg)
