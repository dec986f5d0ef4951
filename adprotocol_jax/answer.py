"""The staged answers of `within_gradient`, with the values asked about, for the branch that runs when one is False.

With a staged predicate JAX differentiates both branches of `cond`. Where the
predicate is an answer of `within_gradient`, False means that no trace tracks the
values that it was asked about. So the branch for False may see these values as
constants, and may do what JAX cannot differentiate: a callback, a while loop, a
kernel. The exception is an answer that is a constant of an inner traced program
(``jax.closure_convert``): the values may become inputs of that program and be
differentiated, while the answer stays.

Only weak references are held, so that no tracer outlives its trace.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from adprotocol_jax import internals
from adprotocol_jax.primitives import as_constant_if_tracked, within_gradient_p
from adprotocol_jax.solver import refuse_solver

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# By the id of an answer, for a tracer has no hash: the answer, and the values asked about.
_ANSWERS: dict[int, tuple[weakref.ref[Any], tuple[weakref.ref[Any], ...]]] = {}


def ask(*values: Any) -> Any:
    """Ask about inexact tracers: return a Python bool if JAX knows the answer now, else a staged one."""
    answer = within_gradient_p.bind(*values)
    if answer is True:
        return True
    refuse_solver()
    # Evaluated under disable_jit or as a constant of a trace it may come as an array.
    if isinstance(answer, (bool, np.bool_)):
        return bool(answer)
    if isinstance(answer, jax.core.Tracer):
        key = id(answer)
        _ANSWERS[key] = (weakref.ref(answer, lambda _: _ANSWERS.pop(key, None)), tuple(map(weakref.ref, values)))
    return answer


def untracked(pred: Any, outcome: bool) -> list[Any] | None:  # noqa: FBT001  (the value of pred)
    """Return the values that no trace tracks if a staged predicate comes out as `outcome`.

    Known for an answer, and for answers and other predicates joined by `~`, `|` and `&`. None, for all values, if
    that outcome is impossible: a tracer may have been joined with the known answer True.
    """
    constants: list[Any] = []
    pending, seen = [(pred, outcome)], set()
    while pending:
        tracer, value = pending.pop()
        if (id(tracer), value) in seen:
            continue
        seen.add((id(tracer), value))
        answer, values = _ANSWERS.get(id(tracer), (None, ()))
        if answer is not None and answer() is tracer:
            if not value and not internals.is_closed_over_by_program(tracer):
                constants += [asked for asked in (reference() for reference in values) if asked is not None]
            continue
        known = internals.literal(tracer)
        if known is not None and bool(known) is not value:
            return None
        name, operands = internals.operation(tracer)
        if name == "not":
            pending.append((operands[0], not value))
        elif (name, value) in (("or", False), ("and", True)):
            pending += [(operand, value) for operand in operands]
    return constants


def with_constants(fun: Callable[[], list[Any]], values: Sequence[Any] | None) -> Callable[[], list[Any]]:
    """Return `fun`, which returns a list of arrays, with `values` constant wherever it closes over them (None: all).

    Call this in the trace that will call `fun`.
    """
    if values is not None and not values:
        return fun
    outer = internals.trace_context.trace
    kept_alive: list[Any] = []

    def constant(closed_over: Any) -> Any:
        is_constant = values is None or any(closed_over is value for value in values)
        return as_constant_if_tracked(closed_over) if is_constant else closed_over

    def run() -> list[Any]:
        results = fun()
        program = internals.trace_context.trace
        with internals.set_current_trace(outer):
            kept_alive.extend(internals.change_closed_over(program, constant))
            return [leaf if internals.trace_of(leaf) is program else constant(leaf) for leaf in results]

    return run
