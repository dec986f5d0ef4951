"""The adprotocol plugin for HIPS autograd.

autograd tracks by value: a tracked value is a `Box`. The trace depth does not count,
because it leaks after an exception.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Any

from autograd.builtins import DictBox, SequenceBox
from autograd.core import primitive_vjps
from autograd.tracer import Box, getval
from numpy import ndarray

import adprotocol
from adprotocol.errors import UndecidableError
from adprotocol.extend import gradient_prevented, read_divergences, tree_leaves
from adprotocol.hookspecs import View, hookimpl
from adprotocol_autograd import checkpoints, derivative, gradient
from adprotocol_autograd.checkpoints import Checkpoints
from adprotocol_autograd.derivative import custom_rule
from adprotocol_autograd.gradient import is_inexact, jvp, vjp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.conformance import Harness
    from adprotocol.extend import Divergence


@hookimpl
def array_types() -> tuple[type, ...]:
    """Claim boxes: of arrays and numbers, lists, tuples and dicts."""
    return (Box,)


@hookimpl
def within_gradient(value: Any) -> bool:
    """Return whether there is a real or complex floating number in the box."""
    if len(primitive_vjps) != Checkpoints.rule_count and checkpoints.are_used():
        checkpoints.refuse_second_run(value)
    raw = value._value  # noqa: SLF001  (one level down; the full loop of getval costs 60 ns)
    if type(raw) is float:
        return True
    if type(raw) is ndarray:
        kind = raw.dtype.kind
        if kind != "O":
            return kind in "fc"
    raw = getval(raw)
    if isinstance(value, (SequenceBox, DictBox)):
        return any(is_inexact(leaf) for leaf in tree_leaves((raw,)))
    return is_inexact(raw)


@hookimpl
def non_differentiable(value: Any) -> Any:
    """Take the value out of its boxes at all levels; a list or object array may hold boxes of outer levels."""
    raw = getval(value)
    may_hold_boxes = isinstance(value, (SequenceBox, DictBox)) or (type(raw) is ndarray and raw.dtype.hasobject)
    return adprotocol.non_differentiable(raw) if may_hold_boxes else raw


@hookimpl
def prevent_gradient(value: Any, message: str) -> Any:
    """Refuse a box of a floating number, in the second run of a checkpoint too."""
    try:
        reason = explain(value) if within_gradient(value) else None
    except UndecidableError:
        reason = "the second run of a checkpoint"
    if reason is not None:
        raise gradient_prevented(value, message, f"autograd: {reason}")
    return value


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch; with autograd every predicate is concrete."""
    if not isinstance(pred, bool):
        return adprotocol.cond(getval(pred), true_fun, false_fun, *operands)
    return true_fun(*operands) if pred else false_fun(*operands)


@hookimpl
def array_functions() -> Any:
    """Return the functions of ``autograd.numpy``."""
    return gradient.ArrayFunctions


@hookimpl
def trainable(value: Any) -> bool | None:
    """Return whether there is a real or complex floating number in the box."""
    return True if is_inexact(value) else None


@hookimpl
def host_call(
    fun: Callable[[list[Any]], list[Any]],
    arrays: list[Any],
    like: list[Any] | None,  # noqa: ARG001  (nothing is staged)
    batched: bool,  # noqa: ARG001, FBT001  (nothing is batched; the signature of the hook)
    message: str,
) -> list[Any]:
    """Call the function on the values in the boxes, none of which may be differentiated."""
    derivative.refuse_tracked(arrays, message)
    return [result[()] for result in fun([getval(array) for array in arrays])]


@hookimpl
def views() -> dict[type, Callable[[Any], View]]:
    """Show a boxed list, tuple or dict as a container of boxes."""
    return {SequenceBox: _view_sequence, DictBox: lambda box: View({key: box[key] for key in getval(box)})}


def _view_sequence(box: Any) -> View:
    items = [box[i] for i in range(len(box))]
    return View(tuple(items) if isinstance(getval(box), tuple) else items)


@hookimpl
def explain(value: Any) -> str:
    """Explain the answer for a box, with the number of traces around the value."""
    levels = 0
    raw = value
    while isinstance(raw, Box):
        levels, raw = levels + 1, raw._value  # noqa: SLF001  (the one way down a single level)
    if not within_gradient(value):
        return f"boxed, but an integer or boolean {type(raw).__name__} has no derivative"
    return f"boxed by {levels} trace(s) of autograd"


@hookimpl
def divergences() -> Sequence[Divergence]:
    """List the declared divergences of autograd."""
    return list(read_divergences(files("adprotocol_autograd") / "divergences.md").values())


@hookimpl
def harness(device: str | None) -> Harness:
    """Return the conformance harness for autograd."""
    from adprotocol_autograd.conformance import AutogradHarness  # noqa: PLC0415  (only the suite needs it)

    return AutogradHarness(device)
