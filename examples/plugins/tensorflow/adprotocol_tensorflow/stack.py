"""Where in the program a question is asked: in the trace of which function, in which loop, in which custom rule.

TensorFlow keeps none of this where it can be asked for, so the frames of a few of its own functions are
looked for on Python's stack.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import control_flow_v2_func_graphs as control_flow
from tensorflow.python.ops import custom_gradient, script_ops, while_v2
from tensorflow.python.ops.parallel_for import control_flow_ops as parallel_for
from tensorflow.python.util import tf_decorator

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

# Each trace of a function, a branch or a loop runs in a frame of this code.
TRACE: CodeType = tf_decorator.unwrap(func_graph.func_graph_from_py_func)[1].__code__

_RULES = frozenset({custom_gradient._eager_mode_decorator.__code__, custom_gradient._graph_mode_decorator.__code__})
_LOOP = tf_decorator.unwrap(while_v2.while_loop)[1].__code__
# In which recompute_grad runs another function for the first time, with recording stopped.
_RECOMPUTE = next(
    code
    for code in tf_decorator.unwrap(custom_gradient.recompute_grad)[1].__code__.co_consts
    if getattr(code, "co_name", None) == "inner"
)


_VECTORIZE = tf_decorator.unwrap(parallel_for.pfor)[1].__code__
_VECTORIZED = parallel_for._pfor_impl.__code__


# Which runs Python in a program, under a tape of its own.
PY_FUNCTION = script_ops.EagerFunc.__call__.__code__


def is_vectorized() -> bool:
    """Return whether what runs is the body of `tf.vectorized_map`, of which each operation is then vectorised."""
    return any(frame.f_code is _VECTORIZED for frame in _frames())


def is_called_once() -> bool:
    """Return whether the function being traced is one that `tf.vectorized_map` made in eager code, for one call."""
    outer = getattr(function_of(tf.compat.v1.get_default_graph()), "outer_graph", None)
    codes = {frame.f_code for frame in _frames()}
    return _VECTORIZED in codes and _VECTORIZE not in codes and not isinstance(outer, func_graph.FuncGraph)


def is_loop(graph: Any) -> bool:
    """Return whether a graph is the body or the condition of a loop."""
    return isinstance(graph, (control_flow.WhileBodyFuncGraph, control_flow.WhileCondFuncGraph))


def function_of(graph: Any) -> Any:
    """Return the graph of the function to which a graph belongs: itself, unless it is a branch or a loop."""
    return chain(graph)[-1]


def chain(graph: Any) -> list[Any]:
    """Return a graph and those around it, up to that of the function."""
    graphs = [graph]
    while isinstance(graphs[-1], control_flow.ControlFlowFuncGraph):
        graphs.append(graphs[-1].outer_graph)
    return graphs


def _frames(*, around: bool = False) -> Iterator[FrameType]:
    """Yield the frames of what runs in the function being traced, from the inside; or those around the function."""
    traces = 0 if tf.executing_eagerly() else len(chain(tf.compat.v1.get_default_graph()))
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is TRACE:
            traces -= 1
            if traces == 0 and not around:
                return
        if not around or traces <= 0:
            yield frame
        frame = frame.f_back


def rule(*, around: bool = False) -> int | None:
    """Return a key for the innermost custom derivative rule that is under way in (or around) this function, or None."""
    previous = None
    for frame in _frames(around=around):
        if frame.f_code in _RULES and previous is not _RECOMPUTE:
            return id(frame)
        if frame.f_code in _RULES or frame.f_code is _RECOMPUTE:
            previous = frame.f_code
    return None


def recomputed() -> tuple[Any, ...] | None:
    """Return the arguments of the innermost `tf.recompute_grad` whose first run is under way here, or None."""
    for frame in _frames():
        if frame.f_code is _RECOMPUTE:
            return tuple(tf.nest.flatten((frame.f_locals["args"], frame.f_locals["kwargs"]), expand_composites=True))
        if frame.f_code in _RULES:
            return None
    return None


def loops(graphs: list[Any]) -> dict[int, list[Any]]:
    """Return the first values of the variables of each loop among the graphs of a `chain`, by its graph's id."""
    waiting = [graph for graph in graphs if is_loop(graph)]
    found: dict[int, list[Any]] = {}
    for frame in _frames() if waiting else ():
        if frame.f_code is _LOOP and waiting:
            found[id(waiting.pop(0))] = tf.nest.flatten(frame.f_locals["loop_vars"], expand_composites=True)
    return found
