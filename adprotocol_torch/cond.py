"""`cond` on PyTorch: Python's branch, a select under vmap, or ``torch.cond`` in a graph.

A result of Python's branch that is constant beside tracked operands is connected with
them: ``backward()`` would fail, or not, by which branch was taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from adprotocol import within_gradient
from adprotocol.extend import Branches, tree_leaves, tree_map
from adprotocol.hookspecs import hookimpl
from adprotocol.tracing import trace_instead
from adprotocol_torch import dynamo, internals, tracking
from adprotocol_torch.batched_cond import TensorBranches, run_guarded, select
from adprotocol_torch.tensors import ArrayFunctions, is_dense, is_float

if TYPE_CHECKING:
    from collections.abc import Callable


@hookimpl
def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Run the chosen branch; select under vmap; stage ``torch.cond`` in a compiled graph."""
    if not isinstance(pred, bool):
        if torch.compiler.is_compiling():
            # torch.cond fails inside torch.func, loses the tangents of dual tensors, and has zero for a gradient
            # that is taken in a branch; a select does none of these.
            if dynamo.inside_transform() or dynamo.selects():
                return select(pred, true_fun, false_fun, operands)
            return _stage(pred, true_fun, false_fun, operands)
        if isinstance(pred, torch.Tensor) and tracking.is_batched(pred):
            return select(pred, true_fun, false_fun, operands)
        pred = bool(pred)
    return _run(true_fun if pred else false_fun, operands)


def _run_traced(fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    dynamo.install()
    result = fun(*operands)
    is_tracked = dynamo.any_fake((result,))
    is_plain = is_tracked is False and dynamo.any_fake(operands) is False and not dynamo.inside_transform()
    return result if is_tracked or is_plain else _connected(result, operands, dynamo.ask_fake)


# Where a graph broke around it, Dynamo would compile its parts, with batches that it warns of.
@trace_instead(_run_traced)
@internals.skip
def _run(fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    """Return ``fun(*operands)``, which is not a constant beside operands that the tape tracks."""
    result = fun(*operands)
    if type(result) is torch.Tensor and result.requires_grad:
        return result
    if not internals.functorch_is_active():
        for operand in operands:  # a comprehension costs as much as the rest
            if type(operand) is not torch.Tensor or operand.requires_grad:
                break
        else:
            return result
        if not torch.is_grad_enabled():
            return result
    return _connected(result, operands, tracking.is_on_tape)


def _connected(result: Any, operands: tuple[Any, ...], is_tracked: Callable[[torch.Tensor], Any]) -> Any:
    results = [leaf for leaf in tree_leaves((result,)) if is_float(leaf)]
    if len([leaf for leaf in results if is_tracked(leaf)]) > 0:
        return result
    floats = [leaf for leaf in tree_leaves(operands) if is_float(leaf) and is_dense(leaf)]
    tracked = [leaf for leaf in floats if is_tracked(leaf)]
    if not results and len(floats) > 0 and (tracked or internals.functorch_is_active()):
        # A Python number cannot be connected, nor be the result of a function that torch.func transforms.
        result = tree_map(lambda leaf: floats[0].new_full((), leaf) if type(leaf) is float else leaf, result)
    if not tracked:
        return result
    return tree_map(lambda leaf: _minus_nothing(leaf, tracked) if is_float(leaf) else leaf, result)


def _minus_nothing(result: torch.Tensor, operands: list[torch.Tensor]) -> torch.Tensor:
    """Subtract the sum of an empty slice of each operand, through which the gradient is zeros, never NaN."""
    if not is_dense(result) or result.element_size() == 1:  # from 8 bits PyTorch subtracts nothing
        return result
    for operand in operands:
        empty = operand.reshape(-1)[:0]
        if empty.is_complex() and not result.is_complex():
            empty = empty.real
        # Moved while it is empty: nothing is copied between devices. Minus, for x - 0 is x, and -0 + 0 is not -0.
        result = result - empty.to(device=result.device, dtype=result.dtype).sum()
    return result


def _stage(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    dynamo.install()
    leaves = [leaf for leaf in tree_leaves(operands) if isinstance(leaf, torch.Tensor)]
    floats = [leaf for leaf in leaves if leaf.is_floating_point()]
    like = floats[0] if floats else None
    device = (like if like is not None else pred).device
    if dynamo.sharing(leaves):
        # torch.cond refuses operands that share memory, such as two rows of one tensor.
        operands = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, operands)

    # Operands are closed over, so that they may be anything; Dynamo lifts the
    # tensors among them. torch.cond refuses results that are not tensors, so it gets
    # the tensors alone; the rest is kept during tracing, and put back. It refuses a
    # result that aliases an operand, too, hence the copy.
    def tensors(run: Callable[[], list[Any]], key: str) -> Callable[[], list[torch.Tensor]]:
        def results() -> list[torch.Tensor]:
            lifted = run()
            dynamo.keep(key, tuple([isinstance(leaf, torch.Tensor) and bool(dynamo.ask_fake(leaf)) for leaf in lifted]))
            return [_as_result(leaf, like, device) for leaf in lifted] or [torch.zeros(())]  # torch.cond needs one

        return results

    branches = _Branches(torch.Tensor, true_fun, false_fun, operands)
    branches.if_true, branches.if_false = dynamo.new_key(), dynamo.new_key()
    if_true, if_false = dynamo.new_key(), dynamo.new_key()
    results = list(torch.cond(pred, tensors(branches.run_true, if_true), tensors(branches.run_false, if_false), ()))
    dynamo.select_if_differentiated(results)
    # Of the object that torch.cond has seen Dynamo would lose what is set from here on.
    traced = Branches(torch.Tensor, true_fun, false_fun)
    traced.of_true, traced.of_false = dynamo.kept(branches.if_true), dynamo.kept(branches.if_false)
    # torch.cond lets all results follow what one of them does.
    # until torch 2.10: Dynamo does not trace `strict=True`.
    for i, (one, other) in enumerate(zip(dynamo.kept(if_true), dynamo.kept(if_false))):  # noqa: B905
        if not (one or other) and dynamo.ask_fake(results[i]):
            results[i] = results[i].detach()
    # Results that receive the same cotangent, as the terms of a sum do, PyTorch refuses or gets wrong. What selects
    # gives each one of its own; of another shape, for equal nodes of a graph are made one.
    return traced.result([result[(None,) * i][(0,) * i] for i, result in enumerate(results)])


class _Branches(TensorBranches):
    """Branches for torch.cond, which compares the tensors itself and makes tensors of numbers.

    What they return besides cannot leave them by an attribute, for Dynamo allows a branch no side effect.
    """

    if_true: str
    if_false: str

    def type_of(self, leaf: Any) -> Any:
        """Return the same for every tensor and number."""
        return "a tensor" if isinstance(leaf, (torch.Tensor, bool, int, float, complex)) else None

    def keep(self, returned: Any, *, taken: bool) -> None:
        """Remember what a branch returned until it has been traced."""
        dynamo.keep(self.if_true if taken else self.if_false, returned)


def _as_result(leaf: Any, like: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    if isinstance(leaf, torch.Tensor):
        # Of one layout, for torch.cond compares strides.
        return leaf.clone(memory_format=torch.contiguous_format)
    # Guess the other branch's dtype; where that is wrong, torch.cond raises.
    return torch.full((), leaf, dtype=like.dtype if like is not None and type(leaf) is float else None, device=device)


class _Functions(ArrayFunctions):
    """The functions for `adprotocol.where`, with the guard of a batched branch."""

    @staticmethod
    def constant_unless(pred: Any, run: Callable[[], list[Any]], held: list[Any]) -> list[Any]:
        """Return ``run()``, of which no derivative reaches what it closes over where `pred` is False."""
        return run_guarded(pred, run, ()) if within_gradient(*held) else run()


@hookimpl
def array_functions() -> Any:
    """Return the functions of PyTorch in the words of the array API standard."""
    return _Functions
