"""A tracer made constant at every level, whatever type it has.

``jax.lax.stop_gradient`` serves numbers, integers included, whose tracers it takes
off. It returns what has an extended dtype as it is, though some of these have
tangents (the 8-bit scales of flax), and it fails on the high-level types of hijax.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.interpreters import ad

from adprotocol_jax import internals
from adprotocol_jax.identity import identity_primitive

_constant_p = identity_primitive("adprotocol_constant")


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


def as_constant_if_tracked(value: Any) -> Any:
    """Return a tracer that may have a tangent as a constant, and anything else, references among it, as it is."""
    traced = isinstance(value, jax.core.Tracer) and not internals.is_reference(value)
    return as_constant(value) if traced and internals.is_inexact(value) else value


def _jvp(primals: Any, _tangents: Any) -> tuple[Any, Any]:
    (primal,) = primals
    return _constant_p.bind(primal), ad.Zero(internals.typeof(primal).to_tangent_aval())


ad.primitive_jvps[_constant_p] = _jvp
