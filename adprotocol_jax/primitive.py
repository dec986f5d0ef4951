"""The primitive that asks JAX whether its operands carry a tangent.

Looking at the class of a tracer cannot work: inside ``grad(jit(f))`` the body is
traced once, before differentiation, and shows a plain jit tracer. A primitive stays
in the traced program, so each transformation answers when it is applied:
evaluation, batching and lowering say False; the JVP rule, which JAX calls exactly
when an operand has a tangent, says True. XLA then removes the branch not taken.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from adprotocol_jax import internals
from adprotocol_jax.answer import note
from adprotocol_jax.solver import refuse_second_run, refuse_solver

within_gradient_p: Primitive = Primitive("adprotocol_within_gradient")


def ask(*values: Any) -> Any:
    """Ask about inexact tracers: a Python bool if JAX knows now, else a staged one."""
    if any(internals.is_high(value.aval) for value in values):
        from adprotocol_jax import hijax  # noqa: PLC0415  (only for such values)

        answer = hijax.ask_primitive(ask).bind(*values)
    else:
        answer = within_gradient_p.bind(*values)
    if answer is True:
        return True
    refuse_solver()
    # Evaluated under disable_jit or as a constant of a trace it may come as an array.
    if isinstance(answer, (bool, np.bool_)):
        return bool(answer)
    if isinstance(answer, jax.core.Tracer):
        note(answer, values)
    return answer


def _evaluate(*_values: Any) -> bool:
    return False


def _abstract(*_values: Any) -> Any:
    return jax.core.ShapedArray((), np.dtype(bool))


def _batch(values: Any, _dims: Any) -> tuple[Any, None]:
    # One answer for the whole batch: tangents are batched together with their primals.
    return within_gradient_p.bind(*values), None


def _true() -> bool:
    """Answer for an operand that has a tangent."""
    refuse_second_run()
    return True


def _jvp(_primals: Any, _tangents: Any) -> tuple[bool, Any]:
    return _true(), internals.BOOLEAN_TANGENT


def _lower(*_values: Any) -> Any:
    return jax.numpy.asarray(False)  # noqa: FBT003  (the constant itself)


within_gradient_p.def_impl(_evaluate)
within_gradient_p.def_abstract_eval(_abstract)
batching.primitive_batchers[within_gradient_p] = _batch
ad.primitive_jvps[within_gradient_p] = _jvp
internals.linearize_to(within_gradient_p, _true)
mlir.register_lowering(within_gradient_p, mlir.lower_fun(_lower, multiple_results=False))
internals.register_for_shard_map(within_gradient_p, equal=True)
