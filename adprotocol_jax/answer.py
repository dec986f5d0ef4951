"""What a staged answer was about, for the branch that runs when it is False.

With a staged predicate JAX differentiates both branches of `cond`. Where the
predicate is an answer of `within_gradient`, False means that no trace tracks the
values that it was asked about. So the branch for False may see these values as
constants, and may do what JAX cannot differentiate: a callback, a while loop, a
kernel. Not so where the answer is a constant of a program that is traced in its turn
(``jax.closure_convert``): the values may be made inputs of it and be differentiated,
while the answer stays.

Answers are noted with weak references alone, so that no tracer outlives its trace.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from adprotocol_jax import internals, varying
from adprotocol_jax.constant import as_constant_if_tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# By id, for a tracer has no hash: the answer, and the values that it was asked about.
_NOTED: dict[int, tuple[weakref.ref[Any], tuple[weakref.ref[Any], ...]]] = {}


def note(answer: Any, values: Sequence[Any]) -> None:
    """Remember, as long as a staged answer lives, which values it was asked about."""
    key = id(answer)
    _NOTED[key] = (weakref.ref(answer, lambda _: _NOTED.pop(key, None)), tuple(map(weakref.ref, values)))


def untracked(pred: Any, outcome: bool) -> list[Any] | None:  # noqa: FBT001  (the value of pred)
    """Return the values that no trace tracks if a staged predicate comes out as `outcome`.

    Known for an answer, and for what `~`, `|` and `&` make of answers and other predicates. None, for all
    values, if it cannot come out so: the answer True, known at once, may have been joined with a tracer.
    """
    found: list[Any] = []
    waiting, seen = [(pred, outcome)], set()
    while waiting:
        tracer, value = waiting.pop()
        if (id(tracer), value) in seen:
            continue
        seen.add((id(tracer), value))
        answer, values = _NOTED.get(id(tracer), (None, ()))
        if answer is not None and answer() is tracer:
            if not value and not internals.is_closed_over_by_program(tracer):
                found += [asked for asked in (reference() for reference in values) if asked is not None]
            continue
        known = internals.literal(tracer)
        if known is not None and bool(known) is not value:
            return None
        name, operands = internals.operation(tracer)
        if name == "not":
            waiting.append((operands[0], not value))
        elif (name, value) in (("or", False), ("and", True)):
            waiting += [(operand, value) for operand in operands]
    return found


def with_constants(
    fun: Callable[[], list[Any]], values: Sequence[Any] | None, axes: frozenset[Any] = frozenset()
) -> Callable[[], list[Any]]:
    """Return `fun`, which returns a list of arrays, with `values` constant wherever it closes over them (None: all).

    `axes` are those along which the predicate differs: what is not allowed for these is refused. To be traced where
    it is made.
    """
    if values is not None and not values and not axes:
        return fun
    around = internals.current_trace()
    held: list[Any] = []

    def constant(const: Any) -> Any:
        concerned = values is None or any(const is value for value in values)
        made = as_constant_if_tracked(const) if concerned else const
        return varying.without_transpose(made, axes) if axes and made is const else made

    def run() -> list[Any]:
        found = fun()
        program = internals.current_trace()
        if axes:
            varying.refuse_collectives(internals.equations(program), axes)
        with internals.set_current_trace(around):
            held.extend(internals.change_closed_over(program, constant))
            return [leaf if internals.is_of(program, leaf) else constant(leaf) for leaf in found]

    return run
