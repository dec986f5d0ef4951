"""`custom_derivative` on tensors: the rule as the derivative of a node, at each level.

Without torch.func, an autograd.Function attaches the rule to results that were
computed before, so that the function runs in the modes of its caller. Inside
torch.func, PyTorch leads the Function through the levels: one that differentiates
calls the rule, one of vmap makes of it a rule of batches, and below the last level
it is attached as without torch.func.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from adprotocol.errors import RuleError
from adprotocol.hookspecs import hookimpl
from adprotocol_torch import internals
from adprotocol_torch.internals import functorch_is_active, primal_of, skip
from adprotocol_torch.pull import separated
from adprotocol_torch.rule_modes import BatchedRule, TensorDerivative, as_results, unchanged
from adprotocol_torch.tensors import has_strides

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from adprotocol.extend import Outline
    from adprotocol_torch.rule_modes import Tensors


# Where a graph broke around it, Dynamo would compile it and its callees one by one.
@skip
@hookimpl
def custom_rule(rule: Any, arrays: Tensors) -> tuple[Tensors, Outline]:
    """Return what a function returns, with its rule as the derivative."""
    call = _Call(rule, arrays)
    return list(_Node.apply(call, *arrays)), call.outline


@internals.skip
def left_to_eager_code(call: Any, arrays: Tensors) -> tuple[Tensors, Outline]:
    """Return what a call returns; where Dynamo traces, as one function in the graph, which later stages trace."""
    if hasattr(call, "has_vjp"):  # a rule: the graph has broken at this call
        return custom_rule(call, arrays)
    results, outline = call.fun(arrays)
    return as_results(results, arrays), outline


class _Call:
    """What belongs to one call, for the nodes of all levels."""

    __slots__ = ("autocast", "outline", "results", "rule")

    def __init__(self, rule: Any, arrays: Tensors) -> None:
        self.rule = rule
        self.outline: Any = None
        # On their way into the node alone, which they keep alive.
        self.results: Tensors | None = None
        self.autocast = internals.autocast_of(arrays)

    def precision(self, tensors: Tensors) -> AbstractContextManager[Any]:
        """Let autocast choose precisions as it did for the function."""
        return internals.autocast_as(self.autocast, tensors)  # type: ignore[no-any-return]


def _attach(call: _Call, arrays: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """Run the function on constants, and attach the rule to what it returns, if anything is differentiated."""
    is_recorded, is_forward = torch.is_grad_enabled(), internals.is_in_forward_mode()
    tracked = [array for array in arrays if array.requires_grad] if is_recorded else []
    is_tracked = is_forward or len(tracked) > 0
    constants = [array.detach() for array in arrays] if is_tracked else list(arrays)
    name = call.rule.name
    if tracked and internals.is_exporting():
        raise RuleError(
            f"torch.export traces {name} with arguments that require a gradient, but the exported program would not "
            "have its derivative rule. Export under torch.no_grad() what only computes values; for training, make an "
            "operator of it, torch.library.custom_op with register_autograd"
        )
    msg = f"the function {name}, which has a derivative rule, changes an argument in place; change a copy"
    returned, call.outline = unchanged(tracked, lambda: call.rule.fun(constants), msg)
    results = as_results(returned, arrays)
    for result in results:
        if (is_recorded and result.requires_grad) or (is_forward and internals.has_tangent(result)):
            raise call.rule.hidden_error()
    # A change in place would reach an argument, or another result, in the same memory too, unseen by its derivative.
    results = separated(results, arrays)
    if not is_tracked:
        return results
    # Tensors of their own: what the function returned may belong to others.
    constant = _constant if internals.is_seen() else torch.Tensor.detach
    call.results = [constant(result) for result in results]
    if is_forward:
        # PyTorch gives no tangent to a result whose elements share memory.
        call.results = [y.contiguous() if has_strides(y) and 0 in y.stride() else y for y in call.results]
    return _Node.apply(call, *arrays)  # type: ignore[no-any-return]


class _Node(torch.autograd.Function):
    """The node of a rule; inside torch.func there is one at each level."""

    @classmethod
    def apply(cls, call: _Call, *arrays: torch.Tensor) -> Any:
        """Go down one level; PyTorch calls this again below the last one, where the function runs."""
        if functorch_is_active():
            return super().apply(call, *arrays)  # type: ignore[no-untyped-call]
        if call.results is not None:
            return internals.apply_node(cls, call, *arrays)
        return tuple(_attach(call, arrays))

    @staticmethod
    def forward(call: _Call, *_arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return what the function has returned."""
        results, call.results = call.results, None
        return tuple(results or ())

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *arrays = inputs
        ctx.call = call
        # Zeros in place of None would have gradients computed that nobody needs.
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*output[call.outline.count :])
        # A host function has no flag for an array, and reads none.
        reads = [*call.rule.reads, *[False] * len(arrays)][: len(arrays)] + [call.rule.reads_results] * len(output)
        values = [*arrays, *output]
        # In place of what no rule reads, a tensor of its shape that takes no memory: it may be freed, or changed.
        ctx.shapes = [
            None if is_read else torch.empty_strided(one.shape, (0,) * one.ndim, dtype=one.dtype, device=one.device)
            for one, is_read in zip(values, reads, strict=True)
        ]
        saved = [one for one, is_read in zip(values, reads, strict=True) if is_read]
        ctx.save_for_backward(*saved)
        if internals.in_transform():
            ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        needed = list(ctx.needs_input_grad[1:])
        derivative = TensorDerivative(ctx.call.rule, ctx.call.outline, needed, *_saved(ctx))
        flowing = zip(cotangents, derivative.outputs, strict=False)
        full = [torch.zeros_like(output) if one is None else one for one, output in flowing]
        with ctx.call.precision(derivative.results):
            gradients = iter(derivative.pull(full))
        return (None, *[next(gradients) if need else None for need in needed])

    @staticmethod
    def jvp(ctx: Any, _call: None, *tangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        # They carry the tangents of this level, which the rule is not to propagate.
        results, arrays = (list(map(primal_of, tensors)) for tensors in _saved(ctx))
        needed = [one is not None for one in tangents]
        derivative = TensorDerivative(ctx.call.rule, ctx.call.outline, needed, results, arrays)
        flowing = [one for one in tangents if one is not None]
        # PyTorch switches forward mode off in here, and with it the tangents of the levels around this one.
        with internals.enable_forward_mode(), ctx.call.precision(results):
            pushed = separated(derivative.push(flowing), flowing)
        return (*pushed, *[None] * (len(results) - len(pushed)))

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: _Call, *arrays: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], Any]:
        rule, axes = call.rule, in_dims[1:]
        # A host function knows how to make its own.
        is_host = hasattr(rule, "batched")
        batched = rule.batched(axes, info.batch_size) if is_host else BatchedRule(rule, axes, info.randomness)
        results, call.outline = custom_rule(batched, list(arrays))
        return tuple(results), (0,) * len(results)


def _saved(ctx: Any) -> tuple[Tensors, Tensors]:
    """Return the results of a node, and its arrays."""
    saved = map(_of_a_rule, ctx.saved_tensors) if not internals.is_seen() else iter(ctx.saved_tensors)
    values = [next(saved) if shape is None else shape for shape in ctx.shapes]
    count = len(ctx.needs_input_grad) - 1
    return values[count:], values[:count]


def _of_a_rule(saved: torch.Tensor) -> torch.Tensor:
    """Return what a rule gets: where nothing records a constant, and else no leaf, which results were computed from."""
    # A pull may come after the end of its level of torch.func, and a rule that differentiates begins another.
    saved = internals.unwrap_if_dead(saved)
    if not torch.is_grad_enabled():
        return saved.detach() if saved.requires_grad else saved
    return saved.view_as(saved) if saved.is_leaf and saved.requires_grad and not functorch_is_active() else saved


def _refuse(*_: Any) -> NoReturn:
    raise RuleError(
        "a graph that make_fx made is differentiated through a function with a derivative rule, which it does not "
        "hold; trace the gradient, make_fx(torch.func.grad(...)), or make an operator of the function, "
        "torch.library.custom_op with register_autograd"
    )


# since torch 2.15: a detach in a graph is recorded as an alias, which has a derivative.
_LIBRARY = torch.library.Library("adprotocol", "FRAGMENT")  # type: ignore[no-untyped-call]
_LIBRARY.define("constant(Tensor array) -> Tensor")  # type: ignore[no-untyped-call]
_LIBRARY.impl("constant", torch.clone, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
torch.library.register_fake("adprotocol::constant", torch.clone, lib=_LIBRARY)
torch.library.register_autograd("adprotocol::constant", _refuse, lib=_LIBRARY)
_constant: Any = torch.ops.adprotocol.constant
