"""`cond` on tinygrad: the branch that a predicate chooses now, or a select where it is known later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad import Device, Tensor, dtypes
from tinygrad.dtype import strong_dtype
from tinygrad.engine import realize as engine
from tinygrad.function import _function
from tinygrad.tensor import all_tensors
from tinygrad.uop.ops import Ops, UOp

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import (
    common_outline,
    describe,
    predicate_error,
    predicate_shape_error,
    put_together,
    same_constant,
    take_apart,
)
from adprotocol.hookspecs import hookimpl
from adprotocol_tinygrad import graph

if TYPE_CHECKING:
    from collections.abc import Callable


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch; select between both while `TinyJit` or `tinygrad.function` captures a program."""
    if not isinstance(pred, bool):
        if pred.dtype is not dtypes.bool:
            raise predicate_error(pred, pred.dtype)
        if pred.shape != ():
            raise predicate_shape_error(pred, pred.shape)
        if engine.capturing or _function.depth:
            return _select(pred, true_fun, false_fun, operands)
        known = _read(pred)
        if known is None:
            return _select(pred, true_fun, false_fun, operands)
        pred = known
    return true_fun(*operands) if pred else false_fun(*operands)


def _read(pred: Tensor) -> bool | None:
    """Return the value of a predicate, or None if computing it would change what is differentiated.

    tinygrad puts buffers in the place of two kinds of node when it computes what depends on them, `contiguous` and
    what is stored, in every tensor. Derivatives would stop there, so a graph without these nodes is computed.
    """
    replaced: dict[UOp, UOp] = {}
    walk = graph.Walk()
    for node in pred.uop.toposort():
        if node.op is Ops.CONTIGUOUS:
            replaced[node] = node.src[0]
        elif node.op is Ops.AFTER:
            stored = [source.src[1] for source in node.src[1:] if source.op is Ops.STORE]
            if len(stored) == 1 and not node._base_buffer_is_realized():  # noqa: SLF001  (a clone, not an assignment)
                replaced[node] = stored[0]
            elif any(walk.status(value) == graph.TRACKED for value in stored or [node]):
                return None
    read = Tensor(pred.uop.substitute(replaced))
    return bool((read if read.device is not None else read.clone(device=Device.DEFAULT)).item())


def _select(pred: Tensor, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: Any) -> Any:
    before = {tensor.uop for reference in list(all_tensors) if (tensor := reference()) is not None}
    (of_true, outline), (of_false, other) = (take_apart(fun(*operands)) for fun in (true_fun, false_fun))
    common = common_outline(outline, other)
    pairs = list(zip(of_true, of_false, strict=False))
    if common is None or not all(_alike(*pair) for pair in pairs):
        returned = ((outline, of_true), (other, of_false))
        if_true, if_false = (describe(found, [_described(leaf) for leaf in leaves]) for found, leaves in returned)
        msg = (
            "the branches of a staged cond must return equal structures, shapes and dtypes: true_fun returned "
            f"{if_true}, false_fun {if_false}. Make them equal"
        )
        raise BranchMismatchError(msg)
    return put_together(common, [_chosen(pred, before, *pair) for pair in pairs])


def _alike(one: Any, other: Any) -> bool:
    if not _is_lifted(one) or not _is_lifted(other):
        return not _is_lifted(one) and not _is_lifted(other) and same_constant(one, other)
    (shape, kind), (other_shape, other_kind) = _outline_of(one), _outline_of(other)
    if shape != other_shape:
        return False
    # A Python number takes the dtype of what it is chosen against, as everywhere in tinygrad.
    return kind == other_kind or _takes(kind, other_kind) or _takes(other_kind, kind)


def _takes(weak: Any, kind: Any) -> bool:
    return (weak in dtypes.weaks and dtypes.is_float(kind)) or (weak is dtypes.weakint and dtypes.is_int(kind))


def _outline_of(leaf: Any) -> tuple[tuple[Any, ...], Any]:
    return (leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else ((), dtypes.from_py(leaf))


def _is_lifted(leaf: Any) -> bool:
    return isinstance(leaf, (Tensor, bool, int, float))


def _described(leaf: Any) -> str:
    return f"a Tensor of shape {leaf.shape} and dtype {leaf.dtype}" if isinstance(leaf, Tensor) else repr(leaf)


def _chosen(pred: Tensor, before: set[UOp], one: Any, other: Any) -> Any:
    if not _is_lifted(one):
        return one
    one, other = _guarded(pred, one, before), _guarded(pred.logical_not(), other, before)
    chosen = pred.where(one, other)
    return chosen.cast(strong_dtype(chosen.dtype)) if chosen.dtype in dtypes.weaks else chosen


def _guarded(taken: Tensor, result: Any, before: set[UOp]) -> Any:
    """Let derivatives leave a branch, towards operands and whatever it closes over, only where it is taken.

    A select multiplies the derivatives of the other branch by zero, and zero times infinity is NaN.
    """
    if not isinstance(result, Tensor) or not result.is_floating_point():
        return result
    entering = [Tensor(node) for node in result.uop.toposort() if node in before]
    guards = {x.uop: taken.where(x, x.detach()).uop for x in entering if graph.carries_floats(x)}
    return Tensor(result.uop.substitute(guards, walk=True))
