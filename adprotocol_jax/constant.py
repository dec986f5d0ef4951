"""A tracer made constant at every level, whatever type it has.

``jax.lax.stop_gradient`` serves numbers, integers included, whose tracers it takes
off. It returns what has an extended dtype as it is, though some of these have
tangents (the 8-bit scales of flax), and it fails on the high-level types of hijax.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from adprotocol_jax import internals

_constant_p: Any = Primitive("adprotocol_constant")


def as_constant(value: Any) -> Any:
    """Return a tracer, or an array, as a constant."""
    if not isinstance(value, jax.core.Tracer):
        return value
    if internals.is_high(value.aval):
        from adprotocol_jax import hijax  # noqa: PLC0415  (only for such values)

        return hijax.constant_primitive(as_constant).bind(value)
    dtype = getattr(value.aval, "dtype", None)
    if dtype is None:
        return value  # a token
    if not internals.is_extended(dtype):
        stopped = internals.stopped(value)
        # Before 0.8 an integer is returned with its tracers.
        if stopped is not value or internals.is_differentiated(dtype):
            return stopped
    return _constant_p.bind(value)


def _jvp(primals: Any, _tangents: Any) -> tuple[Any, Any]:
    (primal,) = primals
    return _constant_p.bind(primal), ad.Zero(internals.typeof(primal).to_tangent_aval())


def _batch(values: Any, dims: Any) -> tuple[Any, Any]:
    return _constant_p.bind(*values), *dims


_constant_p.def_impl(lambda value: value)
_constant_p.def_abstract_eval(lambda aval: aval)
batching.primitive_batchers[_constant_p] = _batch
ad.primitive_jvps[_constant_p] = _jvp
mlir.register_lowering(_constant_p, lambda _context, value: [value])
internals.register_for_shard_map(_constant_p)
