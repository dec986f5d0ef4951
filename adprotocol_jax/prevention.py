"""The primitive that passes a value on and has no derivative.

Like the primitive that asks (`primitive`), it stays in a traced program, so that
``jit(f)`` runs and ``grad(jit(f))`` raises: evaluation, batching and lowering are the
identity, which adds nothing to the compiled program. JAX calls the JVP rule exactly
when the operand has a tangent, and the transpose rule when it is linear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import jax
from jax.interpreters import ad

from adprotocol.extend import gradient_prevented
from adprotocol_jax import internals
from adprotocol_jax.identity import identity_primitive

if TYPE_CHECKING:
    from collections.abc import Sequence

_prevention_p = identity_primitive("adprotocol_prevent_gradient")


def prevented(value: Any, message: str) -> Any:
    """Return a value that raises with `message` where it is differentiated: now, or when a program is."""
    if not isinstance(value, jax.core.Tracer) or not internals.is_inexact(value):
        return value
    if internals.has_tangent_now(value):
        refuse(value, message)
    return guard(value, message)


def guard(value: Any, message: str) -> Any:
    """Return a value guarded by an operation whose derivative rules raise with `message`."""
    if not isinstance(value, jax.core.Tracer) or not internals.is_inexact(value):
        return value
    if internals.is_high(value.aval):
        from adprotocol_jax import hijax  # noqa: PLC0415  (only for such values)

        return hijax.prevention_primitive(guard, refuse).bind(value, message=message)
    return _prevention_p.bind(value, message=message)


def refuse(value: Any, message: str, transformation: str = "jvp or grad") -> NoReturn:
    """Raise the error for a value that JAX differentiates."""
    aval = value if isinstance(value, jax.core.AbstractValue) else getattr(value, "aval", value)
    raise gradient_prevented(aval, message, f"jax: {transformation} reaches this place of the program")


def _jvp(primals: Sequence[Any], _tangents: Any, *, message: str) -> NoReturn:
    refuse(primals[0], message)


def _transpose(_cotangent: Any, operand: Any, *, message: str) -> NoReturn:
    refuse(operand, message, "the transpose of a linear function")


ad.primitive_jvps[_prevention_p] = _jvp
ad.primitive_transposes[_prevention_p] = _transpose
