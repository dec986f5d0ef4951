"""`NonDifferentiable`: the label for one field of a structure that takes no gradient."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from adprotocol._dispatch.registry import REGISTRY, wake_plugins
from adprotocol._hooks.non_differentiable import constant_tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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


# The operators, each by the name of NumPy's ufunc, which goes on with the reflected one of the right operand.
_ARITHMETIC = {
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "truediv",
    "floor_divide": "floordiv",
    "remainder": "mod",
    "divmod": "divmod",
    "power": "pow",
    "matmul": "matmul",
    "left_shift": "lshift",
    "right_shift": "rshift",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
}
_COMPARISONS = {
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
}
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
_REFLECTED = {ufunc: f"__r{name}__" for ufunc, name in _ARITHMETIC.items()} | {
    ufunc: f"__{_MIRRORED.get(name, name)}__" for ufunc, name in _COMPARISONS.items()
}


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
        wake_plugins()
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
        # Attributes of the array (shape, dtype, sum, ...). Dunder names are protocols: only those defined below, and
        # those that plugins add.
        if name.startswith("__") or name == "held":
            wake_plugins()  # the framework that asks may have been imported after the label was made
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

    # Comparison is elementwise, like that of the value; hence no hash.
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    if TYPE_CHECKING:  # what `_add_operators` sets

        def __eq__(self, other: Any, /) -> Any: ...
        def __neg__(self) -> Any: ...

        __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __divmod__ = __pow__ = __matmul__ = __eq__
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rdivmod__ = __rpow__ = __eq__
        __lshift__ = __rshift__ = __and__ = __or__ = __xor__ = __eq__
        __rmatmul__ = __rlshift__ = __rrshift__ = __rand__ = __ror__ = __rxor__ = __eq__
        __pos__ = __invert__ = __abs__ = __neg__

    def __round__(self, ndigits: int | None = None) -> Any:
        return round(self.value, ndigits)  # type: ignore[call-overload]

    def __trunc__(self) -> int:
        return int(self.value)  # type: ignore[call-overload,no-any-return]


def _add_operators() -> None:
    def method(function: Callable[..., Any], *, reflected: bool = False) -> Callable[..., Any]:
        if reflected:
            return lambda self, other: function(other, self.value)
        return lambda self, other: function(self.value, unlabelled(other))

    for name in (*_ARITHMETIC.values(), *_COMPARISONS.values()):
        function = getattr(operator, f"__{name}__", divmod)
        setattr(NonDifferentiable, f"__{name}__", method(function))
        if name in _ARITHMETIC.values():
            setattr(NonDifferentiable, f"__r{name}__", method(function, reflected=True))
    for name in ("neg", "pos", "invert", "abs"):
        unary = getattr(operator, f"__{name}__")
        setattr(NonDifferentiable, f"__{name}__", lambda self, unary=unary: unary(self.value))


_add_operators()


def _add_protocols() -> None:
    """Give the class the methods by which the functions of the active frameworks accept a label."""
    for plugin in REGISTRY.active():
        hook = plugin.hooks.get("label_protocol")
        for name, method in ({} if hook is None else hook()).items():
            if name not in vars(NonDifferentiable):
                setattr(NonDifferentiable, name, method)


REGISTRY.watchers.append(_add_protocols)
