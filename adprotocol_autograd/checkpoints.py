"""The second run of a checkpoint, whose first could not know that a derivative follows.

``autograd.checkpoint`` makes a function a primitive, whose first run is on plain
arrays, and runs it again for the derivative. A question about a value that only the
second run tracks was answered False in the first.
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

# The code that runs a checkpoint again. Its caller's caller starts the trace, at most `_FRAMES_BELOW` frames below.
(_SECOND_RUN,) = (
    const for const in checkpoint.__code__.co_consts
    if isinstance(const, types.CodeType) and const.co_name == "wrapped_grad"
)  # fmt: skip
_TRACES = (trace.__code__, gradient.traced.__code__)
_FRAMES_BELOW = 6


class Checkpoints:
    """The number of functions with a rule when it was last counted and none was a checkpoint; -1 once one is."""

    rule_count = 0


def are_used() -> bool:
    """Return whether the program has made a checkpoint."""
    if len(primitive_vjps) != Checkpoints.rule_count >= 0:
        is_used = any(map(_is_checkpoint, tuple(primitive_vjps.values())))
        Checkpoints.rule_count = -1 if is_used else len(primitive_vjps)
    return Checkpoints.rule_count < 0


def _is_checkpoint(rule: Any) -> bool:
    cells = getattr(rule, "__closure__", None) or ()
    return any(getattr(cell.cell_contents, "__code__", None) is _SECOND_RUN for cell in cells)


def refuse_second_run(box: Any) -> None:
    """Raise `UndecidableError` for a value that only the second run of a checkpoint tracks."""
    if isbox(box._value) or box._trace != trace_stack.top:  # noqa: SLF001  (one level down)
        return
    codes = [frame.f_code for frame, _ in traceback.walk_stack(None)]
    innermost = next((place for place, code in enumerate(codes) if code in _TRACES), len(codes))
    if _SECOND_RUN in codes[innermost + 1 : innermost + 1 + _FRAMES_BELOW]:
        raise UndecidableError(
            "a function in autograd.checkpoint asks about its argument, but the first of its two runs does not see "
            "that the argument is differentiated. Ask outside and close over the answer"
        )
