"""`non_differentiable`: the same value, constant for every AD mode, order and level."""

from __future__ import annotations

import functools

from adprotocol._dispatch.binding import ARRAY, CLASS, FUNCTION, OBJECT, OPAQUE
from adprotocol._dispatch.table import lookup
from adprotocol._dispatch.wrapper import wrap
from adprotocol._hooks.within_gradient import ask
from adprotocol._trees.held import check_opaque, elements, is_function, refilled, search
from adprotocol._trees.traversal import is_container, too_deep, tree_flatten, tree_map, tree_unflatten
from adprotocol._typing import TYPE_CHECKING, Any
from adprotocol.errors import NotConstantError

if TYPE_CHECKING:
    from collections.abc import Callable

# For an object that has a view, and so a way to be frozen.
FREEZE = (
    "To freeze a module in a gradient, turn off the requires_grad of its parameters, or leave them out with where=; "
    "for constant tensors, pass dict(module.named_parameters())"
)


def non_differentiable(value: Any, /) -> Any:
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
        NotConstantError: the value is a class or a descriptor, or a decorated function
            returns a function that closes over tracked values.
        OpaqueValueError: an object that hides framework arrays in attributes; an
            iterator, such as the generator that a decorated function returns.
        UnclaimedTypeError: an array of a framework without a plugin.

    Source: ``ChainRulesCore.@non_differentiable`` (Julia),
    ``jax.lax.stop_gradient`` and ``torch.Tensor.detach``.
    """
    return lookup(type(value)).non_differentiable(value)


def constant_leaf(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """Make one leaf constant; a function or class inside a structure stays unchanged."""
    binding = lookup(type(value))
    if binding.kind in (FUNCTION, CLASS):
        return value
    return _checked(value, within) if binding.kind in (OPAQUE, OBJECT) else binding.non_differentiable(value)


def _argument(value: Any) -> Any:
    binding = lookup(type(value))
    return value if binding.kind in (OPAQUE, OBJECT) else constant_leaf(value)


def constant_tree(value: Any) -> Any:
    """Make a container or a single value constant; a function stays unchanged and is not decorated."""
    (leaves, treespec), within = tree_flatten(value), (value,)
    return tree_unflatten(treespec, [constant_leaf(leaf, within) for leaf in leaves], value)


def _checked(value: Any, within: tuple[Any, ...] = ()) -> Any:
    """Return an object; refuse one that hides arrays, which would not be constant."""
    is_object = lookup(type(value)).kind is OBJECT
    check_opaque(value, within, FREEZE if is_object else "")
    return value


def container(value: Any) -> Any:
    """Make a container constant; one that wraps a function (equinox.filter_jit) is decorated like a function."""
    if hasattr(value, "__wrapped__") or isinstance(value, functools.partial):
        return function(value)
    return constant_tree(value)


def opaque(value: Any) -> Any:
    """Handle an object of unknown class: a plugin's container, a callable, or any other object."""
    if is_container(value):
        return container(value)
    if callable(value):
        return function(_checked(value))
    if hasattr(type(value), "__get__"):
        kind = type(value).__name__
        msg = f"non_differentiable was given a {kind}; put it below @{kind}, on each function that it was made of"
        raise NotConstantError(msg)
    return _checked(value)


def object_array(value: Any, function: Callable[[Any], Any] = constant_tree) -> Any:
    """Make the elements of an object-dtype NumPy array or record constant, or map `function`; others are constant."""
    parts = elements(value)
    if parts is None:
        return value
    try:
        return refilled(value, [function(part) for part in parts])
    except RecursionError as error:
        raise too_deep(value) from error


def function(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function so that it runs on constants and returns constants."""
    if isinstance(fun, staticmethod):
        return staticmethod(function(fun.__func__))

    def constant_function(*args: Any, **kwargs: Any) -> Any:
        # An opaque argument (`self`) passes unchanged: the values in it count as closed over.
        constants = [tree_map(_argument, argument) for argument in args]
        keywords = {name: tree_map(_argument, argument) for name, argument in kwargs.items()}
        return tree_map(_result, fun(*constants, **keywords))

    return wrap(constant_function, fun)


def _result(value: Any) -> Any:
    """Make one leaf of a result constant; refuse a function that would compute with tracked values."""
    # The arrays that it, and the functions it holds, carry with them.
    held = [item for item in search(value) if lookup(type(item)).kind is ARRAY] if is_function(value) else []
    if ask(held) is not False:
        name = getattr(value, "__qualname__", value)
        raise NotConstantError(
            f"a function decorated with non_differentiable returned the function {name}, "
            "which closes over values that are differentiated, so that its results would not be constant; return the "
            "values, or make them constant where the function takes them"
        )
    return constant_leaf(value)


def refuse_class(cls: type) -> Any:
    """Refuse a class: neither its instances nor its constructor would be constant."""
    raise NotConstantError(
        f"non_differentiable was given the class {cls.__qualname__}; make a value constant with "
        "non_differentiable(value), label one field with NonDifferentiable(value), or decorate its methods"
    )
