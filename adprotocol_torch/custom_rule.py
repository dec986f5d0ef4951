"""`custom_derivative` on tensors: a rule as a function of PyTorch's autograd, at every level.

Without torch.func one autograd.Function attaches the rule to results that are computed
before. Inside a transformation PyTorch takes the Function through the levels, one by
one: a level that differentiates applies the rule, a level of vmap makes it a rule of
batches, and the call below the last level is the one without torch.func again.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from adprotocol.hookspecs import hookimpl
from adprotocol_torch import internals
from adprotocol_torch.internals import functorch_is_active

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Tensors = list[torch.Tensor]


@hookimpl
def custom_rule(rule: Any, leaves: Tensors) -> Tensors:
    """Return the results of a function, differentiated by its rule."""
    return list(_Transformed.apply(rule, *leaves)) if functorch_is_active() else _attached(rule, leaves)


def _attached(rule: Any, arrays: Sequence[torch.Tensor]) -> Tensors:
    """Run the function on constants, and attach the rule to what it returns."""
    is_dual = internals.is_in_forward_mode()
    if not is_dual and not (torch.is_grad_enabled() and [a for a in arrays if a.requires_grad]):
        return rule.fun(list(arrays))
    results = rule.fun([array.detach() for array in arrays])
    return list(_Rule.apply(rule, results, is_dual, *arrays))


class _Rule(torch.autograd.Function):
    """Results, which were computed before, with the rule as their derivative."""

    @staticmethod
    def forward(ctx, rule, results, is_dual, *arrays):
        ctx.head = 3
        _save(ctx, rule, arrays, results, is_dual)
        return tuple(results)

    @staticmethod
    def backward(ctx, *cotangents):
        rule, count = ctx.rule, ctx.count
        saved = ctx.saved_tensors
        needed = list(ctx.needs_input_grad[ctx.head :])
        with ctx.precision():
            found = iter(_pull(rule, needed, list(cotangents), list(saved[count:]), list(saved[:count])))
        return (*[None] * ctx.head, *[next(found) if need else None for need in needed])

    @staticmethod
    def jvp(ctx, *tangents):
        rule, count = ctx.rule, ctx.count
        given = tangents[ctx.head :]
        saved = list(map(_primal, ctx.saved_tensors))
        # PyTorch switches forward mode off in here, which would lose the tangents of outer levels.
        with internals.forward_mode(), ctx.precision():
            out = _push(rule, [t is not None for t in given], [t for t in given if t is not None], saved[count:], saved[:count])
        return tuple(out)


class _Transformed(_Rule):
    """The same inside torch.func."""

    @classmethod
    def apply(cls, rule, *arrays):
        return super().apply(rule, *arrays) if functorch_is_active() else tuple(_attached(rule, arrays))

    @staticmethod
    def forward(rule, *arrays):
        raise AssertionError("PyTorch calls it at no level")

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.head = 1
        _save(ctx, inputs[0], inputs[1:], output, True)

    @staticmethod
    def vmap(info, in_dims, rule, *arrays):
        results = custom_rule(_Batched(rule, list(in_dims[1:]), info), list(arrays))
        return tuple(results), (0,) * len(results)


def _save(ctx, rule, arrays, results, is_dual):
    ctx.rule, ctx.count = rule, len(arrays)
    ctx.mark_non_differentiable(*[r for r in results if not _is_inexact(r)])
    ctx.save_for_backward(*arrays, *results)
    if is_dual:
        ctx.save_for_forward(*arrays, *results)
    ctx.precision = contextlib.nullcontext


class _Batched:
    """A rule under vmap: its functions, each applied to all rows at once."""

    def __init__(self, rule, dims, info):
        self.rule, self.dims, self.info = rule, dims, info
        self.name, self.has_vjp, self.has_jvp, self.once = rule.name, rule.has_vjp, rule.has_jvp, rule.once

    def fun(self, arrays):
        return self._rows(self.rule.fun, 0, (arrays, self.dims))

    def vjp(self, needed, cotangents, results, arrays):
        dims = [dim for dim, need in zip(self.dims, needed, strict=True) if need]
        found = self._rows(lambda *given: self.rule.vjp(needed, *given), [dim or 0 for dim in dims],
            (cotangents, [None if c is None else 0 for c in cotangents]), (results, 0), (arrays, self.dims))
        return [g.sum(0) if dim is None else g for g, dim in zip(found, dims, strict=True)]

    def jvp(self, needed, tangents, results, arrays):
        dims = [dim for dim, need in zip(self.dims, needed, strict=True) if need]
        return self._rows(lambda *given: self.rule.jvp(needed, *given), 0, (tangents, dims), (results, 0), (arrays, self.dims))

    def _rows(self, fun, out_dims, *given):
        lists, dims = zip(*given, strict=True)
        return torch.vmap(fun, dims, out_dims, self.info.randomness)(*lists)


def _pull(rule, needed, cotangents, results, arrays):
    # PyTorch's cotangents are the conjugates of those of a rule.
    if rule.has_vjp:
        given = [_conj(c) if _is_inexact(r) else None for c, r in zip(cotangents, results, strict=True)]
        return list(map(_conj, rule.vjp(needed, given, results, arrays)))
    places = [i for i, r in enumerate(results) if _is_inexact(r)]
    zeros = [torch.zeros_like(a) for a, need in zip(arrays, needed, strict=True) if need]

    def push(*tangents):
        out = rule.jvp(needed, list(tangents), results, arrays)
        return tuple([out[i] for i in places])

    _, pull = torch.func.vjp(push, *zeros)
    return list(pull(tuple([cotangents[i] for i in places])))


def _push(rule, needed, tangents, results, arrays):
    if rule.has_jvp:
        out = rule.jvp(needed, tangents, results, arrays)
        return [t if _is_inexact(r) else None for t, r in zip(out, results, strict=True)]
    places = [i for i, r in enumerate(results) if _is_inexact(r)]

    def pull(*cotangents):
        full = [None] * len(results)
        for i, c in zip(places, cotangents, strict=True):
            full[i] = c
        return tuple(rule.vjp(needed, full, results, arrays))

    # The vjp is linear in the cotangent: its own vjp is the jvp.
    _, push = torch.func.vjp(pull, *[torch.zeros_like(results[i]) for i in places])
    out = [None] * len(results)
    for i, t in zip(places, push(tuple(map(_conj, tangents))), strict=True):
        out[i] = _conj(t)
    return out


def _primal(tensor):
    try:
        return torch.ops.aten._fw_primal(tensor, 0)
    except RuntimeError:
        return tensor.clone()


def _is_inexact(t): return t.is_floating_point() or t.is_complex()
def _conj(t): return t.conj() if t.is_complex() else t
