"""`cond` on PyTorch: Python's branch, a select under vmap, or ``torch.cond`` in a graph."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.errors import BranchMismatchError
from adprotocol.extend import predicate_error, predicate_shape_error, tree_leaves, tree_map
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import dynamo, tracking
from adprotocol_torch.batched_cond import select
from adprotocol_torch.connection import run_connected

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
    like = next((leaf for leaf in leaves if leaf.is_floating_point()), None)
    sharing = dynamo.sharing(leaves)
    if sharing:
        # torch.cond refuses operands that share memory, such as two rows of one tensor.
        again = iter([i in sharing for i in range(len(leaves))])
        operands = tree_map(
            lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) and next(again) else leaf, operands
        )

    # Operands are closed over, so that they may be anything; Dynamo lifts the
    # tensors among them. torch.cond refuses a result that aliases an operand, hence
    # the copy, and results that are not tensors: numbers become tensors, None and
    # strings are recorded during tracing, and put back.
    def tensors(fun: Callable[..., Any], notes: int) -> Callable[[], Any]:
        def run() -> Any:
            places = itertools.count()
            return tree_map(lambda leaf: _as_result(leaf, like, notes, next(places)), fun(*operands))

        return run

    notes, other = dynamo.new_notes(), dynamo.new_notes()
    result = torch.cond(pred, tensors(true_fun, notes), tensors(false_fun, other), ())
    dynamo.select_if_differentiated([leaf for leaf in tree_leaves((result,)) if isinstance(leaf, torch.Tensor)])
    constants = dynamo.taken_notes(notes)
    if constants != dynamo.taken_notes(other):
        msg = (
            "the branches of a staged cond must return equal structures, but their None and strings differ; return the "
            "same ones at the same places"
        )
        raise BranchMismatchError(msg)
    if not constants:
        return result
    places = itertools.count()
    return tree_map(lambda leaf: _noted(leaf, constants, next(places)), result)


def _as_result(leaf: Any, like: torch.Tensor | None, notes: int, place: int) -> Any:
    if isinstance(leaf, torch.Tensor):
        # Of one layout, for torch.cond compares strides.
        return leaf.clone(memory_format=torch.contiguous_format)
    if isinstance(leaf, (bool, int, float, complex)):
        # In the precision that the other branch most probably uses; if it does not, torch.cond raises.
        return torch.tensor(leaf, dtype=like.dtype if like is not None and type(leaf) is float else None)
    if leaf is None or isinstance(leaf, str):
        dynamo.note(notes, place, leaf)
        # For a gradient torch.cond needs floats; compilers merge equal constants, which it takes for aliases.
        return torch.tensor(float(place))
    return leaf


def _noted(leaf: Any, constants: list[tuple[int, Any]], place: int) -> Any:
    for at, constant in constants:
        if at == place:
            return constant
    return leaf
