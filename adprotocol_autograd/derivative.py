"""Derivative rules with autograd: one primitive, whose derivatives are those of the rule it is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from autograd.builtins import tuple as box_tuple
from autograd.core import VJPNode, vspace
from autograd.extend import defjvp_argnums, defvjp_argnums, primitive
from autograd.tracer import Box, getval, isbox, new_box
from numpy import arange, asarray, cos, ndarray, shape, size

import adprotocol
from adprotocol.extend import check_transpose, gradient_prevented, hidden_error, transposing
from adprotocol_autograd import gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


def apply(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Return the results of the function, boxed if an array is."""
    # `outline`, the results without their arrays, is set when the function has run.
    call = SimpleNamespace(rule=rule, outline=None)
    results = _split(_applied(call, *arrays), call.outline)
    return results, call.outline


@primitive  # type: ignore[untyped-decorator]
def _applied(call: SimpleNamespace, *arrays: Any) -> Any:
    results, call.outline = call.rule.fun(arrays)
    if any(map(isbox, results)):
        raise hidden_error(call.rule.name)
    results = [result if type(result) in Box.type_mappings else asarray(result) for result in results]
    return results[0] if len(results) == 1 else tuple(results)


def _split(value: Any, outline: Outline) -> list[Any]:
    """Return the results as a list; the primitive returns a single one by itself."""
    return [value] if outline.count == 1 else [value[i] for i in range(outline.count)]


def refuse_tracked(arrays: Sequence[Any], message: str) -> None:
    """Raise the error with `message` for the first array that is differentiated."""
    for array in arrays:
        if isbox(array) and adprotocol.within_gradient(array):
            raise gradient_prevented(array, message, f"autograd: {adprotocol.explain(array)}")


class _Derivative:
    """The derivative of one call by some of its arrays, as linear functions of cotangents or of tangents."""

    def __init__(self, argnums: Sequence[int], answer: Any, args: Sequence[Any]) -> None:
        call, self.arrays = args[0], list(map(_read_only, args[1:]))
        self.rule, self.outline = call.rule, call.outline
        self.results = list(map(_read_only, _split(answer, self.outline)))
        self.needed = [i in argnums and gradient.is_inexact(array) for i, array in enumerate(self.arrays, 1)]
        self.likes = [array for array, need in zip(self.arrays, self.needed, strict=True) if need]
        if self.rule.once:
            refuse_tracked((*self.results, *self.arrays), self.rule.once)

    def backward(self, cotangents: list[Any]) -> list[Any]:
        """Return the gradients of the arrays that are needed."""
        if self.rule.has_vjp:
            cotangents = list(map(_read_only, cotangents))
            gradients = self.rule.vjp(self.needed, cotangents, self.results, self.outline, self.arrays)
        else:
            gradients = self._transposed(self.forward, self.likes, self.results, cotangents)
        return [_as_like(gradient, like) for gradient, like in zip(gradients, self.likes, strict=True)]

    def forward(self, nonzero: list[Any]) -> list[Any]:
        """Return the tangents of the results, given those of the arrays that are needed."""
        if self.rule.has_jvp:
            remaining = iter(nonzero)
            tangents = [
                _read_only(next(remaining)) if need else vspace(array).zeros() if gradient.is_inexact(array) else None
                for array, need in zip(self.arrays, self.needed, strict=True)
            ]
            pushed = self.rule.jvp(tangents, self.results, self.outline, self.arrays)
        else:
            # The vjp is linear in the cotangent, so that its own transpose is the jvp.
            pushed = self._transposed(self.backward, self.results, self.likes, nonzero)
        return [_as_like(tangent, result) for tangent, result in zip(pushed, self.results, strict=True)]

    def _transposed(
        self, fun: Callable[[list[Any]], list[Any]], likes: list[Any], targets: list[Any], cotangents: Sequence[Any]
    ) -> list[Any]:
        """Return the transpose of a linear function of several arrays, applied to cotangents."""
        zeros = [vspace(like).zeros() for like in likes]
        roots = [VJPNode.new_root() for _ in zeros]

        def pull(cotangents: Sequence[Any]) -> list[Any]:
            found = {}
            if isbox(end) and end._trace == trace:  # noqa: SLF001  (as autograd's own `trace` asks)
                found = gradient.backward(tuple(cotangents), end._node, frozenset(roots))  # noqa: SLF001
            return [found.get(root, zero) for root, zero in zip(roots, zeros, strict=True)]

        with transposing(self.rule):
            with gradient.NewTrace() as trace:
                end = box_tuple(fun([new_box(zero, trace, root) for zero, root in zip(zeros, roots, strict=True)]))
            check_transpose(
                self.rule,
                self.needed,
                lambda values: _unboxed(fun(values)),
                lambda weights: _unboxed(pull(weights)),
                zeros,
                list(map(getval, targets)),
                lambda like, shift: asarray(cos(arange(size(like)) + shift).reshape(shape(like)), asarray(like).dtype),
                bool,
            )
        return pull(cotangents)


def _vjp(argnums: Sequence[int], answer: Any, args: Sequence[Any], _kwargs: Any) -> Callable[[Any], list[Any]]:
    def pull(cotangent: Any) -> list[Any]:
        derivative = _Derivative(argnums, answer, args)
        gradients = iter(derivative.backward(_split(cotangent, derivative.outline)))
        return [
            next(gradients) if derivative.needed[i - 1] else vspace(derivative.arrays[i - 1]).zeros() for i in argnums
        ]

    return pull


def _jvp(argnums: Sequence[int], gs: Sequence[Any], answer: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    derivative = _Derivative(argnums, answer, args)
    tangents = derivative.forward([g for i, g in zip(argnums, gs, strict=True) if derivative.needed[i - 1]])
    return tangents[0] if derivative.outline.count == 1 else tuple(tangents)


def _unboxed(values: Sequence[Any]) -> list[Any]:
    return [asarray(getval(value)) for value in values]


def _read_only(value: Any) -> Any:
    """Return an argument of a rule as a read-only array: autograd may pass one array to several rules."""
    if type(value) is not ndarray:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def _as_like(value: Any, array: Any) -> Any:
    """Return a gradient or tangent with the dtype of its array; zeros for None."""
    if value is None:
        return vspace(array).zeros()
    raw = getval(array)
    dtype = asarray(raw).dtype
    if not hasattr(value, "dtype"):  # NumPy takes the dtype None for float64
        return value if type(value) is type(raw) else asarray(value, dtype)[... if type(raw) is ndarray else ()]
    if type(value) is ndarray and not value.flags.writeable:  # an argument of the rule, or a view of it
        return value.astype(dtype)
    return value if value.dtype == dtype else value.astype(dtype)


defvjp_argnums(_applied, _vjp)
defjvp_argnums(_applied, _jvp)
