"""The ways on which a derivative can come to a tensor of a traced program.

A walk from the tensor back to the inputs of the traced function, through everything that has a gradient.
It may find an input too many (an operation that it knows nothing about passes derivatives from all of its
inputs), and never one too few.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tensorflow.python.eager import backprop_util
from tensorflow.python.framework import ops
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow

from adprotocol_tensorflow import stack

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

BRANCHES = frozenset({"If", "StatelessIf"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})


class Walk:
    """What was found on the way back from some tensors.

    Attributes:
        seen: every tensor, by its id.
        ends: those that come from outside of the function: its inputs, and tensors of other functions or none.
    """

    def __init__(self, function: Any, loops: Mapping[int, list[Any]]) -> None:
        """Stay within a function; `loops` has the first values of the variables of each loop, by its graph."""
        self.function = function
        self.loops = dict(loops)
        self.seen: dict[int, Any] = {}
        self.ends: dict[int, Any] = {}
        self._inputs: dict[int, dict[int, int]] = {}

    def back(self, tensors: Iterable[Any]) -> None:
        """Walk back from tensors."""
        waiting = list(tensors)
        while waiting:
            tensor = waiting.pop()
            if id(tensor) in self.seen or not backprop_util.IsTrainable(tensor):
                continue
            self.seen[id(tensor)] = tensor
            waiting.extend(self._before(tensor))

    def _before(self, tensor: Any) -> Iterable[Any]:
        if isinstance(tensor, ops.EagerTensor):
            self.ends[id(tensor)] = tensor
            return ()
        graph = tensor.graph
        if stack.function_of(graph) is not self.function:
            # A loop may hold a tensor of a function further out by itself.
            self.ends[id(tensor)] = tensor
            return ()
        place = self._place(graph, tensor)
        if place is None:
            return passed(tensor.op, tensor.value_index)
        if not isinstance(graph, control_flow.ControlFlowFuncGraph):
            self.ends[id(tensor)] = tensor
            return ()
        for outside, within in graph.captures:
            if within is tensor:
                return (outside,)
        first = self.loops.get(id(graph))
        if first is None:
            # A loop that another made, such as the derivative of one.
            raise LookupError(graph.name)
        body = _body(graph)
        if body is None:
            return first
        self.loops[id(body)] = first
        return (first[place], body.outputs[place]) if place < len(body.outputs) else (first[place],)

    def _place(self, graph: Any, tensor: Any) -> int | None:
        inputs = getattr(graph, "inputs", ())
        known = self._inputs.get(id(graph))
        if known is None or len(known) != len(inputs):
            known = self._inputs[id(graph)] = {id(given): place for place, given in enumerate(inputs)}
        return known.get(id(tensor))


def _body(graph: Any) -> Any:
    """Return the body of a loop, given itself or the condition; None where it is still to be traced."""
    if isinstance(graph, control_flow.WhileBodyFuncGraph):
        return graph
    made = (op for op in graph.outer_graph.get_operations() if getattr(op, "_cond_graph", None) is graph)
    return getattr(next(made, None), "_body_graph", None)


def passed(op: Any, output: int) -> Iterable[Any]:
    """Return the inputs of an operation from which a derivative comes to one of its outputs."""
    if op.type in BRANCHES:
        return _of_branches(op, output)
    if op.type in CALLS:
        return _of_call(op, output)
    try:
        return () if ops.get_gradient_function(op) is None else op.inputs
    except LookupError:
        return op.inputs


def _of_branches(op: Any, output: int) -> Iterable[Any]:
    found: set[int] = set()
    for graph in (getattr(op, "_true_graph", None), getattr(op, "_false_graph", None)):
        if graph is None:
            return op.inputs[1:]
        found |= through(graph, output)
    return [op.inputs[1 + place] for place in found]


def _of_call(op: Any, output: int) -> Iterable[Any]:
    function = op.graph._functions.get(op.get_attr("f").name)
    graph = getattr(function, "graph", None)
    if graph is None or output >= len(graph.outputs):
        return op.inputs
    return [op.inputs[place] for place in through(graph, output)]


def through(graph: Any, output: int) -> set[int]:
    """Return the places of the inputs of a graph from which a derivative comes to one of its outputs."""
    places = {id(given): place for place, given in enumerate(graph.inputs)}
    found: set[int] = set()
    seen: set[int] = set()
    waiting = [graph.outputs[output]]
    while waiting:
        tensor = waiting.pop()
        if id(tensor) in seen or not backprop_util.IsTrainable(tensor):
            continue
        seen.add(id(tensor))
        if id(tensor) in places:
            found.add(places[id(tensor)])
        else:
            waiting.extend(passed(tensor.op, tensor.value_index))
    return found
