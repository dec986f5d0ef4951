"""`cond` on PyTorch: Python's branch, a select under vmap, or ``torch.cond`` in a graph."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import (
    common_outline,
    describe,
    predicate_error,
    predicate_shape_error,
    put_together,
    same_constant,
    take_apart,
    tree_leaves,
    tree_map,
)
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import dynamo, tracking
from adprotocol_torch.batched_cond import select
from adprotocol_torch.zero_gradients import run_connected

if TYPE_CHECKING:
    from collections.abc import Callable


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch; select under vmap; stage ``torch.cond`` in a compiled graph."""
    if not isinstance(pred, bool):
        if pred.dtype is not torch.bool:
            raise predicate_error(pred, pred.dtype)
        if pred.dim() != 0:
            raise predicate_shape_error(pred, pred.shape)
        if torch.compiler.is_compiling():
            # torch.cond fails inside torch.func, loses the tangents of dual tensors, and has zero for a gradient
            # that is taken in a branch; a select does none of these.
            if dynamo.inside_transform() or dynamo.selects():
                return select(pred, true_fun, false_fun, operands)
            return _stage(pred, true_fun, false_fun, operands)
        if tracking.is_batched(pred):
            return select(pred, true_fun, false_fun, operands)
        pred = bool(pred)
    return run_connected(true_fun if pred else false_fun, operands)


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    dynamo.install()
    leaves = [leaf for leaf in tree_leaves(operands) if isinstance(leaf, torch.Tensor)]
    floats = [leaf for leaf in leaves if leaf.is_floating_point()]
    like = floats[0] if floats else None
    sharing = dynamo.sharing(leaves)
    if sharing:
        # torch.cond refuses operands that share memory, such as two rows of one tensor.
        again = iter([i in sharing for i in range(len(leaves))])
        operands = tree_map(
            lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) and next(again) else leaf, operands
        )

    # Operands are closed over, so that they may be anything; Dynamo lifts the
    # tensors among them. torch.cond refuses results that are not tensors, so it gets
    # the tensors alone; the rest is kept during tracing, and put back. It refuses a
    # result that aliases an operand, too, hence the copy.
    def tensors(fun: Callable[..., Any], key: int) -> Callable[[], list[torch.Tensor]]:
        def run() -> list[torch.Tensor]:
            leaves, outline = take_apart(fun(*operands))
            lifted = [leaf for leaf in leaves if _is_lifted(leaf)]
            followed = tuple([isinstance(leaf, torch.Tensor) and bool(dynamo.ask_fake(leaf)) for leaf in lifted])
            dynamo.keep(key, (outline, tuple([_Tensor if _is_lifted(leaf) else leaf for leaf in leaves]), followed))
            found = [_as_result(leaf, like) for leaf in lifted]
            return found or [torch.zeros(())]  # torch.cond needs one

        return run

    if_true, if_false = dynamo.new_key(), dynamo.new_key()
    results = list(torch.cond(pred, tensors(true_fun, if_true), tensors(false_fun, if_false), ()))
    dynamo.select_if_differentiated(results)
    outline, constants, followed = dynamo.kept(if_true)
    other_outline, others, also_followed = dynamo.kept(if_false)
    common = common_outline(outline, other_outline)
    if common is None or not all(map(same_constant, constants, others)):
        msg = (
            "the branches of a staged cond must return equal structures: true_fun returned "
            f"{_described(outline, constants)}, false_fun {_described(other_outline, others)}. Make them equal"
        )
        raise BranchMismatchError(msg)
    # torch.cond lets all results follow what one of them does.
    for i, (one, other) in enumerate(zip(followed, also_followed, strict=True)):
        if not (one or other) and dynamo.ask_fake(results[i]):
            results[i] = results[i].detach()
    places = itertools.count()
    return put_together(common, [results[next(places)] if constant is _Tensor else constant for constant in constants])


class _Tensor:
    """Stands for a tensor among the leaves of a result."""


def _is_lifted(leaf: Any) -> bool:
    return isinstance(leaf, (torch.Tensor, bool, int, float, complex))


def _as_result(leaf: Any, like: torch.Tensor | None) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        # Of one layout, for torch.cond compares strides.
        return leaf.clone(memory_format=torch.contiguous_format)
    # In the precision that the other branch most probably uses; if it does not, torch.cond raises.
    return torch.tensor(leaf, dtype=like.dtype if like is not None and type(leaf) is float else None)


def _described(outline: Any, constants: tuple[Any, ...]) -> str:
    return describe(outline, ["a tensor" if constant is _Tensor else repr(constant) for constant in constants])
