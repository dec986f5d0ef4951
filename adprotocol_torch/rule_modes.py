"""Reverse and forward mode by a derivative rule, by the one that it has or by the transpose of the other; and vmap.

PyTorch's cotangents are the conjugates of those that a rule gets and returns.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

from adprotocol.errors import GradientPreventedError, RuleError
from adprotocol.extend import check_transpose, transposing
from adprotocol_torch import internals
from adprotocol_torch.internals import functorch_is_active, version_of
from adprotocol_torch.tracking import below_levels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from adprotocol.extend import Outline

Tensors = list[torch.Tensor]


class Rule(Protocol):
    """An `adprotocol.extend.DerivativeRule`, or what takes its place under vmap."""

    name: str
    has_vjp: bool
    has_jvp: bool
    reads: Sequence[bool]
    reads_results: bool
    once: str
    linear: set[tuple[Any, ...]] | None

    def fun(self, arrays: Any, /) -> tuple[list[Any], Any]:
        """Run the function."""

    def vjp(self, needed: Any, cotangents: Any, results: Any, outline: Any, arrays: Any, /) -> list[Any]:
        """Return the gradient for each of the arrays that is needed."""

    def jvp(self, tangents: Any, results: Any, outline: Any, arrays: Any, /) -> list[Any]:
        """Return the tangents of the results that are differentiated."""


class Values(NamedTuple):
    """What a call of a function with a rule was given and returned."""

    arrays: Tensors
    results: Tensors
    outline: Outline

    @property
    def moving(self) -> Tensors:
        """Return the results that are differentiated."""
        return self.results[: self.outline.count]


@contextlib.contextmanager
def unchanged(tensors: Sequence[torch.Tensor], message: str) -> Iterator[None]:
    """Refuse a block that changes one of the tensors in place."""
    versions = list(map(version_of, tensors))
    yield
    if versions != list(map(version_of, tensors)):
        raise RuleError(message)


def _refuse_changes(rule: Rule, flowing: Sequence[torch.Tensor | None], values: Values) -> AbstractContextManager[None]:
    # Others compute with these: a cotangent of several terms is one tensor.
    tensors = [one for one in (*flowing, *values.arrays, *values.results) if one is not None]
    return unchanged(tensors, f"a derivative rule of {rule.name} changes in place what it was given; change a copy")


def pull(rule: Rule, needed: list[bool], cotangents: Tensors, values: Values) -> Tensors:
    """Return the gradient for each array that is needed."""
    arrays, results, outline = values
    moving = [array for array, need in zip(arrays, needed, strict=True) if need]
    with _refuse_changes(rule, cotangents, values):
        if rule.has_vjp:
            returned = rule.vjp(needed, list(map(_conjugate, cotangents)), results, outline, arrays)
            gradients = list(map(_conjugate, as_gradients(returned, moving)))
        else:

            def forward(*tangents: torch.Tensor) -> list[Any]:
                each = iter(tangents)
                full = [next(each) if need else _zeros(array) for array, need in zip(arrays, needed, strict=True)]
                return rule.jvp(full, results, outline, arrays)

            gradients = _transposed(rule, needed, forward, moving, values.moving, cotangents)
    return _once(rule.once, gradients, values.moving)


def push(rule: Rule, tangents: Sequence[torch.Tensor | None], values: Values) -> Tensors:
    """Return the tangent of each result; `tangents` has None for an array that has none."""
    arrays, results, outline = values
    with _refuse_changes(rule, tangents, values):
        if rule.has_jvp:
            full = [_zeros(array) if one is None else one for array, one in zip(arrays, tangents, strict=True)]
            pushed = as_gradients(rule.jvp(full, results, outline, arrays), values.moving)
        else:
            needed = [one is not None for one in tangents]
            moving = [array for array, need in zip(arrays, needed, strict=True) if need]

            def backward(*cotangents: torch.Tensor) -> list[Any]:
                return rule.vjp(needed, list(cotangents), results, outline, arrays)

            conjugates = [_conjugate(one) for one in tangents if one is not None]
            pushed = list(map(_conjugate, _transposed(rule, needed, backward, values.moving, moving, conjugates)))
    return _once(rule.once, pushed, values.moving)


def _transposed(  # noqa: PLR0913, PLR0917
    rule: Rule, needed: list[bool], fun: Callable[..., list[Any]], likes: Tensors, targets: Tensors, cotangents: Tensors
) -> Tensors:
    """Return the transpose of a linear function, which is the same at all points, applied to cotangents.

    It is from tensors like `likes` to those like `targets`.
    """

    def linear(*values: torch.Tensor) -> Tensors:
        return as_gradients(fun(*values), targets)

    with internals.without_saved_tensor_hooks(), transposing(rule):
        pull: Any = torch.func.vjp(lambda *values: tuple(linear(*values)), *map(torch.zeros_like, likes))[1]
        transposed = list(pull(tuple(cotangents)))
        if not internals.is_traced(list(map(below_levels, transposed))):
            check_transpose(
                rule,
                needed,
                lambda values: linear(*values),
                lambda weights: pull(tuple(weights)),
                likes,
                targets,
                _probe,
                lambda condition: bool(below_levels(torch.as_tensor(condition)).all()),
            )
    return transposed


def _probe(array: torch.Tensor, shift: float) -> torch.Tensor:
    numbers = torch.arange(array.numel(), device=array.device, dtype=torch.float32)
    return torch.cos(numbers + shift).reshape(array.shape).to(array.dtype)


def as_results(returned: Sequence[Any], arrays: Sequence[torch.Tensor]) -> Tensors:
    """Return what a function returned as tensors; a Python number in the precision of its arguments."""
    return [value if isinstance(value, torch.Tensor) else _as_result(value, arrays) for value in returned]


def _as_result(value: Any, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
    dtypes = [array.dtype for array in arrays if array.dtype.is_floating_point or array.dtype.is_complex]
    dtype = None
    if dtypes and not hasattr(value, "dtype"):  # NumPy's have a precision
        dtype = dtypes[0].to_complex() if isinstance(value, complex) else dtypes[0].to_real()
    return torch.as_tensor(value, dtype=dtype, device=arrays[0].device)


def as_gradients(returned: Sequence[Any], arrays: Sequence[torch.Tensor]) -> Tensors:
    """Return what a rule returned for some arrays or results as tensors of their dtypes; None is zeros."""
    return [_as_like(value, array) for value, array in zip(returned, arrays, strict=True)]


def _as_like(value: Any, like: torch.Tensor) -> torch.Tensor:
    if value is None:
        return torch.zeros_like(like)
    if isinstance(value, torch.Tensor):
        return value.to(like.dtype)
    return torch.as_tensor(value, dtype=like.dtype, device=like.device)


def _zeros(array: torch.Tensor) -> torch.Tensor | None:
    return torch.zeros_like(array) if array.is_floating_point() or array.is_complex() else None


def _conjugate(value: torch.Tensor) -> torch.Tensor:
    # Not by a view, which NumPy does not take.
    return torch.conj_physical(value) if value.is_complex() else value


def _once(message: str, values: Tensors, results: Tensors) -> Tensors:
    """Refuse a derivative of what a rule returned by what its function was given, on which the results depend."""
    if not message or not (torch.is_grad_enabled() or functorch_is_active() or internals.is_in_forward_mode()):
        return values
    return list(_Once.apply(message, len(values), *values, *results))  # type: ignore[no-untyped-call]


class _Once(torch.autograd.Function):
    """Values, and results that no derivative may reach through them."""

    generate_vmap_rule = True

    @staticmethod
    def forward(_message: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple([value.view_as(value) for value in tensors[:count]])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:  # noqa: ARG004  (PyTorch's signature)
        ctx.message, ctx.count = inputs[:2]

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        others = ctx.needs_input_grad[2 + ctx.count :]
        if any(others):
            raise GradientPreventedError(ctx.message)
        return (None, None, *cotangents, *[None] * len(others))

    @staticmethod
    def jvp(ctx: Any, _message: None, _count: None, *tangents: torch.Tensor | None) -> Any:
        if any(tangent is not None for tangent in tangents[ctx.count :]):
            raise GradientPreventedError(ctx.message)
        return tuple([None if one is None else one.view_as(one) for one in tangents[: ctx.count]])


class BatchedRule:
    """As `adprotocol.extend.DerivativeRule`, of arrays that have a batch at the given axes; results have it first."""

    def __init__(self, rule: Rule, axes: Sequence[int | None], randomness: str) -> None:
        self.rule = rule
        self.axes: list[int | None] = list(axes)
        self.randomness = randomness
        self.name: str = rule.name
        self.has_vjp: bool = rule.has_vjp
        self.has_jvp: bool = rule.has_jvp
        self.once: str = rule.once
        self.reads: Sequence[bool] = rule.reads
        self.reads_results: bool = rule.reads_results
        self.linear: set[tuple[Any, ...]] | None = rule.linear

    def fun(self, arrays: Tensors) -> tuple[Tensors, Outline]:
        """Run the function on all rows at once."""
        outlines: list[Outline] = []

        def run(arrays: Tensors) -> Tensors:
            returned, outline = self.rule.fun(arrays)
            if outline.objects:
                msg = (
                    f"{self.name} returned {outline.objects} as residuals under torch.vmap, which cannot be batched; "
                    "return structures of tensors as residuals, or call it in a loop"
                )
                raise RuleError(msg)
            outlines.append(outline)
            return as_results(returned, arrays)

        return self._batched(run, 0, (arrays, self.axes)), outlines[0]

    def vjp(
        self, needed: Sequence[bool], cotangents: Tensors, results: Tensors, outline: Outline, arrays: Tensors
    ) -> Tensors:
        """Return the gradients; for an array that all rows share, the sum of theirs."""
        axes = [axis for axis, need in zip(self.axes, needed, strict=True) if need]

        def run(cotangents: Tensors, results: Tensors, arrays: Tensors) -> Tensors:
            returned = self.rule.vjp(needed, cotangents, results, outline, arrays)
            return as_gradients(returned, [array for array, need in zip(arrays, needed, strict=True) if need])

        batches = ((cotangents, 0), (results, 0), (arrays, self.axes))
        returned = self._batched(run, [axis or 0 for axis in axes], *batches)
        return [one.sum(0) if axis is None else one for one, axis in zip(returned, axes, strict=True)]

    def jvp(self, tangents: Sequence[Any], results: Tensors, outline: Outline, arrays: Tensors) -> Tensors:
        """Return the tangents of the results."""

        def run(tangents: Sequence[Any], results: Tensors, arrays: Tensors) -> Tensors:
            return as_gradients(self.rule.jvp(tangents, results, outline, arrays), results[: outline.count])

        axes = [None if one is None else axis for one, axis in zip(tangents, self.axes, strict=True)]
        return self._batched(run, 0, (tangents, axes), (results, 0), (arrays, self.axes))

    def _batched(self, run: Callable[..., Tensors], out_dims: Any, *batches: tuple[Sequence[Any], Any]) -> Tensors:
        lists, axes = zip(*batches, strict=True)
        return torch.vmap(run, axes, out_dims, self.randomness)(*map(list, lists))
