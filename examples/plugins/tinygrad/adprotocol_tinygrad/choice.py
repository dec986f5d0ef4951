"""`cond` on tinygrad: the branch that a predicate chooses now, or a select where it is known later."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tinygrad import Device, Tensor, dtypes
from tinygrad.dtype import strong_dtype
from tinygrad.engine import realize as engine
from tinygrad.function import _function
from tinygrad.tensor import all_tensors
from tinygrad.uop.ops import Ops, UOp

from adprotocol.extend import Branches
from adprotocol.hookspecs import hookimpl
from adprotocol_tinygrad import graph

if TYPE_CHECKING:
    from collections.abc import Callable


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch; select between both while `TinyJit` or `tinygrad.function` captures a program."""
    if not isinstance(pred, bool):
        if engine.capturing or _function.depth:
            return _select(pred, true_fun, false_fun, operands)
        read = readable(pred)
        if read is None:
            return _select(pred, true_fun, false_fun, operands)
        pred = bool(read.item())
    return true_fun(*operands) if pred else false_fun(*operands)


def readable(tensor: Tensor) -> Tensor | None:
    """Return a tensor of the same values to compute, or None if that would change what is differentiated.

    tinygrad puts buffers in the place of two kinds of node when it computes what depends on them, `contiguous` and
    what is stored, in every tensor. Derivatives would stop there, so a graph without these nodes is computed.
    """
    replaced: dict[UOp, UOp] = {}
    walk = graph.Walk()
    for node in tensor.uop.toposort():
        if node.op is Ops.CONTIGUOUS:
            replaced[node] = node.src[0]
        elif node.op is Ops.AFTER:
            stored = [source.src[1] for source in node.src[1:] if source.op is Ops.STORE]
            if len(stored) == 1 and not node._base_buffer_is_realized():
                replaced[node] = stored[0]
            elif any(walk.status(value) == graph.TRACKED for value in stored or [node]):
                return None
    read = Tensor(tensor.uop.substitute(replaced))
    return read if read.device is not None else read.clone(device=Device.DEFAULT)


def _select(pred: Tensor, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: Any) -> Any:
    before = {tensor.uop for reference in list(all_tensors) if (tensor := reference()) is not None}
    branches = _Branches(Tensor, true_fun, false_fun, operands)
    if_true, if_false = branches.run_true(), branches.run_false()
    branches.compare()
    return branches.result([_chosen(pred, before, *pair) for pair in zip(if_true, if_false, strict=True)])


class _Branches(Branches):
    """Branches whose Python numbers take the dtype of what they are chosen against, as everywhere in tinygrad."""

    def agree(self, one: Any, other: Any) -> bool:
        """Compare shapes, and dtypes that tinygrad does not promote."""
        (kind, shape), (other_kind, other_shape) = map(_type, (one, other))
        if shape != other_shape:
            return False
        return kind == other_kind or _takes(kind, other_kind) or _takes(other_kind, kind)


def _type(kind: Any) -> Any:
    return (dtypes.from_py(kind), ()) if isinstance(kind, (bool, int, float)) else (kind.dtype, kind.shape)


def _takes(weak: Any, kind: Any) -> bool:
    return (weak in dtypes.weaks and dtypes.is_float(kind)) or (weak is dtypes.weakint and dtypes.is_int(kind))


def _chosen(pred: Tensor, before: set[UOp], one: Any, other: Any) -> Tensor:
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
