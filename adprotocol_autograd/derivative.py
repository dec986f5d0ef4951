"""Derivative rules with autograd: one primitive, whose derivatives are those of the rule it is given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from autograd.builtins import tuple as box_tuple
from autograd.core import VJPNode, vspace
from autograd.extend import defjvp_argnums, defvjp_argnums, primitive
from autograd.tracer import Box, getval, isbox, new_box
from numpy import asarray, ndarray

import adprotocol
from adprotocol.extend import Derivative, gradient_prevented
from adprotocol.hookspecs import hookimpl
from adprotocol_autograd import gradient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from adprotocol.extend import DerivativeRule, Outline


@hookimpl
def custom_rule(rule: DerivativeRule, arrays: list[Any]) -> tuple[list[Any], Outline]:
    """Run the function in a primitive of our own, whose derivatives are the rule's."""
    # `outline`, the results without their arrays, is set when the function has run.
    call = SimpleNamespace(rule=rule, outline=None)
    results = _split(_applied(call, *arrays), call.outline)
    return results, call.outline


@primitive  # type: ignore[untyped-decorator]
def _applied(call: SimpleNamespace, *arrays: Any) -> Any:
    results, call.outline = call.rule.fun(arrays)
    if any(map(isbox, results)):
        raise call.rule.hidden_error()
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


class _Derivative(Derivative):
    """The derivative of one call, of values that may be boxed."""

    def __init__(self, argnums: Sequence[int], answer: Any, args: Sequence[Any]) -> None:
        call, arrays = args[0], list(map(_read_only, args[1:]))
        results = list(map(_read_only, _split(answer, call.outline)))
        needed = [i in argnums and gradient.is_inexact(array) for i, array in enumerate(arrays, 1)]
        super().__init__(call.rule, call.outline, needed, results, arrays)
        if self.rule.once:
            refuse_tracked((*results, *arrays), self.rule.once)

    def is_inexact(self, array: Any) -> bool:
        """Return whether what is in the box is."""
        return gradient.is_inexact(array)

    def transpose(self, fun: Callable[[list[Any]], list[Any]], zeros: list[Any]) -> Callable[[list[Any]], list[Any]]:
        """Trace the function from a root for each array."""
        roots = [VJPNode.new_root() for _ in zeros]
        with gradient.NewTrace() as trace:
            end = box_tuple(fun([new_box(zero, trace, root) for zero, root in zip(zeros, roots, strict=True)]))

        def pull(cotangents: list[Any]) -> list[Any]:
            by_root = {}
            if isbox(end) and end._trace == trace:  # noqa: SLF001  (as autograd's own `trace` asks)
                by_root = gradient.backward([(end._node, tuple(cotangents))], frozenset(roots))  # noqa: SLF001
            return [by_root.get(root, zero) for root, zero in zip(roots, zeros, strict=True)]

        return pull

    def in_numpy(self, array: Any) -> Any:
        """Return the array in the box, or a number as an array."""
        return asarray(getval(array))


def _vjp(argnums: Sequence[int], answer: Any, args: Sequence[Any], _kwargs: Any) -> Callable[[Any], list[Any]]:
    def pull(cotangent: Any) -> list[Any]:
        derivative = _Derivative(argnums, answer, args)
        gradients = iter(derivative.backward(list(map(_read_only, _split(cotangent, derivative.outline)))))
        return [
            next(gradients) if derivative.needed[i - 1] else vspace(derivative.arrays[i - 1]).zeros() for i in argnums
        ]

    return pull


def _jvp(argnums: Sequence[int], gs: Sequence[Any], answer: Any, args: Sequence[Any], _kwargs: Any) -> Any:
    derivative = _Derivative(argnums, answer, args)
    flowing = [_read_only(g) for i, g in zip(argnums, gs, strict=True) if derivative.needed[i - 1]]
    tangents = derivative.forward(flowing)
    return tangents[0] if derivative.outline.count == 1 else tuple(tangents)


def _read_only(value: Any) -> Any:
    """Return an argument of a rule as a read-only array: autograd may pass one array to several rules."""
    if type(value) is not ndarray:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


defvjp_argnums(_applied, _vjp)
defjvp_argnums(_applied, _jvp)
