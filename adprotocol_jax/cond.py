"""`cond` on JAX: Python's branch for a concrete predicate, ``jax.lax.cond`` for a tracer."""

from __future__ import annotations

import functools
import types
import weakref
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from adprotocol import NonDifferentiable
from adprotocol.errors import PredicateError, UndecidableError
from adprotocol.extend import Branches
from adprotocol.hookspecs import hookimpl
from adprotocol.messages import kind_of
from adprotocol_jax import internals
from adprotocol_jax.answer import QUESTIONS, untracked, with_constants
from adprotocol_jax.primitives import as_constant_if_tracked

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = (bool, int, float, complex)
_ARRAYS = (internals.ArrayImpl, jax.core.Tracer, *internals.LITERALS)


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch if the predicate is concrete, else stage ``jax.lax.cond``."""
    if not isinstance(pred, bool) and (not isinstance(pred, _ARRAYS) or internals.is_no_array(pred)):
        msg = (
            f"cond was given {kind_of(pred)} as predicate, which is no array; it takes a boolean scalar (that of a "
            "mutable reference is ref[...])"
        )
        raise PredicateError(msg)
    if isinstance(pred, jax.core.Tracer):
        return _stage(pred, true_fun, false_fun, operands)
    return true_fun(*operands) if pred else false_fun(*operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    axes = internals.varying_axes(pred)
    if axes:
        msg = (
            f"the predicate of a cond inside jax.shard_map differs along {', '.join(sorted(map(repr, axes)))}, so that "
            "the devices take different branches: in these they cannot communicate, as the derivative by a value that "
            "is equal on all devices does. Make the predicate equal on all devices with jax.lax.psum, or choose "
            "elementwise with jnp.where"
        )
        raise UndecidableError(msg)
    true_constants, false_constants = untracked(pred, True), untracked(pred, False)  # noqa: FBT003  (what pred may be)

    def stage(run_true: Callable[[], list[Any]], run_false: Callable[[], list[Any]]) -> Any:
        return jax.lax.cond(pred, with_constants(run_true, true_constants), with_constants(run_false, false_constants))

    branches = _Branches((), true_fun, false_fun, operands)
    # A branch that closes over nothing gets the traced operands of this call, and is traced once for their types.
    leaves, treedef = jax.tree.flatten(operands, is_leaf=_is_whole)
    one, other = _kept(true_fun, leaves, treedef, true_constants), _kept(false_fun, leaves, treedef, false_constants)
    if one is not None and other is not None:
        try:
            arrays = jax.lax.cond(pred, one, other, *filter(_is_lifted, leaves))
            branches.of_true, branches.of_false = one.returned, other.returned
            return branches.result(arrays)
        except TypeError:  # the results do not match, for the errors below
            pass
    # Operands are closed over, so that they may be anything, including strings and modules; JAX itself turns the
    # traced ones into operands.
    try:
        arrays = stage(branches.run_true, branches.run_false)
    except TypeError:
        if branches.of_true is None or branches.of_false is None:
            raise  # a branch raised it itself
        pairs = branches.compare()
        types = [_type(one, other) for one, other in pairs]
        if all(_short(_type(kind)) == _short(cast) for pair, cast in zip(pairs, types, strict=True) for kind in pair):
            raise
        # The branches differ only in the class of a Python number, such as int and float, which arithmetic promotes.
        # Trace again with the numbers cast.
        arrays = stage(lambda: _cast(branches.run_true(), types), lambda: _cast(branches.run_false(), types))
    return branches.result(arrays)


# By a function: what returns the branch that is kept for the structure of its operands, for each leaf its type in JAX,
# or its class and itself, and which of the traced ones are constant.
_KEPT: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()
_FIXED = (*_NUMBERS, str, bytes, type(None))


def _keeping(fun: weakref.ref[Any], treedef: Any, operands: tuple[Any, ...], constants: tuple[bool, ...]) -> Any:
    """Return a branch that closes over nothing as one function, of its traced operands, so that JAX keeps its trace."""

    def run(*arrays: Any) -> list[Any]:
        question, function = next(QUESTIONS), fun()
        traced = (as_constant_if_tracked(one) if fix else one for one, fix in zip(arrays, constants, strict=True))
        leaves = [leaf[-1] if len(leaf) > 1 else next(traced) for leaf in operands]
        branches = _Branches((), function, function, jax.tree.unflatten(treedef, leaves))  # type: ignore[arg-type]
        results = branches.run_true()
        run.returned = branches.of_true  # type: ignore[attr-defined]
        # The answer to a question depends on who calls; an object in the result may change.
        if next(QUESTIONS) != question + 1 or not all(own or type(leaf) in _FIXED for own, leaf in branches.of_true[1]):
            _KEPT.pop(function, None)
        return results

    return run


def _kept(fun: Any, leaves: list[Any], treedef: Any, values: list[Any] | None) -> Any:
    """Return the branch that is kept, in which `values` are constant (None: all); None if it may depend on more."""
    is_plain = isinstance(fun, types.FunctionType) and not (fun.__closure__ or fun.__defaults__ or fun.__kwdefaults__)
    if not is_plain or not all(_is_lifted(leaf) or type(leaf) in _FIXED for leaf in leaves):
        return None
    asked = set(map(id, leaves if values is None else values))
    operands = [(leaf.aval,) if _is_lifted(leaf) else (type(leaf), repr(leaf), leaf) for leaf in leaves]
    keeping = _KEPT.setdefault(fun, functools.lru_cache(functools.partial(_keeping, weakref.ref(fun))))
    try:
        return keeping(treedef, tuple(operands), tuple([id(leaf) in asked for leaf in leaves if _is_lifted(leaf)]))
    except TypeError:  # a static field without a hash
        return None


def _is_lifted(leaf: Any) -> bool:
    return isinstance(leaf, jax.core.Tracer) and not internals.is_no_array(leaf)


def _is_whole(node: Any) -> bool:
    """Return whether an operand is more than its children, as an object that a branch may change."""
    return type(node) not in (dict, list, tuple, NonDifferentiable) and not hasattr(type(node), "__dataclass_fields__")


class _Branches(Branches):
    """Branches whose results are compared by the types of JAX."""

    def type_of(self, leaf: Any) -> Any:
        """Return the type of a leaf in JAX; a Python number has none, since it may follow the other branch."""
        try:
            return None if isinstance(leaf, _NUMBERS) else jax.typeof(leaf)
        except TypeError:
            return None

    def agree(self, one: Any, other: Any) -> bool:
        """Compare the types without their weakness, a number after promotion."""
        return _short(_type(one, other)) == _short(_type(other, one))

    def show(self, kind: Any) -> str:
        """Return a type in the words of JAX's errors."""
        return _short(_type(kind))

    @property
    def remedy(self) -> str:
        """Name the axes of a mesh, if only these differ."""
        true_axes, false_axes = (
            [internals.varying_axes(kind) for lifted, kind in leaves if lifted]
            for _, leaves in (self.of_true, self.of_false)
        )
        if true_axes == false_axes:
            return super().remedy
        # The result is not cast: if it varies, JAX sums the derivative in an invariant value over the devices.
        return (
            "Results of jax.shard_map vary along the axes that {V:...} names; let both vary along the same, "
            'with jax.lax.pcast(result, axes, to="varying")'
        )


def _type(kind: Any, like: Any = None) -> Any:
    """Return a type; that of a Python number has the dtype of what the other branch returns, if this can hold it."""
    if not isinstance(kind, _NUMBERS):
        return kind
    dtype = None if like is None else getattr(_type(like), "dtype", None)
    follows = dtype is not None and jnp.result_type(dtype, kind) == dtype
    return jax.typeof(jnp.asarray(kind, dtype) if follows else kind)


def _cast(arrays: list[Any], types: list[Any]) -> list[Any]:
    return [
        jnp.asarray(array, kind.dtype) if isinstance(array, _NUMBERS) else array
        for array, kind in zip(arrays, types, strict=True)
    ]


def _short(kind: Any) -> str:
    return str(kind.str_short())


class ArrayFunctions:
    """The functions for `adprotocol.where` and `adprotocol.jacobian`."""

    where: Any = staticmethod(jnp.where)
    take: Any = staticmethod(jnp.take)
    conj: Any = staticmethod(jnp.conj)
    stack: Any = staticmethod(jnp.stack)
    moveaxis: Any = staticmethod(jnp.moveaxis)
    reshape: Any = staticmethod(jnp.reshape)

    @staticmethod
    def argmax(mask: Any) -> Any:
        """Return the position of the first True; on a CPU ``jnp.argmax`` takes four times as long."""
        flat = mask.reshape(-1)
        return jnp.min(jnp.where(flat, jnp.arange(flat.size), flat.size - 1))

    @staticmethod
    def basis(array: Any, count: int, start: int) -> Any:
        """Return arrays like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        rows = jnp.eye(count, jnp.size(array), -start, jnp.result_type(array)).reshape(count, *jnp.shape(array))
        # Inside shard_map they then vary along the axes along which the array does.
        return rows + jax.lax.full_like(array, 0) if isinstance(array, jax.core.Tracer) else rows
