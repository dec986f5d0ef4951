"""Derivatives with autograd, for many leaves at once.

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
from autograd.core import JVPNode, VJPNode, add_outgrads, vspace
from autograd.tracer import Box, getval, isbox, new_box, toposort, trace_stack
from numpy import asarray, ndarray

from adprotocol.errors import SelectionError
from adprotocol.hookspecs import hookimpl
from adprotocol.messages import full_kind_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Function = Callable[[list[Any]], tuple[list[Any], list[Any]]]


class _Enclosing(threading.local):
    """The number of the innermost trace that this module opened in this thread."""

    trace = -1


_ENCLOSING = _Enclosing()


@hookimpl
def vjp(
    fun: Function,
    leaves: list[Any],
    once: bool,  # noqa: ARG001, FBT001  (the signature of the hook)
) -> tuple[list[Any], list[Any], Callable[..., list[Any]]]:
    """Return the outputs of ``fun(leaves)``, the others, and the function that pulls cotangents back."""
    leaves = [_boxable(leaf) for leaf in leaves]
    roots = [VJPNode.new_root() for _ in leaves]
    outputs, others, ends = traced(fun, leaves, roots)
    known = frozenset(roots)

    def pull(cotangents: list[Any] | None) -> list[Any]:
        flowing = cotangents or [vspace(outputs[0]).ones()]
        pairs = [(end, ct) for end, ct in zip(ends, flowing, strict=True) if end is not None and ct is not None]
        by_root = backward(pairs, known) if pairs else {}
        gradients = [
            _of_dtype(by_root[root], leaf) if root in by_root else _zeros(leaf)
            for root, leaf in zip(roots, leaves, strict=True)
        ]
        return _separate(gradients, cotangents or [])

    return outputs, others, pull


@hookimpl
def jvp(fun: Function, leaves: list[Any], tangents: list[Any]) -> Any:
    """Return the outputs of ``fun(leaves)``, the others, and the tangents of the outputs."""
    leaves = [_boxable(leaf) for leaf in leaves]
    try:
        outputs, others, ends = traced(fun, leaves, list(map(JVPNode.new_root, tangents)))
    except NotImplementedError:  # 89 of the 216 operations of autograd have no rule for forward mode
        return NotImplemented
    moved = [_zeros(y) if end is None else end.g for y, end in zip(outputs, ends, strict=True)]
    return outputs, others, _separate(moved, tangents)


# until https://github.com/HIPS/autograd/pull/659: threads share the counter of traces. An exception leaves it too high.
class NewTrace:
    """Open a trace and yield its number, which is higher than those of the traces around it.

    A generator would take a microsecond more.
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


def traced(fun: Function, leaves: list[Any], roots: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return outputs and others without boxes of a trace from these roots, and the nodes of the outputs."""
    with NewTrace() as trace:
        outputs, others = fun([new_box(leaf, trace, root) for leaf, root in zip(leaves, roots, strict=True)])

    def unboxed(leaf: Any) -> Any:
        return leaf._value if isbox(leaf) and leaf._trace == trace else leaf  # noqa: SLF001  (one level down)

    ends = [y._node if isbox(y) and y._trace == trace else None for y in outputs]  # noqa: SLF001
    return list(map(unboxed, outputs)), list(map(unboxed, others)), ends


def backward(pairs: list[tuple[Any, Any]], roots: frozenset[Any]) -> dict[Any, Any]:
    """Return the gradients at the roots, given nodes with their cotangents.

    As ``autograd.core.backward_pass`` does for one root and one node.
    """
    outgrads: dict[Any, Any] = {}
    if len(pairs) == 1:
        [(end, cotangent)] = pairs
        outgrads[end] = cotangent, False
    else:
        end = VJPNode.new_root()
        end.parents, end.vjp = [node for node, _ in pairs], lambda _: [cotangent for _, cotangent in pairs]
        outgrads[end] = None, False
    gradients: dict[Any, Any] = {}
    for node in toposort(end):
        outgrad, _ = outgrads.pop(node)
        if node in roots:
            gradients[node] = outgrad
            continue
        for parent, ingrad in zip(node.parents, node.vjp(outgrad), strict=True):
            outgrads[parent] = add_outgrads(outgrads.get(parent), ingrad)
    return gradients


def _separate(gradients: list[Any], given: list[Any]) -> list[Any]:
    """Copy gradients that share memory, with what was given too: terms of a sum do, and an update writes in place."""
    if len(gradients) == 1 and not given:
        return gradients
    seen = {id(_owner(array)) for array in given if type(array) is ndarray}
    for i, gradient in enumerate(gradients):
        if type(gradient) is ndarray:
            owner = _owner(gradient)
            if id(owner) in seen:
                gradients[i] = gradient.copy()
            seen.add(id(owner))
    return gradients


def _owner(array: Any) -> Any:
    return array if array.base is None else array.base


def _boxable(leaf: Any) -> Any:
    """Convert a leaf to a type that autograd boxes."""
    if type(leaf) in Box.type_mappings:
        return leaf
    if isinstance(leaf, (float, complex)):
        return float(leaf) if isinstance(leaf, float) else complex(leaf)
    if isinstance(leaf, ndarray):
        raise SelectionError(
            f"autograd cannot differentiate with respect to {full_kind_of(leaf)}. Pass a plain numpy.ndarray, or "
            "freeze it with where="
        )
    return asarray(leaf)  # a NumPy scalar of a rare dtype


def as_like(value: Any, like: Any) -> Any:
    """Return a cotangent, a tangent, or what a rule returned, with the dtype of an array; zeros for None."""
    if value is None:
        return vspace(like).zeros()
    raw = getval(like)
    dtype = asarray(raw).dtype
    if not hasattr(value, "dtype"):  # NumPy takes the dtype None for float64
        if type(getval(value)) is type(raw):
            return value
        return anp.array(value, dtype)[... if type(raw) is ndarray else ()]
    if type(value) is ndarray and not value.flags.writeable:  # an argument of the rule, or a view of it
        return value.astype(dtype)
    return value if value.dtype == dtype else value.astype(dtype)


def _of_dtype(gradient: Any, leaf: Any) -> Any:
    """Return a gradient in the dtype of its leaf: beside arrays of a wider one autograd computes it in that."""
    found, due = getattr(gradient, "dtype", None), getattr(leaf, "dtype", None)
    if found is None or due is None:  # which NumPy takes for float64
        return gradient
    return gradient if found == due or found.kind != due.kind else gradient.astype(due)


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
    """The functions for `adprotocol.where` and `adprotocol.jacobian`."""

    argmax: Any = staticmethod(np.argmax)
    take: Any = staticmethod(np.take)
    conj: Any = staticmethod(anp.conj)
    stack: Any = staticmethod(anp.stack)
    moveaxis: Any = staticmethod(anp.moveaxis)
    reshape: Any = staticmethod(anp.reshape)
    as_like: Any = staticmethod(as_like)

    @staticmethod
    def basis(array: Any, count: int, start: int) -> Any:
        """Return arrays like this one, of which number ``start + i`` has 1 at element i, and 0 elsewhere."""
        raw = np.asarray(getval(array))
        return np.eye(count, raw.size, -start, raw.dtype).reshape(count, *raw.shape)

    @staticmethod
    def where(mask: Any, one: Any, other: Any) -> Any:
        """Choose elementwise; autograd differentiates its own ``where`` wrongly for a box that is broadcast."""
        if isbox(one) or isbox(other):
            shape = np.broadcast_shapes(*map(np.shape, (mask, one, other)))
            one, other = (x + np.zeros(shape, bool) if isbox(x) and x.shape != shape else x for x in (one, other))
        return anp.where(mask, one, other)
