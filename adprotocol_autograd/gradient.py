"""Value and gradient with autograd, for many leaves at once.

``autograd.value_and_grad`` differentiates with respect to one argument. Given a
list it boxes the list, and each item taken from it costs a node whose gradient is a
full-length list of zeros. Here each leaf is itself a root of the trace, so the
graph is the same as for a hand-written function.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode, add_outgrads, vspace
from autograd.tracer import Box, getval, isbox, new_box, toposort, trace_stack
from numpy import asarray, ndarray

from adprotocol.errors import SelectionError
from adprotocol.extend import check_output, map_aux
from adprotocol.messages import full_kind_of

if TYPE_CHECKING:
    from collections.abc import Callable


class _Enclosing(threading.local):
    """The number of the innermost trace that this module opened in this thread."""

    trace = -1


_ENCLOSING = _Enclosing()


def value_and_grad(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any]) -> tuple[Any, Any, list[Any]]:
    """Return the value of ``fun(leaves)``, its auxiliary output, and the gradient for each leaf."""
    leaves = [_boxable(leaf) for leaf in leaves]
    roots = [VJPNode.new_root() for _ in leaves]
    value, aux, end = traced(fun, leaves, roots)
    by_root = {} if end is None else backward(vspace(value).ones(), end, frozenset(roots))
    gradients = [by_root[root] if root in by_root else _zeros(leaf) for root, leaf in zip(roots, leaves, strict=True)]
    return value, aux, _separate(gradients)


class NewTrace:
    """Open a trace, as which it yields a number higher than those of the traces around it.

    autograd counts traces in one global counter, which other threads change meanwhile and
    which an exception leaves too high. A generator would take a microsecond more.
    """

    __slots__ = ("before", "enclosing", "trace")

    def __enter__(self) -> int:
        self.before: int = trace_stack.top
        self.enclosing: int = _ENCLOSING.trace
        self.trace: int = int(1 + max(self.before, self.enclosing))
        trace_stack.top = _ENCLOSING.trace = self.trace
        return self.trace

    def __exit__(self, *_: object) -> None:
        _ENCLOSING.trace = self.enclosing
        if trace_stack.top == self.trace:
            trace_stack.top = self.before


def traced(fun: Callable[[list[Any]], tuple[Any, Any]], leaves: list[Any], roots: list[Any]) -> tuple[Any, Any, Any]:
    """Return value and auxiliary output without boxes of a trace from these roots, and the node of the value."""
    with NewTrace() as trace:
        value, aux = fun([new_box(leaf, trace, root) for leaf, root in zip(leaves, roots, strict=True)])
        check_output(value, getval(value))

    def unboxed(leaf: Any) -> Any:
        return leaf._value if isbox(leaf) and leaf._trace == trace else leaf  # noqa: SLF001  (one level down)

    end = value._node if isbox(value) and value._trace == trace else None  # noqa: SLF001
    return unboxed(value), map_aux(unboxed, aux), end


def backward(cotangent: Any, end: Any, roots: frozenset[Any]) -> dict[Any, Any]:
    """Return the gradients at the roots, as ``autograd.core.backward_pass`` does for one root."""
    outgrads: dict[Any, Any] = {end: (cotangent, False)}
    gradients: dict[Any, Any] = {}
    for node in toposort(end):
        outgrad, _ = outgrads.pop(node)
        if node in roots:
            gradients[node] = outgrad
            continue
        for parent, ingrad in zip(node.parents, node.vjp(outgrad), strict=True):
            outgrads[parent] = add_outgrads(outgrads.get(parent), ingrad)
    return gradients


def _separate(gradients: list[Any]) -> list[Any]:
    """Copy gradients that share memory: the terms of a sum do, and an update may write in place."""
    if len(gradients) == 1:
        return gradients
    seen: set[int] = set()
    for i, gradient in enumerate(gradients):
        if type(gradient) is ndarray:
            owner = gradient if gradient.base is None else gradient.base
            if id(owner) in seen:
                gradients[i] = gradient.copy()
            seen.add(id(owner))
    return gradients


def _boxable(leaf: Any) -> Any:
    """Convert a leaf to a type that autograd boxes."""
    if type(leaf) in Box.type_mappings:
        return leaf
    if isinstance(leaf, (float, complex)):
        return float(leaf) if isinstance(leaf, float) else complex(leaf)
    if isinstance(leaf, ndarray):
        msg = (
            f"autograd cannot differentiate with respect to {full_kind_of(leaf)}. Pass a plain numpy.ndarray, or "
            "freeze it with where="
        )
        raise SelectionError(msg)
    return asarray(leaf)  # a NumPy scalar of a rare dtype


def _zeros(leaf: Any) -> Any:
    zeros = vspace(leaf).zeros()
    return zeros if isinstance(getval(leaf), ndarray) else zeros[()]


def is_inexact(value: Any) -> bool:
    """Return whether a value, boxed or not, is a real or complex floating number or an array of such."""
    raw = getval(value)
    dtype = getattr(raw, "dtype", None)
    if dtype is None:
        return isinstance(raw, (float, complex))
    if dtype.kind == "O":
        return any(map(is_inexact, raw.reshape(-1).tolist()))
    return dtype.kind in "fc"


class ArrayFunctions:
    """The functions for `adprotocol.where`."""

    argmax: Any = staticmethod(np.argmax)
    take: Any = staticmethod(np.take)
    conj: Any = staticmethod(anp.conj)

    @staticmethod
    def where(mask: Any, one: Any, other: Any) -> Any:
        """Choose elementwise; autograd differentiates its own ``where`` wrongly for a box that is broadcast."""
        if isbox(one) or isbox(other):
            shape = np.broadcast_shapes(*map(np.shape, (mask, one, other)))
            one, other = (x + np.zeros(shape, bool) if isbox(x) and x.shape != shape else x for x in (one, other))
        return anp.where(mask, one, other)
