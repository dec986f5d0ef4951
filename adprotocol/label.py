"""`NonDifferentiable`: the label for one field of a structure that takes no gradient."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def unlabelled(tree: Any) -> Any:
    """Return `tree`, arguments of a function, with the constant value in place of each label."""
    if isinstance(tree, NonDifferentiable):
        return tree.value
    if type(tree) in (list, tuple):
        return type(tree)(unlabelled(item) for item in tree)
    if type(tree) is dict:
        return {key: unlabelled(item) for key, item in tree.items()}
    return tree


class NonDifferentiable(Generic[T]):
    """Label one field of a structure as constant, without the owner's class knowing.

    >>> from adprotocol import NonDifferentiable
    >>> period = NonDifferentiable(1.5)
    >>> period + 1.0
    2.5
    >>> period
    NonDifferentiable(1.5)

    The label is a node of the frameworks' trees, not a static field: it may
    hold a tracer, a change of its value recompiles nothing, and it need not be
    hashable. What comes out of it, by `value`, arithmetic, comparison,
    indexing, or a function of NumPy or a framework, is a plain array that
    carries no derivative.

    Args:
        value: a number or an array of any shape and dtype.

    Asked for in JAX issues 2588 (non-differentiable fields by type) and 2912
    (static is not the same as non-differentiable).
    """

    __slots__ = ("held",)
    __array_priority__ = 1000  # NumPy leaves binary operators to the label

    def __init__(self, value: T) -> None:
        self.held: Any = value.held if isinstance(value, NonDifferentiable) else value

    @property
    def value(self) -> T:
        """Return the value held, constant for every AD mode."""
        from adprotocol.constant import structure_or_leaf  # noqa: PLC0415  (it needs this class)

        return structure_or_leaf(self.held)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"NonDifferentiable({self.held!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (NonDifferentiable, (self.held,))

    def __getattr__(self, name: str) -> Any:
        # Attributes of the array (shape, dtype, sum, ...). Protocols, which all
        # have dunder names, are those defined below and no others.
        if name.startswith("__") or name == "held":
            msg = f"NonDifferentiable has no attribute {name!r}"
            raise AttributeError(msg)
        return getattr(self.value, name)

    # Elementwise, like the comparison of the value; hence no hash.
    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:  # noqa: FBT001  (NumPy's protocol)
        import numpy as np  # noqa: PLC0415  (the caller is NumPy)

        return np.array(self.value, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, method)(*unlabelled(inputs), **unlabelled(kwargs))

    def __array_function__(self, func: Any, _types: Any, args: Any, kwargs: Any) -> Any:
        return func(*unlabelled(args), **unlabelled(kwargs))

    def __jax_array__(self) -> Any:
        import jax.numpy as jnp  # noqa: PLC0415  (the caller is JAX)

        return jnp.asarray(self.value)

    @classmethod
    def __torch_function__(cls, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*unlabelled(args), **unlabelled(kwargs or {}))

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


def _binary(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: NonDifferentiable[Any], other: Any) -> Any:
        return function(self.value, unlabelled(other))

    return method


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: NonDifferentiable[Any], other: Any) -> Any:
        return function(other, self.value)

    return method


def _unary(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def method(self: NonDifferentiable[Any]) -> Any:
        return function(self.value)

    return method


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "lshift", "rshift", "and_", "or_", "xor"):
    _dunder = _name.rstrip("_")
    setattr(NonDifferentiable, f"__{_dunder}__", _binary(getattr(operator, _name)))
    setattr(NonDifferentiable, f"__r{_dunder}__", _reflected(getattr(operator, _name)))
for _function in (pow, divmod):
    setattr(NonDifferentiable, f"__{_function.__name__}__", _binary(_function))
    setattr(NonDifferentiable, f"__r{_function.__name__}__", _reflected(_function))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(NonDifferentiable, f"__{_name}__", _binary(getattr(operator, _name)))
for _function in (operator.neg, operator.pos, operator.invert, abs, round):
    setattr(NonDifferentiable, f"__{_function.__name__}__", _unary(_function))
