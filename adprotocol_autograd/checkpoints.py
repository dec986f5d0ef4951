"""The second run of a checkpoint, whose first could not be told that a derivative follows.

``autograd.checkpoint`` makes a function a primitive, whose first run is on plain
arrays, and runs it again for the derivative. What is tracked in the second run alone
was answered False in the first.
"""

from __future__ import annotations

import traceback
import types
from typing import Any

from autograd import checkpoint
from autograd.core import primitive_vjps
from autograd.tracer import isbox, trace, trace_stack

from adprotocol.errors import UndecidableError
from adprotocol_autograd import gradient

# The function that runs a checkpoint again. Its caller's caller starts the trace, at most so many frames below.
(_AGAIN,) = (
    const for const in checkpoint.__code__.co_consts
    if isinstance(const, types.CodeType) and const.co_name == "wrapped_grad"
)  # fmt: skip
_TRACES = (trace.__code__, gradient.traced.__code__)
_BELOW = 6


class Checkpoints:
    """How many functions had a derivative rule when none of them was a checkpoint; -1 once one is."""

    without = 0


def are_used() -> bool:
    """Tell whether the program has made a checkpoint."""
    if len(primitive_vjps) != Checkpoints.without >= 0:
        is_used = any(map(_runs_again, tuple(primitive_vjps.values())))
        Checkpoints.without = -1 if is_used else len(primitive_vjps)
    return Checkpoints.without < 0


def _runs_again(rule: Any) -> bool:
    cells = getattr(rule, "__closure__", None) or ()
    return any(getattr(cell.cell_contents, "__code__", None) is _AGAIN for cell in cells)


def refuse_second_run(box: Any) -> None:
    """Raise `UndecidableError` for a value that only the second run of a checkpoint tracks."""
    if isbox(box._value) or box._trace != trace_stack.top:  # noqa: SLF001  (one level down)
        return
    codes = [frame.f_code for frame, _ in traceback.walk_stack(None)]
    innermost = next((place for place, code in enumerate(codes) if code in _TRACES), len(codes))
    if _AGAIN in codes[innermost + 1 : innermost + 1 + _BELOW]:
        msg = (
            "a function given to autograd.checkpoint asks about its argument, of which the first of its two runs "
            "cannot be told that it is differentiated. Ask outside and close over the answer"
        )
        raise UndecidableError(msg)
