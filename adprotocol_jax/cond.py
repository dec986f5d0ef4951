"""`cond` on JAX: Python's branch for a concrete predicate, ``jax.lax.cond`` for a tracer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from adprotocol.errors import PredicateError, UndecidableError
from adprotocol.extend import Branches
from adprotocol.hookspecs import hookimpl
from adprotocol.messages import kind_of
from adprotocol_jax import internals
from adprotocol_jax.answer import untracked, with_constants

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBERS = (bool, int, float, complex)
_ARRAYS = (internals.ArrayImpl, jax.core.Tracer, *internals.LITERALS)


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch if the predicate is concrete, else stage ``jax.lax.cond``."""
    if not isinstance(pred, (bool, *_ARRAYS)) or internals.is_no_array(pred):
        raise PredicateError(
            f"cond was given {kind_of(pred)} as predicate, which is no array (that of a Ref is ref[...])"
        )
    if isinstance(pred, jax.core.Tracer):
        return _stage(pred, true_fun, false_fun, operands)
    return true_fun(*operands) if pred else false_fun(*operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    axes = internals.varying_axes(pred)
    if axes:
        raise UndecidableError(
            f"the predicate of a cond inside jax.shard_map differs along {', '.join(sorted(map(repr, axes)))}, so the "
            "devices take different branches: in these they cannot communicate, as a derivative by what is equal on "
            "all devices does. Make it equal on all devices with jax.lax.psum, or choose elementwise with jnp.where"
        )
    true_constants, false_constants = untracked(pred, True), untracked(pred, False)  # noqa: FBT003  (what pred may be)

    def stage(run_true: Callable[[], list[Any]], run_false: Callable[[], list[Any]]) -> Any:
        return jax.lax.cond(pred, with_constants(run_true, true_constants), with_constants(run_false, false_constants))

    branches = _Branches((), true_fun, false_fun, operands)
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
        if true_axes == false_axes or len(true_axes) != len(false_axes):
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
    conj: Any = staticmethod(jnp.conj)
    stack: Any = staticmethod(jnp.stack)
    moveaxis: Any = staticmethod(jnp.moveaxis)
    reshape: Any = staticmethod(jnp.reshape)
    as_like: Any = staticmethod(internals.as_like)

    @staticmethod
    def argmax(mask: Any) -> Any:
        """Return the position of the first True; on a CPU ``jnp.argmax`` takes four times as long."""
        # Numbers are reshaped, not the mask, which explicit axes of a mesh do not allow.
        return jnp.min(jnp.where(mask, jnp.arange(mask.size).reshape(mask.shape), mask.size - 1))

    @staticmethod
    def take(array: Any, index: Any, axis: int) -> Any:
        """Return elements along a negative axis, on all devices if it is an explicit axis of a mesh."""
        sharding, places = jax.typeof(array).sharding, (..., index, *[slice(None)] * (-1 - axis))
        spec = jax.sharding.PartitionSpec(*sharding.spec[:axis], None, *sharding.spec[axis:][1:])  # type: ignore[no-untyped-call]
        if spec == sharding.spec:
            return jnp.take(array, index, axis)
        return array.at[places].get(out_sharding=sharding.update(spec=spec))

    @staticmethod
    def known_bool(pred: Any) -> bool | None:
        """Return whether a predicate is True, if Python has its elements without waiting for a device."""
        return bool(pred) if not isinstance(pred, _ARRAYS) or internals.is_on_host(pred) else None

    @staticmethod
    def constant_unless(pred: Any, run: Callable[[], list[Any]], _held: list[Any]) -> list[Any]:
        """Return ``run()``, of which no derivative reaches what it closes over where `pred` is False.

        A select for each costs a program nothing; ``jax.lax.cond`` would take twice as long.
        """
        if internals.varying_axes(pred):
            return run()  # inside shard_map: a select would change the types in the program
        program = jax.make_jaxpr(run)()
        constants = [
            jnp.where(pred, value, jax.lax.stop_gradient(value))
            if isinstance(value, jax.core.Tracer) and internals.is_inexact(value)
            else value
            for value in program.consts
        ]
        return list(jaxpr_as_fun(ClosedJaxpr(program.jaxpr, constants))())

    @staticmethod
    def basis(array: Any, count: int, start: int) -> Any:
        """Return arrays like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        rows = jnp.eye(count, jnp.size(array), -start, jnp.result_type(array)).reshape(count, *jnp.shape(array))
        # So that they lie as the array does on the axes of a mesh, and vary along the same inside shard_map.
        return rows + jax.lax.full_like(array, 0)
