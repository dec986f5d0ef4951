"""Derivatives by a rule on tensors, and the rule of a batch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from adprotocol.errors import GradientPreventedError, RuleError
from adprotocol.extend import Derivative
from adprotocol_torch import internals
from adprotocol_torch.internals import NO_LEVEL, below_levels, functorch_is_active, level_of, version_of
from adprotocol_torch.tensors import as_like, is_float, on_device
from adprotocol_torch.tracking import within_gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import Outline

Tensors = list[torch.Tensor]
T = TypeVar("T")


def unchanged(tensors: Sequence[torch.Tensor], run: Callable[[], T], message: str) -> T:
    """Return what a function returns, which must not change one of the tensors in place."""
    before = list(map(version_of, tensors))
    returned = run()
    if before != list(map(version_of, tensors)):
        raise RuleError(message)
    return returned


class TensorDerivative(Derivative):
    """The derivative of one call, of tensors."""

    # Whether the rule returned an array of NumPy.
    has_left: bool = False

    def like(self, value: Any, array: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the dtype, on the device; zeros for None."""
        self.has_left = self.has_left or (hasattr(value, "dtype") and not isinstance(value, torch.Tensor))
        return as_like(value, array)

    def is_inexact(self, array: torch.Tensor) -> bool:
        """Return whether the dtype is."""
        return is_float(array)

    def transpose(self, fun: Callable[[Tensors], Tensors], zeros: Tensors) -> Callable[[Tensors], Tensors]:
        """Record the function in torch.func, which conjugates."""
        with internals.without_saved_tensor_hooks():
            pull: Any = torch.func.vjp(lambda *values: tuple(fun(list(values))), *zeros)[1]
        return lambda cotangents: _conjugates(pull(tuple(_conjugates(cotangents))))

    def holds(self, condition: Any) -> bool:
        """Look at all rows of a batch."""
        return bool(below_levels(torch.as_tensor(condition)).all())

    def concrete(self) -> TensorDerivative | None:
        """Return another of these values, which is given arrays of NumPy; in a trace there are no values."""
        if internals.is_traced(list(map(below_levels, [*self.arrays, *self.results]))):
            return None
        return TensorDerivative(self.rule, self.outline, self.needed, self.results, self.arrays)

    def pull(self, cotangents: Tensors) -> Tensors:
        """Return the gradients; PyTorch's are the conjugates of those of rules, and so are its cotangents."""
        gradients = self._applied(cotangents, lambda: _conjugates(self.backward(_conjugates(cotangents))))
        if self.has_left:
            # torch.func records each level, and the rule's own is the innermost.
            given = [*cotangents, *self.results, *self.arrays]
            self._refuse_numpy([one if level_of(one) == NO_LEVEL else internals.unwrapped(one) for one in given])
        return self._differentiated_once(gradients)

    def push(self, tangents: Tensors) -> Tensors:
        """Return the tangents of the results."""
        pushed = self._applied(tangents, lambda: self.forward(tangents))
        if self.has_left:
            self._refuse_numpy([*tangents, *self.results, *self.arrays])
        return self._differentiated_once(pushed)

    def _refuse_numpy(self, given: Tensors) -> None:
        if any(map(within_gradient, given)):
            raise RuleError(
                f"a derivative rule of {self.rule.name} returned an array of NumPy for tensors that are differentiated "
                "again, so that this derivative would be lost; compute with tensors in the rule, or make the rule a "
                "host function, which is differentiated once"
            )

    def _applied(self, flowing: Tensors, rule: Callable[[], Tensors]) -> Tensors:
        # Others compute with these: a cotangent of several terms is one tensor.
        message = f"a derivative rule of {self.rule.name} changes in place what it was given; change a copy"
        return unchanged((*flowing, *self.arrays, *self.results), rule, message)

    def _differentiated_once(self, values: Tensors) -> Tensors:
        """Refuse a derivative of what a rule returned by what its function was given, on which the results depend."""
        message = self.rule.once
        if not message or not (torch.is_grad_enabled() or functorch_is_active() or internals.is_in_forward_mode()):
            return values
        refusal = functools.partial(GradientPreventedError, message)
        return list(Refusing.apply(refusal, len(values), *values, *self.outputs))  # type: ignore[no-untyped-call]


def as_results(returned: Sequence[Any], arrays: Sequence[torch.Tensor]) -> Tensors:
    """Return what a function returned as tensors; a Python number in the precision of its arguments."""
    return [value if isinstance(value, torch.Tensor) else _as_result(value, arrays) for value in returned]


def _as_result(value: Any, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    dtypes = [array.dtype for array in arrays if array.dtype.is_floating_point or array.dtype.is_complex]
    dtype = None
    if dtypes and not hasattr(value, "dtype"):  # NumPy's have a precision
        dtype = dtypes[0].to_complex() if isinstance(value, complex) else dtypes[0].to_real()
    return on_device(value, dtype, arrays[0].device)


def _conjugates(values: Sequence[torch.Tensor]) -> Tensors:
    # Not by views, which NumPy does not take.
    return [torch.conj_physical(value) if value.is_complex() else value for value in values]


class Refusing(torch.autograd.Function):
    """Values, and results that no derivative may reach through them, if it is not zero, as it is after a sign."""

    generate_vmap_rule = True

    @staticmethod
    def forward(_refusal: Callable[[], Exception], count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the values, the first `count` of the tensors; the others are those results."""
        return tuple([value.view_as(value) for value in tensors[:count]])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004  (PyTorch's signature)
        """Keep the error, and how many values there are."""
        ctx.refusal, ctx.count = inputs[:2]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        """Pass the cotangents on, or refuse them."""
        others = ctx.needs_input_grad[2 + ctx.count :]
        if any(others) and any(one is not None and bool((below_levels(one) != 0).any()) for one in cotangents):
            raise ctx.refusal()
        return (None, None, *cotangents, *[None] * len(others))

    @staticmethod
    def jvp(ctx: Any, _refusal: None, _count: None, *tangents: torch.Tensor | None) -> Any:
        """Pass the tangents on, or refuse those of the results."""
        if any(tangent is not None for tangent in tangents[ctx.count :]):
            raise ctx.refusal()
        return tuple([None if one is None else one.view_as(one) for one in tangents[: ctx.count]])


class BatchedRule:
    """A rule for all rows of a batch: arrays have it at the given axes, results first."""

    def __init__(self, rule: Any, axes: Sequence[int | None], randomness: str) -> None:
        self.rule = rule
        self.axes: list[int | None] = list(axes)
        self.randomness = randomness

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rule, name)

    def fun(self, arrays: Tensors) -> tuple[Tensors, Outline]:
        """Run the function on all rows at once."""
        outlines: list[Outline] = []

        def run(arrays: Tensors) -> Tensors:
            returned, outline = self.rule.fun(arrays)
            if outline.objects:
                raise RuleError(
                    f"{self.rule.name} returned {outline.objects} as residuals under torch.vmap, which cannot be "
                    "batched; return structures of tensors as residuals, or call it in a loop"
                )
            outlines.append(outline)
            return as_results(returned, arrays)

        return self._batched(run, 0, (arrays, self.axes)), outlines[0]

    def vjp(
        self, needed: Sequence[bool], cotangents: Tensors, results: Tensors, outline: Outline, arrays: Tensors
    ) -> Tensors:
        """Return the gradients; for an array that all rows share, the sum of theirs."""
        axes = [axis for axis, need in zip(self.axes, needed, strict=True) if need]

        def run(cotangents: Tensors, results: Tensors, arrays: Tensors) -> Tensors:
            return TensorDerivative(self.rule, outline, needed, results, arrays).backward(cotangents)

        batches = ((cotangents, 0), (results, 0), (arrays, self.axes))
        returned = self._batched(run, [axis or 0 for axis in axes], *batches)
        return [one.sum(0) if axis is None else one for one, axis in zip(returned, axes, strict=True)]

    def jvp(self, tangents: Sequence[Any], results: Tensors, outline: Outline, arrays: Tensors) -> Tensors:
        """Return the tangents of the results."""

        def run(tangents: Sequence[Any], results: Tensors, arrays: Tensors) -> Tensors:
            pushed = self.rule.jvp(tangents, results, outline, arrays)
            return list(map(as_like, pushed, results))

        axes = [None if one is None else axis for one, axis in zip(tangents, self.axes, strict=True)]
        return self._batched(run, 0, (tangents, axes), (results, 0), (arrays, self.axes))

    def _batched(self, run: Callable[..., Tensors], out_dims: Any, *batches: tuple[Sequence[Any], Any]) -> Tensors:
        lists, axes = zip(*batches, strict=True)
        return torch.vmap(run, axes, out_dims, self.randomness)(*map(list, lists))
