"""`NonDifferentiable`: the label for one field of a structure that takes no gradient."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from adprotocol._dispatch.registry import REGISTRY, load_plugins
from adprotocol._hooks.non_differentiable import constant_tree
from adprotocol._trees.registration import LABELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Unary = Callable[[Any], Any]
    Binary = Callable[[Any, Any], Any]

T = TypeVar("T")


def unlabelled(tree: Any) -> Any:
    """Replace each label in `tree`, the arguments of a function, by its constant value."""
    if isinstance(tree, NonDifferentiable):
        return tree.value
    if type(tree) in (list, tuple):
        return type(tree)(unlabelled(item) for item in tree)
    if type(tree) is dict:
        return {key: unlabelled(item) for key, item in tree.items()}
    return tree


# The method of the right operand by which an operator of NumPy's array goes on, by the name of the ufunc.
_REFLECTED = {
    "add": "__radd__",
    "subtract": "__rsub__",
    "multiply": "__rmul__",
    "divide": "__rtruediv__",
    "floor_divide": "__rfloordiv__",
    "remainder": "__rmod__",
    "divmod": "__rdivmod__",
    "power": "__rpow__",
    "matmul": "__rmatmul__",
    "left_shift": "__rlshift__",
    "right_shift": "__rrshift__",
    "bitwise_and": "__rand__",
    "bitwise_or": "__ror__",
    "bitwise_xor": "__rxor__",
    "equal": "__eq__",
    "not_equal": "__ne__",
    "less": "__gt__",
    "less_equal": "__ge__",
    "greater": "__lt__",
    "greater_equal": "__le__",
}


def _binary(function: Binary) -> Binary:
    def method(self: Any, other: Any) -> Any:
        return function(self.value, unlabelled(other))

    return method


def _reflected(function: Binary) -> Binary:
    def method(self: Any, other: Any) -> Any:
        return function(other, self.value)

    return method


def _unary(function: Unary) -> Unary:
    def method(self: Any) -> Any:
        return function(self.value)

    return method


class NonDifferentiable(Generic[T]):
    """Label one field of a structure as constant; the class that owns the field need not know.

    >>> from adprotocol import NonDifferentiable
    >>> period = NonDifferentiable(1.5)
    >>> period + 1.0
    2.5
    >>> period
    NonDifferentiable(1.5)

    The label is a node of the frameworks' pytrees, not a static field: it may
    hold a tracer, a change of its value recompiles nothing, and it need not be
    hashable. `value`, arithmetic, comparison, indexing and functions of NumPy or
    a framework give plain arrays that carry no derivative.

    Args:
        value: a number or an array of any shape and dtype.

    Asked for in JAX issues 2588 (non-differentiable fields by type) and 2912
    (static is not the same as non-differentiable).
    """

    __slots__ = ("held",)
    __array_priority__ = 1000  # NumPy leaves binary operators to the label

    def __init__(self, value: T) -> None:
        # The frameworks in use must know the label before it reaches one of their pytrees.
        load_plugins()
        self.held: Any = value.held if isinstance(value, NonDifferentiable) else value

    @property
    def value(self) -> T:
        """Return the value held, constant for every AD mode."""
        return constant_tree(self.held)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"NonDifferentiable({self.held!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (NonDifferentiable, (self.held,))

    def __getattr__(self, name: str) -> Any:
        # Attributes of the array (shape, dtype, sum, ...). Dunder names are protocols: only those defined below, those
        # that plugins add, and the array API's, which not every array has.
        if (name.startswith("__") and name != "__array_namespace__") or name == "held":
            load_plugins()  # the framework that asks may have been imported after the label was made
            if name != "held" and name in vars(NonDifferentiable):
                return getattr(self, name)
            msg = f"NonDifferentiable has no attribute {name!r}"
            raise AttributeError(msg)
        if name == "value":  # an AttributeError inside the property leads here: raise it as it is
            return constant_tree(self.held)
        return getattr(self.value, name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: FBT001  (NumPy's protocol)
        import numpy as np  # noqa: PLC0415  (the caller is NumPy)

        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        values = unlabelled(inputs)
        # `array * label` arrives here. The array in the label goes first, for it may be a tracer, which NumPy refuses.
        if method == "__call__" and not kwargs and len(values) == 2 and hasattr(values[0], "dtype"):  # noqa: PLR2004
            reflected = getattr(type(values[1]), _REFLECTED.get(ufunc.__name__, ""), None)
            result = NotImplemented if reflected is None else reflected(values[1], values[0])
            if result is not NotImplemented:
                return result
        return getattr(ufunc, method)(*values, **unlabelled(kwargs))

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        return func(*unlabelled(args), **unlabelled(kwargs))

    def __getitem__(self, key: Any) -> Any:
        return self.value[unlabelled(key)]  # type: ignore[index]

    def __len__(self) -> int:
        return len(self.value)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.value)  # type: ignore[call-overload,no-any-return]

    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)  # type: ignore[call-overload,no-any-return]

    def __float__(self) -> float:
        return float(self.value)  # type: ignore[arg-type]

    def __complex__(self) -> complex:
        return complex(self.value)  # type: ignore[call-overload,no-any-return]

    def __index__(self) -> int:
        return operator.index(self.value)  # type: ignore[arg-type]

    def __contains__(self, item: Any) -> bool:
        return item in self.value  # type: ignore[operator]

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)

    # Elementwise, like the comparison of the value; hence no hash.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]
    __eq__: ClassVar[Binary] = _binary(operator.eq)
    __ne__: ClassVar[Binary] = _binary(operator.ne)
    __lt__: ClassVar[Binary] = _binary(operator.lt)
    __le__: ClassVar[Binary] = _binary(operator.le)
    __gt__: ClassVar[Binary] = _binary(operator.gt)
    __ge__: ClassVar[Binary] = _binary(operator.ge)

    __add__: ClassVar[Binary] = _binary(operator.add)
    __sub__: ClassVar[Binary] = _binary(operator.sub)
    __mul__: ClassVar[Binary] = _binary(operator.mul)
    __truediv__: ClassVar[Binary] = _binary(operator.truediv)
    __floordiv__: ClassVar[Binary] = _binary(operator.floordiv)
    __mod__: ClassVar[Binary] = _binary(operator.mod)
    __matmul__: ClassVar[Binary] = _binary(operator.matmul)
    __lshift__: ClassVar[Binary] = _binary(operator.lshift)
    __rshift__: ClassVar[Binary] = _binary(operator.rshift)
    __and__: ClassVar[Binary] = _binary(operator.and_)
    __or__: ClassVar[Binary] = _binary(operator.or_)
    __xor__: ClassVar[Binary] = _binary(operator.xor)
    __pow__: ClassVar[Binary] = _binary(pow)
    __divmod__: ClassVar[Binary] = _binary(divmod)

    __radd__: ClassVar[Binary] = _reflected(operator.add)
    __rsub__: ClassVar[Binary] = _reflected(operator.sub)
    __rmul__: ClassVar[Binary] = _reflected(operator.mul)
    __rtruediv__: ClassVar[Binary] = _reflected(operator.truediv)
    __rfloordiv__: ClassVar[Binary] = _reflected(operator.floordiv)
    __rmod__: ClassVar[Binary] = _reflected(operator.mod)
    __rmatmul__: ClassVar[Binary] = _reflected(operator.matmul)
    __rlshift__: ClassVar[Binary] = _reflected(operator.lshift)
    __rrshift__: ClassVar[Binary] = _reflected(operator.rshift)
    __rand__: ClassVar[Binary] = _reflected(operator.and_)
    __ror__: ClassVar[Binary] = _reflected(operator.or_)
    __rxor__: ClassVar[Binary] = _reflected(operator.xor)
    __rpow__: ClassVar[Binary] = _reflected(pow)
    __rdivmod__: ClassVar[Binary] = _reflected(divmod)

    __neg__: ClassVar[Unary] = _unary(operator.neg)
    __pos__: ClassVar[Unary] = _unary(operator.pos)
    __invert__: ClassVar[Unary] = _unary(operator.invert)
    __abs__: ClassVar[Unary] = _unary(abs)

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self.value, ndigits)  # type: ignore[call-overload]

    def __trunc__(self) -> int:
        return int(self.value)  # type: ignore[call-overload,no-any-return]


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
