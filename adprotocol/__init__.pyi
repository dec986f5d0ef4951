# The types of the public functions, for type checkers alone; the docstrings are with the functions.
#
# Where two overloads match, the first decides.
# mypy: disable-error-code="overload-overlap"
# An argument of type Any is a module too.
# pyright: reportOverlappingOverload=false

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    SupportsFloat,
    TypeVar,
    TypeVarTuple,
    overload,
)

from adprotocol.errors import ADProtocolError as ADProtocolError
from adprotocol.typing import Answer

__version__: Final[str]

__all__ = [
    "ADProtocolError",
    "NonDifferentiable",
    "combine",
    "cond",
    "custom_derivative",
    "explain",
    "grad",
    "host_function",
    "is_concrete",
    "jacobian",
    "jvp",
    "non_differentiable",
    "partition",
    "prevent_gradient",
    "register_structure",
    "register_trainable",
    "steepest_ascent",
    "trainable",
    "trainable_mask",
    "tree_map",
    "value_and_grad",
    "vjp",
    "where",
    "within_gradient",
]

_T = TypeVar("_T")
_C = TypeVar("_C", bound=type)
_F = TypeVar("_F")
_Aux = TypeVar("_Aux")
_Value = TypeVar("_Value")
# The argument that is differentiated. Bound to Any, as pyright lets the body of a lambda use its parameters then.
_A = TypeVar("_A", bound=Any)
_M = TypeVar("_M", bound=_Module)
_P = ParamSpec("_P")
_Q = ParamSpec("_Q")
_Ts = TypeVarTuple("_Ts")

# A label with the operators of Python and the attributes of the array that it holds.
class NonDifferentiable(Generic[_T]):
    held: Any
    __hash__: ClassVar[None]  # type: ignore[assignment]
    def __init__(self, value: _T) -> None: ...
    @property
    def value(self) -> _T: ...
    def __getattr__(self, name: str) -> Any: ...
    def __eq__(self, other: object, /) -> Any: ...
    def __ne__(self, other: object, /) -> Any: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __floordiv__(self, other: Any, /) -> Any: ...
    def __rfloordiv__(self, other: Any, /) -> Any: ...
    def __mod__(self, other: Any, /) -> Any: ...
    def __rmod__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __rpow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __rmatmul__(self, other: Any, /) -> Any: ...
    def __and__(self, other: Any, /) -> Any: ...
    def __rand__(self, other: Any, /) -> Any: ...
    def __or__(self, other: Any, /) -> Any: ...
    def __ror__(self, other: Any, /) -> Any: ...
    def __xor__(self, other: Any, /) -> Any: ...
    def __rxor__(self, other: Any, /) -> Any: ...
    def __lt__(self, other: Any, /) -> Any: ...
    def __le__(self, other: Any, /) -> Any: ...
    def __gt__(self, other: Any, /) -> Any: ...
    def __ge__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __pos__(self) -> Any: ...
    def __invert__(self) -> Any: ...
    def __abs__(self) -> Any: ...
    def __round__(self, ndigits: int | None = None) -> Any: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __complex__(self) -> complex: ...
    def __index__(self) -> int: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...
    def __getitem__(self, key: Any) -> Any: ...
    def __contains__(self, item: Any) -> bool: ...

# A module of PyTorch's, whose parts and gradients are dicts from qualified name to tensor.
class _Module(Protocol):
    def named_parameters(self) -> Iterator[tuple[str, Any]]: ...
    def named_buffers(self) -> Iterator[tuple[str, Any]]: ...

# A wrapper whose differentiated argument is one. Not by a bounded type variable in the argument: mypy lets that be any
# type variable of a generic function, whose gradient would be Any.
class _OfModule(Protocol):
    @property
    def _argument(self) -> _Module: ...

# What is differentiated: an array or a float, not a tuple (`has_aux`), a string or None.
_S = TypeVar("_S", bound=SupportsFloat)

# What `value_and_grad` and `grad` return: functions of the arguments of the wrapped one. A gradient has the type of its
# argument; that of a module is Any rather than a dict, so that an argument of type Any leaves the other types known.
class _Wrapper:
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

class _Function(_Wrapper, Generic[_P, _T]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

# A method has both: as an attribute of its class, and bound.
class _Portable(_Wrapper, Generic[_P, _T]):
    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...
    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(
        self: _Portable[Concatenate[Any, _Q], _T], instance: object, owner: type | None = None
    ) -> Callable[_Q, _T]: ...

class _CustomDerivative(_Portable[_P, _T]):
    def defvjp(self, vjp: _F) -> _F: ...
    def defjvp(self, jvp: _F) -> _F: ...

class _ValueAndGrad(_Wrapper, Generic[_A, _P, _Value]):
    _argument: _A
    @overload
    def __call__(self: _OfModule, argument: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_Value, Any]: ...
    @overload
    def __call__(self, argument: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_Value, _A]: ...
    @overload
    def __get__(self, instance: None, owner: Any = None, /) -> Self: ...
    @overload
    def __get__(self: _OfModule, instance: _A, owner: Any = None, /) -> Callable[_P, tuple[_Value, Any]]: ...
    @overload
    def __get__(self, instance: _A, owner: Any = None, /) -> Callable[_P, tuple[_Value, _A]]: ...

class _Grad(_Wrapper, Generic[_A, _P]):
    _argument: _A
    @overload
    def __call__(self: _OfModule, argument: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> Any: ...
    @overload
    def __call__(self, argument: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> _A: ...
    @overload
    def __get__(self, instance: None, owner: Any = None, /) -> Self: ...
    @overload
    def __get__(self: _OfModule, instance: _A, owner: Any = None, /) -> Callable[_P, Any]: ...
    @overload
    def __get__(self, instance: _A, owner: Any = None, /) -> Callable[_P, _A]: ...

class _GradAndAux(_Wrapper, Generic[_A, _P, _Aux]):
    _argument: _A
    @overload
    def __call__(self: _OfModule, argument: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[Any, _Aux]: ...
    @overload
    def __call__(self, argument: _A, /, *args: _P.args, **kwargs: _P.kwargs) -> tuple[_A, _Aux]: ...
    @overload
    def __get__(self, instance: None, owner: Any = None, /) -> Self: ...
    @overload
    def __get__(self: _OfModule, instance: _A, owner: Any = None, /) -> Callable[_P, tuple[Any, _Aux]]: ...
    @overload
    def __get__(self, instance: _A, owner: Any = None, /) -> Callable[_P, tuple[_A, _Aux]]: ...

def within_gradient(value: Any, /, *others: Any) -> Answer: ...
def explain(value: Any, /, *others: Any) -> str: ...
def is_concrete(value: Any, /, *others: Any) -> bool: ...
def non_differentiable(value: _T, /) -> _T: ...
def prevent_gradient(value: _T, /, message: str) -> _T: ...
def cond(
    pred: Answer | NonDifferentiable[Any],
    true_fun: Callable[[*_Ts], _T],
    false_fun: Callable[[*_Ts], _F],
    *operands: *_Ts,
) -> _T | _F: ...
@overload
def where(
    mask: Any, true_fun: Callable[[*_Ts], _T], false_fun: Callable[[*_Ts], float], *operands: *_Ts
) -> _T: ...  # beside an array a number becomes one
@overload
def where(mask: Any, true_fun: Callable[[*_Ts], float], false_fun: Callable[[*_Ts], _T], *operands: *_Ts) -> _T: ...
@overload
def where(mask: Any, true_fun: Callable[[*_Ts], _T], false_fun: Callable[[*_Ts], _F], *operands: *_Ts) -> _T | _F: ...
@overload
def trainable(tree: _Module, where: Any = None) -> dict[str, Any]: ...
@overload
def trainable(tree: _T, where: Any = None) -> _T: ...
@overload
def trainable_mask(tree: _Module, where: Any = None) -> dict[str, bool]: ...
@overload
def trainable_mask(tree: Any, where: Any = None) -> Any: ...
@overload
def partition(
    tree: _Module, where: Any = None, *, strict: bool = True, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[dict[str, Any], dict[str, Any]]: ...
@overload
def partition(
    tree: _T, where: Any = None, *, strict: bool = True, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[_T, _T]: ...
@overload
def combine(tree: _T, /, *trees: Any) -> _T: ...
@overload
def combine(tree: Any, /, *trees: Any, like: _T) -> _T: ...
@overload
def tree_map(
    fun: Callable[..., Any], tree: _Module, *rest: Any, is_leaf: Callable[[Any], bool] | None = None
) -> dict[str, Any]: ...
@overload
def tree_map(fun: Callable[..., Any], tree: _T, *rest: Any, is_leaf: Callable[[Any], bool] | None = None) -> _T: ...
def steepest_ascent(gradient: _T) -> _T: ...
def register_trainable(cls: type, names: Iterable[str]) -> None: ...
@overload
def register_structure(
    cls: _C,
    static: Iterable[str] = (),
    *,
    flatten: Callable[[Any], tuple[Any, Any]] | None = None,
    unflatten: Callable[[Any, Any], Any] | None = None,
) -> _C: ...
@overload
def register_structure(
    cls: None = None,
    static: Iterable[str] = (),
    *,
    flatten: Callable[[Any], tuple[Any, Any]] | None = None,
    unflatten: Callable[[Any, Any], Any] | None = None,
) -> Callable[[_C], _C]: ...
@overload
def custom_derivative(
    fun: Callable[_P, _T], *, has_residuals: Literal[False] = False, reverse_only: bool = False
) -> _CustomDerivative[_P, _T]: ...
@overload
def custom_derivative(
    fun: Callable[_P, tuple[_T, Any]], *, has_residuals: Literal[True], reverse_only: bool = False
) -> _CustomDerivative[_P, _T]: ...
@overload
def custom_derivative(
    fun: None = None, *, has_residuals: Literal[True], reverse_only: bool = False
) -> Callable[[Callable[_P, tuple[_T, Any]]], _CustomDerivative[_P, _T]]: ...
@overload
def custom_derivative(
    fun: None = None, *, has_residuals: Literal[False] = False, reverse_only: bool = False
) -> Callable[[Callable[_P, _T]], _CustomDerivative[_P, _T]]: ...
@overload
def host_function(
    fun: Callable[_P, _T], *, like: Callable[..., Any] | None = None, batched: bool = False
) -> _Portable[_P, _T]: ...
@overload
def host_function(
    fun: None = None, *, like: Callable[..., Any] | None = None, batched: bool = False
) -> Callable[[Callable[_P, _T]], _Portable[_P, _T]]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[_A, _P], _S],
    *,
    where: Any = None,
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> _ValueAndGrad[_A, _P, _S]: ...
@overload
def value_and_grad(
    fun: Callable[_P, _S],
    *,
    where: Any = None,
    argnums: int,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> _Function[_P, tuple[_S, Any]]: ...
@overload
def value_and_grad(
    fun: Callable[_P, _S],
    *,
    where: Any = None,
    argnums: Sequence[int],
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> _Function[_P, tuple[_S, tuple[Any, ...]]]: ...
@overload
def value_and_grad(
    fun: Callable[Concatenate[_A, _P], tuple[_S, _Aux]],
    *,
    where: Any = None,
    argnums: Literal[0] = 0,
    has_aux: Literal[True],
    backend: str | None = None,
) -> _ValueAndGrad[_A, _P, tuple[_S, _Aux]]: ...
@overload
def value_and_grad(
    fun: Callable[_P, tuple[_S, _Aux]],
    *,
    where: Any = None,
    argnums: int,
    has_aux: Literal[True],
    backend: str | None = None,
) -> _Function[_P, tuple[tuple[_S, _Aux], Any]]: ...
@overload
def value_and_grad(
    fun: Callable[_P, tuple[_S, _Aux]],
    *,
    where: Any = None,
    argnums: Sequence[int],
    has_aux: Literal[True],
    backend: str | None = None,
) -> _Function[_P, tuple[tuple[_S, _Aux], tuple[Any, ...]]]: ...
@overload
def value_and_grad(
    fun: Callable[_P, tuple[Any, Any]],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool,
    backend: str | None = None,
) -> _Function[_P, tuple[Any, Any]]: ...
@overload
def grad(
    fun: Callable[Concatenate[_A, _P], SupportsFloat],
    *,
    where: Any = None,
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> _Grad[_A, _P]: ...
@overload
def grad(
    fun: Callable[_P, SupportsFloat],
    *,
    where: Any = None,
    argnums: int,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> _Function[_P, Any]: ...
@overload
def grad(
    fun: Callable[_P, SupportsFloat],
    *,
    where: Any = None,
    argnums: Sequence[int],
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> _Function[_P, tuple[Any, ...]]: ...
@overload
def grad(
    fun: Callable[Concatenate[_A, _P], tuple[SupportsFloat, _Aux]],
    *,
    where: Any = None,
    argnums: Literal[0] = 0,
    has_aux: Literal[True],
    backend: str | None = None,
) -> _GradAndAux[_A, _P, _Aux]: ...
@overload
def grad(
    fun: Callable[_P, tuple[SupportsFloat, _Aux]],
    *,
    where: Any = None,
    argnums: int,
    has_aux: Literal[True],
    backend: str | None = None,
) -> _Function[_P, tuple[Any, _Aux]]: ...
@overload
def grad(
    fun: Callable[_P, tuple[SupportsFloat, _Aux]],
    *,
    where: Any = None,
    argnums: Sequence[int],
    has_aux: Literal[True],
    backend: str | None = None,
) -> _Function[_P, tuple[tuple[Any, ...], _Aux]]: ...
@overload
def grad(
    fun: Callable[_P, tuple[Any, Any]],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool,
    backend: str | None = None,
) -> _Function[_P, Any]: ...

# Products with a Jacobian: the class of the primals in, the same out. Of a module the gradient is Any, as above.
@overload
def vjp(
    fun: Callable[Concatenate[_M, ...], _T],
    *primals: Any,
    where: Any = None,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> tuple[_T, Callable[[Any], tuple[Any, ...]]]: ...
@overload
def vjp(
    fun: Callable[[*_Ts], _T],
    *primals: *_Ts,
    where: Any = None,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> tuple[_T, Callable[[Any], tuple[*_Ts]]]: ...
@overload
def vjp(
    fun: Callable[[*_Ts], tuple[_T, _Aux]],
    *primals: *_Ts,
    where: Any = None,
    has_aux: Literal[True],
    backend: str | None = None,
) -> tuple[_T, Callable[[Any], tuple[Any, ...]], _Aux]: ...
@overload
def jvp(
    fun: Callable[..., _T],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[False] = False,
    backend: str | None = None,
) -> tuple[_T, _T]: ...
@overload
def jvp(
    fun: Callable[..., tuple[_T, _Aux]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[True],
    backend: str | None = None,
) -> tuple[_T, _T, _Aux]: ...
@overload
def jacobian(
    fun: Callable[_P, Any],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: Literal[False] = False,
    mode: Literal["reverse", "forward"] | None = None,
    chunk_size: int | None = None,
    backend: str | None = None,
) -> _Function[_P, Any]: ...
@overload
def jacobian(
    fun: Callable[_P, tuple[Any, _Aux]],
    *,
    where: Any = None,
    argnums: int | Sequence[int] = 0,
    has_aux: Literal[True],
    mode: Literal["reverse", "forward"] | None = None,
    chunk_size: int | None = None,
    backend: str | None = None,
) -> _Function[_P, tuple[Any, _Aux]]: ...
