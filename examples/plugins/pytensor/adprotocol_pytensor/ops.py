"""The operations that the plugin puts into a graph.

A graph of PyTensor is differentiated after it is built, so an answer cannot be known
where it is asked for. `WithinGradient` keeps the question in the graph, and
`adprotocol_pytensor.resolution` answers it where a gradient is taken. All of them
are views or constants, and a rewrite removes them when a function is compiled.
"""

# ruff: noqa: D102  (the methods are those of pytensor.graph.op.Op, which documents them)

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytensor.tensor as pt
from pytensor.gradient import DisconnectedType, disconnected_type
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import _vectorize_node
from pytensor.ifelse import IfElse
from pytensor.tensor.type import TensorType, continuous_dtypes
from pytensor.tensor.variable import TensorVariable

from adprotocol.errors import UndecidableError
from adprotocol.extend import gradient_prevented

if TYPE_CHECKING:
    from collections.abc import Sequence

BOOL = TensorType("bool", ())
ONE_WAY = "branch on it with adprotocol.cond: the graph is differentiated after it is built, so no bool is known here"


def dtype_of(value: Variable) -> str | None:
    """Return the dtype of a variable or of the items of a typed list, None for a type without one."""
    item = getattr(value.type, "ttype", value.type)
    dtype: str | None = getattr(item, "dtype", None)
    return dtype


def is_continuous(value: Variable) -> bool:
    """Return whether a derivative can go through a variable: floating-point and complex dtypes."""
    return dtype_of(value) in continuous_dtypes


def is_disconnected(value: Variable) -> bool:
    """Return whether a cotangent or tangent is PyTensor's mark for none at all."""
    return isinstance(value.type, DisconnectedType)


class Answer(TensorVariable):
    """A boolean scalar that is True in the graph of a gradient and False elsewhere."""

    def __bool__(self) -> bool:
        msg = f"within_gradient has no bool for a PyTensor graph; {ONE_WAY}"
        raise UndecidableError(msg)

    def __or__(self, other: Any) -> Any:
        return as_answer(pt.or_(self, _boolean(other)))

    def __ror__(self, other: Any) -> Any:
        return as_answer(pt.or_(_boolean(other), self))

    def __and__(self, other: Any) -> Any:
        return as_answer(pt.and_(self, _boolean(other)))

    def __rand__(self, other: Any) -> Any:
        return as_answer(pt.and_(_boolean(other), self))

    def __invert__(self) -> Any:
        return as_answer(pt.invert(self))


def _boolean(value: Any) -> Any:
    """Return a Python bool, which PyTensor refuses, as a constant."""
    return pt.constant(value, dtype="bool") if isinstance(value, bool) else value


def as_answer(result: Any) -> Any:
    """Return a boolean scalar as an `Answer`, for its user; operations of PyTensor make plain variables."""
    if isinstance(result, TensorVariable) and result.type == BOOL and result.owner is not None:
        result.__class__ = Answer
    return result


class _Own(Op):
    """What the plugin's operations share: their results have the shapes of the first input."""

    __props__: tuple[str, ...] = ()

    def infer_shape(self, _fgraph: Any, _node: Any, shapes: Sequence[Any]) -> list[Any]:
        return [shapes[0]]


class WithinGradient(_Own):
    """The question whether a derivative goes through any of the inputs; evaluates to False."""

    def make_node(self, *values: Variable) -> Apply:
        return Apply(self, list(values), [BOOL()])

    def perform(self, _node: Any, _inputs: Any, output_storage: Any) -> None:
        output_storage[0][0] = np.array(False)

    def infer_shape(self, _fgraph: Any, _node: Any, _shapes: Sequence[Any]) -> list[Any]:
        return [()]

    def connection_pattern(self, node: Apply) -> list[list[bool]]:
        return [[False] for _ in node.inputs]

    def pullback(self, inputs: Any, _outputs: Any, _cotangents: Any) -> list[Variable]:
        return [disconnected_type() for _ in inputs]

    def pushforward(self, _inputs: Any, _outputs: Any, _tangents: Any) -> list[Variable]:
        return [disconnected_type()]

    def do_constant_folding(self, _fgraph: Any, _node: Any) -> bool:
        # A rewrite before the gradient would turn the question into False for good.
        return False


class _View(_Own):
    """An operation that passes its first input on."""

    view_map = {0: [0]}  # noqa: RUF012  (as PyTensor reads it)

    def make_node(self, value: Variable, *others: Variable) -> Apply:
        return Apply(self, [value, *others], [value.type()])

    def perform(self, _node: Any, inputs: Any, output_storage: Any) -> None:
        output_storage[0][0] = inputs[0]

    def do_constant_folding(self, _fgraph: Any, _node: Any) -> bool:
        return False


class Apart(_View):
    """A value with a gradient of its own, which is not that of the variable that it equals."""

    def pullback(self, _inputs: Any, _outputs: Any, cotangents: Any) -> list[Variable]:
        return list(cotangents)

    def pushforward(self, _inputs: Any, _outputs: Any, tangents: Any) -> list[Variable]:
        return list(tangents)


class Stop(_View):
    """A constant for all derivatives, which PyTensor's rewrites before a gradient leave in place."""

    def connection_pattern(self, _node: Apply) -> list[list[bool]]:
        return [[False]]

    def pullback(self, _inputs: Any, _outputs: Any, _cotangents: Any) -> list[Variable]:
        return [disconnected_type()]

    def pushforward(self, _inputs: Any, _outputs: Any, _tangents: Any) -> list[Variable]:
        return [disconnected_type()]


class Prevent(_View):
    """A value that must not be differentiated; where it is, `resolution` puts `Armed` in its place."""

    __props__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def pullback(self, _inputs: Any, _outputs: Any, cotangents: Any) -> list[Variable]:
        return list(cotangents)

    def pushforward(self, _inputs: Any, _outputs: Any, tangents: Any) -> list[Variable]:
        return list(tangents)


class Armed(Prevent):
    """A value that is differentiated although it must not be; its rules raise."""

    def pullback(self, inputs: Any, _outputs: Any, _cotangents: Any) -> list[Variable]:
        raise gradient_prevented(inputs[0], self.message, "PyTensor: a gradient is taken through it")

    def pushforward(self, inputs: Any, _outputs: Any, tangents: Any) -> list[Variable]:
        if is_disconnected(tangents[0]):
            return list(tangents)
        raise gradient_prevented(inputs[0], self.message, "PyTensor: a push-forward is taken through it")


class Guard(_View):
    """A value that a branch of `cond` uses; where the mask is False, its derivative is zero.

    What comes back from the branch that was not taken is zero times the derivatives
    there, and so NaN where these are infinite. The mask is a scalar, or broadcasts to
    the value.
    """

    def connection_pattern(self, _node: Apply) -> list[list[bool]]:
        return [[True], [False]]

    def pullback(self, inputs: Any, _outputs: Any, cotangents: Any) -> list[Variable]:
        return [_masked(inputs[1], cotangents[0], inputs[0]), disconnected_type()]

    def pushforward(self, inputs: Any, _outputs: Any, tangents: Any) -> list[Variable]:
        if is_disconnected(tangents[0]):
            return [tangents[0]]
        return [_masked(inputs[1], tangents[0], inputs[0])]


def _masked(mask: Any, derivative: Any, value: Any) -> Any:
    if mask.type.ndim == 0:
        return branch(mask, derivative, _zeros(value, derivative.dtype))
    return pt.switch(mask, derivative, pt.constant(0, dtype=derivative.dtype))


def _zeros(value: Any, dtype: str) -> Any:
    if not isinstance(value.type, TensorType):
        return value.zeros_like()  # sparse matrices, scalars, arrays with named axes
    if None not in value.type.shape:
        return pt.zeros(value.type.shape, dtype=dtype)  # without computing the value
    return value.zeros_like(dtype=dtype)


class Branch(IfElse):
    """PyTensor's lazy `ifelse` with one result, that batches and whose predicate has no derivative."""

    def __init__(self, n_outs: int = 1, *, as_view: bool = False, name: str | None = None) -> None:
        super().__init__(n_outs=n_outs, as_view=as_view, name=name)

    def connection_pattern(self, _node: Apply) -> list[list[bool]]:
        return [[False], [True], [True]]

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> list[Variable]:
        pred, if_true, if_false = inputs
        (cotangent,) = cotangents
        if not is_continuous(outputs[0]):
            return [disconnected_type(), *(_zeros(value, cotangent.dtype) for value in (if_true, if_false))]
        zeros = [_zeros(value, cotangent.dtype) for value in (if_true, if_false)]
        return [disconnected_type(), branch(pred, cotangent, zeros[0]), branch(pred, zeros[1], cotangent)]

    def pushforward(self, inputs: Any, outputs: Any, tangents: Any) -> list[Variable]:
        pred, *values = inputs
        if all(map(is_disconnected, tangents[1:])) or not is_continuous(outputs[0]):
            return [disconnected_type()]
        found = [
            _zeros(value, value.dtype) if is_disconnected(tangent) else tangent
            for value, tangent in zip(values, tangents[1:], strict=True)
        ]
        return [branch(pred, *found)]


within_gradient_op = WithinGradient()
apart = Apart()
stop = Stop()
guard = Guard()
branch_op = Branch()


def branch(pred: Any, if_true: Any, if_false: Any) -> Any:
    """Return one of two values, of which only the chosen one need be computed."""
    return branch_op(pred, if_true, if_false)


@_vectorize_node.register(WithinGradient)
@_vectorize_node.register(Apart)
@_vectorize_node.register(Stop)
@_vectorize_node.register(Prevent)
def _same_for_a_batch(op: Op, _node: Apply, *batched: Variable) -> Apply:
    return op.make_node(*batched)


@_vectorize_node.register(Guard)
def _guard_of_a_batch(_op: Guard, node: Apply, value: Any, mask: Any) -> Apply:
    core = node.inputs[0].type.ndim
    batch = mask.type.ndim - node.inputs[1].type.ndim
    if batch and node.inputs[1].type.ndim == 0:
        mask = pt.shape_padright(mask, core)
    missing = batch - (value.type.ndim - core)
    if missing > 0:
        value = pt.alloc(value, *[mask.shape[axis] for axis in range(missing)], *value.shape)
    return guard.make_node(value, mask)


@_vectorize_node.register(Branch)
def _branch_of_a_batch(op: Branch, node: Apply, pred: Any, if_true: Any, if_false: Any) -> Apply:
    core = node.outputs[0].type.ndim
    if pred.type.ndim:
        result: Apply = pt.switch(pt.shape_padright(pred, core), if_true, if_false).owner
        return result
    ndim = max(if_true.type.ndim, if_false.type.ndim)
    if if_true.type.ndim != if_false.type.ndim:
        if_true, if_false = pt.broadcast_arrays(
            *(pt.shape_padleft(value, ndim - value.type.ndim) for value in (if_true, if_false))
        )
    return op.make_node(pred, if_true, if_false)
