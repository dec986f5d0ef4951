"""What is left of an operation when an answer in front of it is a constant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.ifelse import IfElse
from pytensor.scalar.basic import AND, OR, Invert
from pytensor.tensor.elemwise import Elemwise

from adprotocol_pytensor.ops import Guard

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytensor.graph.op import Op

TRUE = pt.constant(True, dtype="bool")
FALSE = pt.constant(False, dtype="bool")


def simplified(op: Op, inputs: Sequence[Variable]) -> list[Variable] | None:
    """Return what an operation is for constant answers, None if it stays."""
    places = passed_on(op, inputs)
    if places is not None:
        return [inputs[place] for place in places]
    if isinstance(op, Elemwise) and isinstance(op.scalar_op, (AND, OR, Invert)):
        folded = _folded(op.scalar_op, inputs)
        return None if folded is None else [folded]
    return None


def passed_on(op: Op, inputs: Sequence[Variable]) -> Sequence[int] | None:
    """Return the places of the inputs that an operation passes on for a constant answer."""
    if isinstance(op, IfElse) and isinstance(inputs[0], Constant):
        start = 1 if inputs[0].data else 1 + op.n_outs
        return range(start, start + op.n_outs)
    if isinstance(op, Guard) and isinstance(inputs[1], Constant) and inputs[1].data.all():
        return [0]
    return None


def _folded(op: Any, inputs: Sequence[Variable]) -> Variable | None:
    known = [bool(value.data) for value in inputs if isinstance(value, Constant) and value.type.ndim == 0]
    if any(value.type.ndim or value.type.dtype != "bool" for value in inputs):
        return None
    if isinstance(op, Invert):
        return (FALSE if known[0] else TRUE) if known else None
    decisive = isinstance(op, OR)
    if decisive in known:
        return TRUE if decisive else FALSE
    rest = [value for value in inputs if not isinstance(value, Constant)]
    if not rest:
        return FALSE if decisive else TRUE
    return rest[0] if len(rest) == 1 else None
