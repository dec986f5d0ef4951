"""Identities for values that are not differentiated: constants, and guards, which raise where they are."""

from __future__ import annotations

from typing import Any, NoReturn

import mlx.core as mx

from adprotocol.extend import gradient_prevented
from adprotocol_mlx import trace
from adprotocol_mlx.answer import ask, is_inexact, refuse_compiled
from adprotocol_mlx.gradient import renamed


def constant(value: mx.array) -> mx.array:
    """Return a value without its derivatives, of all levels."""
    # mx.vjp leaves results that are a bare stop_gradient out when it counts cotangents.
    stopped = renamed(mx.stop_gradient(value))
    # mx.compile leaves a stop_gradient out of its program, which may be differentiated after an inner derivative.
    is_needed = is_inexact(value) and trace.is_tracing() and trace.is_open(value)
    made: mx.array = _constant(stopped) if is_needed else stopped
    return made


_constant: Any = mx.custom_function(lambda x: x)
_constant.vjp(refuse_compiled)  # a rule would not do: MLX adds the derivative of the function there
_constant.jvp(lambda value, _tangent: mx.zeros_like(value))
_constant.vmap(lambda batch, axis: (constant(batch), axis))


def prevent(value: mx.array, message: str) -> mx.array:
    """Return a value; raise now, or when vmap puts in what is tracked, or when a derivative comes by."""
    answer = ask((value,))
    if answer is False:
        return value

    def refuse(*_: Any) -> NoReturn:
        raise gradient_prevented(value, message, "mlx: the graph leads back to what is differentiated")

    if answer is True:
        refuse()
    identity: Any = mx.custom_function(lambda x: x)
    identity.vjp(refuse)
    identity.jvp(refuse)
    identity.vmap(lambda batch, axis: (prevent(batch, message), axis))
    guarded: mx.array = identity(value)
    return guarded
