"""`NonDifferentiable`: the label for one field of a structure that takes no gradient."""

from __future__ import annotations

import builtins
import operator
import types

from adprotocol._dispatch.registry import REGISTRY, load_plugins
from adprotocol._hooks.non_differentiable import constant_tree
from adprotocol._trees.registration import LABELS
from adprotocol._typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ClassVar


def unlabelled(tree: Any) -> Any:
    """Replace each label in `tree`, the arguments of a function, by its constant value.

    >>> from adprotocol import NonDifferentiable
    >>> from adprotocol.extend import unlabelled
    >>> unlabelled((NonDifferentiable(2.0), {"k": NonDifferentiable(3.0)}))
    (2.0, {'k': 3.0})
    """
    if isinstance(tree, NonDifferentiable):
        return tree.value
    if type(tree) in (list, tuple):
        return type(tree)(unlabelled(item) for item in tree)
    if type(tree) is dict:
        return {key: unlabelled(item) for key, item in tree.items()}
    return tree


# The methods of Python's binary operators, by the ufunc that NumPy calls for each.
_OPERATORS = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "truediv", "floor_divide": "floordiv",
    "remainder": "mod", "power": "pow", "matmul": "matmul", "bitwise_and": "and", "bitwise_or": "or",
    "bitwise_xor": "xor", "equal": "eq", "not_equal": "ne", "less": "lt", "less_equal": "le", "greater": "gt",
    "greater_equal": "ge",
}  # fmt: skip
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")  # Python swaps their operands itself
# The methods by which Python applies other functions.
_FUNCTIONS = (
    "neg", "pos", "invert", "abs", "bool", "int", "float", "complex", "index", "len", "iter", "getitem", "contains",
    "round", "format",
)  # fmt: skip


class NonDifferentiable:
    """Label one field of a structure as constant; the class that owns the field need not know.

    >>> from adprotocol import NonDifferentiable
    >>> period = NonDifferentiable(1.5)
    >>> period + 1.0
    2.5
    >>> period
    NonDifferentiable(1.5)

    The label is a node of the frameworks' pytrees, not a static field: it may
    hold a tracer, a new value does not recompile, and it need not be hashable.
    `value`, arithmetic, comparison, indexing and functions of NumPy or
    a framework give plain arrays that carry no derivative.

    Args:
        value: a number or an array of any shape and dtype.

    Source: JAX issues 2588 (non-differentiable fields by type) and 2912
    (static is not the same as non-differentiable).
    """

    __slots__ = ("held",)
    __array_priority__ = 1000  # NumPy leaves binary operators to the label

    __class_getitem__: Any = classmethod(types.GenericAlias)  # for annotations
    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # comparison is elementwise

    def __init__(self, value: Any) -> None:
        # The frameworks in use must know the label before it reaches one of their pytrees.
        load_plugins()
        self.held: Any = value.held if isinstance(value, NonDifferentiable) else value

    @property
    def value(self) -> Any:
        """Return the value held, constant for every AD mode."""
        return constant_tree(self.held)

    def __repr__(self) -> str:
        return f"NonDifferentiable({self.held!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (NonDifferentiable, (self.held,))

    def __getattr__(self, name: str) -> Any:
        # Attributes of the array (shape, dtype, sum, ...). Names with an underscore are protocols: only those defined
        # below, those that plugins add, and the array API's, which not every array has. By `this` SWIG's modules take a
        # label for their own object, of a temporary.
        if (name.startswith("_") and name != "__array_namespace__") or name in ("held", "this", "thisown"):
            load_plugins()  # the framework that asks may have been imported after the label was made
            if name != "held" and name in vars(NonDifferentiable):
                return getattr(self, name)
            raise AttributeError(f"NonDifferentiable has no attribute {name!r}")
        if name == "value":  # an AttributeError inside the property leads here: raise it as it is
            return constant_tree(self.held)
        return getattr(self.value, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: FBT001  (NumPy's protocol)
        import numpy as np  # noqa: PLC0415  (the caller is NumPy)

        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        values = unlabelled(inputs)
        # `array * label` arrives here. A tracer in the label is taken by Python's operator, refused by the ufunc.
        if method == "__call__" and not kwargs and hasattr(values[0], "dtype") and ufunc.__name__ in _OPERATORS:
            try:
                return _BY_UFUNC[ufunc.__name__](*values)
            except TypeError:  # a tensor of PyTorch, whose operators take no array of NumPy
                return ufunc(*values)
        return getattr(ufunc, method)(*values, **unlabelled(kwargs))

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        return func(*unlabelled(args), **unlabelled(kwargs))


def _function(method: str) -> Callable[..., Any]:
    """Return the function that Python applies by a method: a built-in one, or an operator."""
    return getattr(builtins, method, None) or getattr(operator, f"__{method}__")  # type: ignore[no-any-return]


_BY_UFUNC = {ufunc: _function(method) for ufunc, method in _OPERATORS.items()}


def _add_method(method: str) -> None:
    """Let Python apply a function to the value in a label, on either side of a binary operator."""
    function = _function(method)

    def direct(self: NonDifferentiable, *others: Any) -> Any:
        return function(self.value, *unlabelled(others))

    def reflected(self: NonDifferentiable, other: Any) -> Any:
        return function(other, self.value)

    setattr(NonDifferentiable, f"__{method}__", direct)
    if method not in _COMPARISONS and method not in _FUNCTIONS:
        setattr(NonDifferentiable, f"__r{method}__", reflected)


for _method in (*_OPERATORS.values(), *_FUNCTIONS):
    _add_method(_method)


def _add_protocols() -> None:
    """Give the class the methods by which the functions of the active frameworks accept a label."""
    for plugin in REGISTRY.active():
        for name, method in plugin.label_methods.items():
            if name not in vars(NonDifferentiable):
                setattr(NonDifferentiable, name, method)


REGISTRY.on_change.append(_add_protocols)
# A map that saw a label as a leaf would strip it, and the field would be trained.
LABELS[NonDifferentiable] = (
    lambda label: ((label.value,), None, ("value",)),
    lambda _, children: NonDifferentiable(*children),
)
