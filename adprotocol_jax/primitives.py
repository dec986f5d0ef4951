"""The three primitives: the question, a constant, and a value that must not be differentiated.

Looking at the class of a tracer cannot work: inside ``grad(jit(f))`` the body is
traced once, before differentiation, and shows a plain jit tracer. A primitive stays
in the traced program, so each transformation answers when it is applied:
evaluation, batching and lowering say False; the JVP rule, which JAX calls exactly
when an operand has a tangent, says True. XLA then removes the branch not taken.
The other two evaluate, batch and lower to the identity, which adds nothing to the
compiled program.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from adprotocol.errors import UndecidableError
from adprotocol.extend import gradient_prevented
from adprotocol.hookspecs import hookimpl
from adprotocol_jax import internals
from adprotocol_jax.solver import refuse_second_run

if TYPE_CHECKING:
    from collections.abc import Sequence

within_gradient_p: Any = Primitive("adprotocol_within_gradient")


def _true() -> bool:
    """Answer for an operand that has a tangent."""
    refuse_second_run()
    return True


def _linearize(_is_vjp: Any, _nonzeros: Any, *_values: Any) -> Any:
    return _true(), False, (), lambda _residuals, *_tangents: internals.BOOLEAN_TANGENT


within_gradient_p.def_impl(lambda *_values: False)
within_gradient_p.def_abstract_eval(lambda *_types: jax.core.ShapedArray((), np.dtype(bool)))
# One answer for the whole batch: tangents are batched together with their primals.
batching.primitive_batchers[within_gradient_p] = lambda values, _dims: (within_gradient_p.bind(*values), None)
ad.primitive_jvps[within_gradient_p] = lambda _primals, _tangents: (_true(), internals.BOOLEAN_TANGENT)
internals.linearize_by(within_gradient_p, _linearize)
mlir.register_lowering(within_gradient_p, mlir.lower_fun(lambda *_values: np.zeros((), bool), multiple_results=False))


def _identity(name: str) -> Any:
    """Make a primitive that returns its operand, without a derivative rule."""
    identity: Any = Primitive(name)
    identity.def_impl(lambda value, **_params: value)
    identity.def_abstract_eval(lambda aval, **_params: aval)
    batching.primitive_batchers[identity] = lambda values, dims, **params: (identity.bind(*values, **params), *dims)
    mlir.register_lowering(identity, lambda _context, value, **_params: [value])
    return identity


_constant_p, _prevention_p = _identity("adprotocol_constant"), _identity("adprotocol_prevent_gradient")


# By the id of a tracer, for it has no hash, and that of a trace: weakly the tracer, the trace, and the constant that
# was made of the one in the other, which may be the tracer itself.
_CONSTANTS: dict[tuple[int, int], tuple[weakref.ref[Any], ...]] = {}


def _known_constant(value: Any, trace: Any) -> Any:
    """Return the constant that was made of a tracer in a trace, or None."""
    known = [reference() for reference in _CONSTANTS.get((id(value), id(trace)), ())]
    return known[2] if known and known[0] is value and known[1] is trace else None


def refuse_no_array(value: Any) -> None:
    """Refuse a value of JAX that carries no derivative, but may hold arrays that do."""
    if internals.is_no_array(value):
        raise UndecidableError(
            "adprotocol got a mutable JAX reference or another value of JAX that is no array "
            f"({getattr(value, 'aval', value)}). Pass the arrays in it (ref[...] of a reference)"
        )


def as_constant(value: Any) -> Any:
    """Return a tracer of an array as a constant at every level; a concrete value stays as it is.

    In one trace it is the same object each time, so that who flattens a label twice gets equal leaves.
    """
    if not isinstance(value, jax.core.Tracer):
        return value
    # since jax 0.11: a function's results are flattened, which calls this for a label, where no trace is active.
    trace = internals.trace_context.trace
    if trace is None:
        with internals.set_current_trace(internals.trace_of(value)):
            return as_constant(value)
    known = _known_constant(value, trace)
    if known is not None:
        return known
    stopped = jax.lax.stop_gradient(value)
    # JAX returns arrays of its extended dtypes unchanged, though some (the 8-bit scales of flax) have tangents.
    # until jax 0.9: an integer tracer too (https://github.com/jax-ml/jax/issues/33689).
    constant = _constant_p.bind(value) if stopped is value else stopped
    # Nothing refers weakly to a number, which JAX returns of a tracer of `grad`, or to an array of an extended dtype.
    for tracer in (value, constant) if isinstance(constant, (jax.core.Tracer, internals.ArrayImpl)) else ():
        key = id(tracer), id(trace)
        _CONSTANTS[key] = weakref.ref(tracer, partial(_CONSTANTS.pop, key)), weakref.ref(trace), weakref.ref(constant)
    return constant


def as_constant_if_tracked(value: Any) -> Any:
    """Return a tracer that may have a tangent as a constant, and anything else unchanged."""
    return as_constant(value) if internals.is_inexact(value) else value


@hookimpl
def prevent_gradient(value: Any, message: str) -> Any:
    """Return a value that raises with `message` where it is differentiated: now, or when a program is."""
    refuse_no_array(value)
    if not internals.is_inexact(value):
        return value
    if internals.has_tangent_now(value):
        refuse(value, message)
    return _prevention_p.bind(value, message=message)


def refuse(value: Any, message: str, transformation: str = "jvp or grad") -> NoReturn:
    """Raise the error for a value that JAX differentiates."""
    aval = value if isinstance(value, jax.core.AbstractValue) else getattr(value, "aval", value)
    raise gradient_prevented(aval, message, f"jax: {transformation} reaches this place of the program")


def _constant_jvp(primals: Sequence[Any], _tangents: Any) -> tuple[Any, Any]:
    return _constant_p.bind(*primals), ad.Zero(jax.typeof(*primals).to_tangent_aval())


def _prevention_transpose(_cotangent: Any, operand: Any, *, message: str) -> NoReturn:
    refuse(operand, message, "the transpose of a linear function")


ad.primitive_jvps[_constant_p] = _constant_jvp
ad.primitive_jvps[_prevention_p] = lambda primals, _tangents, *, message: refuse(primals[0], message)
ad.primitive_transposes[_prevention_p] = _prevention_transpose
