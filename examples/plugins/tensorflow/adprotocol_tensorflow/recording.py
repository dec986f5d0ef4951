"""Who records what: the tapes and forward accumulators that are open, and where each was opened.

TensorFlow tells whether some tape follows a tensor, but not which one. That matters in two places. While a
function is traced, a tape opened inside of it follows the program in every call, and one opened around it
follows the arguments of this call alone. And a tape opened around a function with a derivative rule of its
own is not concerned with what happens inside. So opening and closing are noted here, by wrapping the two
methods of `tf.GradientTape` and the two of `tf.autodiff.ForwardAccumulator` that do it.
"""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import forwardprop_util, record
from tensorflow.python.eager import tape as tape_stack
from tensorflow.python.framework import func_graph

from adprotocol.errors import UndecidableError
from adprotocol.messages import kind_of
from adprotocol_tensorflow import stack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Opened(NamedTuple):
    """A tape or accumulator that is open, and where it was opened."""

    recorder: Any
    graph: Callable[[], Any]
    rule: int | None  # the custom rule around it
    always: bool = False  # by tf.py_function, whether anybody differentiates or not


class Open(threading.local):
    """What is open in one thread, in order."""

    def __init__(self) -> None:
        self.tapes: list[Opened] = []
        self.accumulators: list[Opened] = []
        self.closed: list[Any] = []  # by `Recorders.alone`, for a while


OPEN = Open()


def _eager() -> None:
    """Stand for the graph of what is opened in none."""


def _here() -> Callable[[], Any]:
    return _eager if tf.executing_eagerly() else weakref.ref(tf.compat.v1.get_default_graph())


def _note(cls: type, opens: str, closes: str, kind: str) -> None:
    push, pop = getattr(cls, opens), getattr(cls, closes)

    @functools.wraps(push)
    def pushed(self: Any) -> None:
        push(self)
        always = sys._getframe(2).f_code is stack.PY_FUNCTION
        getattr(OPEN, kind).append(Opened(self, _here(), stack.rule(), always))

    @functools.wraps(pop)
    def popped(self: Any) -> None:
        if _is_closed(self):  # TensorFlow counts no references here: to close it again would free it
            OPEN.closed.remove(self)
            self._recording = False
        else:
            pop(self)
        entries = getattr(OPEN, kind)
        entries[:] = [entry for entry in entries if entry.recorder is not self]

    setattr(cls, opens, pushed)
    setattr(cls, closes, popped)


def install() -> None:
    """Begin to note; what is open already is looked for, once."""
    _note(tf.GradientTape, "_push_tape", "_pop_tape", "tapes")
    _note(tf.autodiff.ForwardAccumulator, "_push_accumulator", "_pop_accumulator", "accumulators")
    for found in gc.get_objects():
        cls = type(found)  # not isinstance, which looks at attributes
        if issubclass(cls, (tf.GradientTape, tf.autodiff.ForwardAccumulator)) and _is_open_in_this_thread(found):
            kind = OPEN.tapes if issubclass(cls, tf.GradientTape) else OPEN.accumulators
            kind.append(Opened(found, _opened_in(found), None))


def _is_open_in_this_thread(found: Any) -> bool:
    if not found._recording:
        return False
    with tf.init_scope():
        probe = tf.constant(0.0)
    if isinstance(found, tf.GradientTape):
        found.watch(probe)
        return record.should_record_backprop([probe])
    found._watch(probe, probe)
    return any(forwardprop_util.pack_tangents([probe]).indices)


def _opened_in(found: Any) -> Callable[[], Any]:
    """Return where something was opened before anybody noted it, by the frames that have it."""
    if tf.executing_eagerly():
        return _eager
    graph: Any = tf.compat.v1.get_default_graph()
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code is stack.TRACE:
            graph = getattr(graph, "outer_graph", None)  # none is around eager code
        if frame.f_globals is not globals() and any(value is found for value in frame.f_locals.values()):
            return weakref.ref(graph) if isinstance(graph, func_graph.FuncGraph) else _eager
        frame = frame.f_back
    return unknown


def unknown() -> None:
    """Stand for the graph of what was opened before anybody noted it, inside or outside of a function being traced."""


class Recorders:
    """Some of the tapes and accumulators that are open in this thread."""

    def __init__(self, chosen: Callable[[Opened], bool]) -> None:
        self.tapes = [entry.recorder for entry in OPEN.tapes if chosen(entry)]
        self.accumulators = [entry.recorder for entry in OPEN.accumulators if chosen(entry)]
        self.other_tapes = [entry.recorder for entry in OPEN.tapes if not chosen(entry)]
        self.other_accumulators = [entry.recorder for entry in OPEN.accumulators if not chosen(entry)]

    def __bool__(self) -> bool:
        return bool(self.tapes or self.accumulators)

    @property
    def watch_variables(self) -> bool:
        """Whether one of the tapes watches every trainable variable that is read."""
        return any(tape._watch_accessed_variables for tape in self.tapes)

    def follow(self, values: Iterable[Any], *, stopped: bool = False) -> list[bool]:
        """Return for each value whether one of these follows it, or (`stopped`) would, had TensorFlow not stopped."""
        values = list(values)
        if not self or (is_stopped() and not stopped):
            return [False for _ in values]
        with self.alone(), _running():
            return [self._follow(value) for value in values]

    def _follow(self, value: Any) -> bool:
        if isinstance(value, tf.Variable):
            if value.trainable and self.watch_variables:
                return True
            return any(self._follow(handle) for handle in handles(value))
        if self.tapes and record.should_record_backprop([value]):
            return True
        jvp = pywrap_tfe.TFE_Py_ForwardAccumulatorJVP
        return any(jvp(one._accumulator, value) is not None for one in self.accumulators)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Close the others, and open them again."""
        closed = [one for one in (*self.other_tapes, *self.other_accumulators) if not _is_closed(one)]
        for one in closed:
            if isinstance(one, tf.GradientTape):
                tape_stack.pop_tape(one._tape)
            else:
                pywrap_tfe.TFE_Py_ForwardAccumulatorSetRemove(one._accumulator)
        OPEN.closed += closed
        try:
            yield
        finally:
            for one in closed:
                if not _is_closed(one):  # the program itself has closed it meanwhile, and may have opened it again
                    continue
                OPEN.closed.remove(one)
                if isinstance(one, tf.GradientTape):
                    tape_stack.push_tape(one._tape)
                else:
                    pywrap_tfe.TFE_Py_ForwardAccumulatorSetAdd(one._accumulator)


def _is_closed(recorder: Any) -> bool:
    return any(one is recorder for one in OPEN.closed)


def handles(variable: tf.Variable) -> list[Any]:
    """Return the handle of a variable, and what stands for it in the graph that is being built."""
    handle = variable.handle
    if tf.executing_eagerly():
        return [handle]
    graph: Any = tf.compat.v1.get_default_graph()
    return [handle, *(within for outside, within in getattr(graph, "captures", ()) if outside is handle)]


def is_stopped() -> bool:
    """Return whether TensorFlow has stopped all recording of this thread, as in `tf.init_scope`."""
    return bool(pywrap_tfe.TFE_Py_TapeSetIsStopped())


@contextmanager
def _running() -> Iterator[None]:
    if not is_stopped():
        yield
        return
    pywrap_tfe.TFE_Py_TapeSetRestartOnThread()
    try:
        yield
    finally:
        pywrap_tfe.TFE_Py_TapeSetStopOnThread()


def recorders(graph: Any = None) -> Recorders:
    """Return what can follow a value here: all that is open, or what was opened in a traced function.

    What was opened around a function with a derivative rule of its own does not count inside of it.
    """
    rule = stack.rule()

    def chosen(entry: Opened) -> bool:
        if graph is not None and stack.function_of(entry.graph()) is not graph:
            return False
        return rule is None or entry.rule == rule

    return Recorders(chosen)


def recorders_inside() -> Recorders:
    """Return all that was opened in the function that is being traced."""
    graph = stack.function_of(tf.compat.v1.get_default_graph())
    return Recorders(lambda entry: stack.function_of(entry.graph()) is graph)


def recorders_unknown() -> Recorders:
    """Return what may have been opened in the function that is being traced, or outside of it."""
    return Recorders(lambda entry: entry.graph is unknown)


def recorders_around() -> Recorders:
    """Return what can follow a value outside of the function that is being traced, where that is eager code."""
    rule = stack.rule(around=True)
    return Recorders(lambda entry: entry.graph() is None and (rule is None or entry.rule == rule))


def eager(value: Any) -> bool:
    """Return whether something follows a tensor or variable outside of traced functions."""
    arguments = stack.recomputed() if is_stopped() else None
    if arguments is not None:
        return _in_first_run(value, arguments)
    if isinstance(value, tf.Variable) and value.trainable and not any(entry.always for entry in OPEN.tapes):
        if OPEN.tapes or not record.could_possibly_record():
            return bool(OPEN.tapes or OPEN.accumulators) and recorders().follow([value])[0]
        tape_stack.variable_accessed(value)  # of a tape that nobody noted only this tells whether it watches variables
    handle = value.handle if isinstance(value, tf.Variable) else value
    if not record.should_record_backprop([handle]) and not any(forwardprop_util.pack_tangents([handle]).indices):
        return False
    if not any(entry.always for entry in OPEN.tapes):
        return stack.rule() is None or recorders().follow([value])[0]
    rule = stack.rule()
    if Recorders(lambda entry: not entry.always and (rule is None or entry.rule == rule)).follow([value])[0]:
        return True
    raise _undecidable(value, "in tf.py_function, which follows its arguments whether anybody differentiates or not")


def _in_first_run(value: Any, arguments: tuple[Any, ...]) -> bool:
    """Answer in the first run of `tf.recompute_grad`, as in its second, which follows all arguments.

    Nothing is recorded in the first run, so what is computed from the arguments is not told from a constant.
    """
    around = recorders()
    tensors = [one for one in arguments if isinstance(one, tf.Tensor)]
    floats = [one for one in tensors if one.dtype.is_floating or one.dtype.is_complex]
    differentiated = any(around.follow(floats, stopped=True))
    if isinstance(value, tf.Variable):
        own = around.follow([value], stopped=True)[0]
        if own or not value.trainable or not differentiated:
            return own
    elif not differentiated and not around.watch_variables:
        return False
    elif differentiated and any(one is value for one in floats):
        return True
    elif value._id < max((one._id for one in floats), default=0):
        return False  # older than the arguments, so closed over; derivatives come to arguments and variables alone
    raise _undecidable(value, "in the first run of tf.recompute_grad, which records nothing")


def _undecidable(value: Any, where: str) -> UndecidableError:
    from adprotocol_tensorflow.divergence import DIVERGENCES

    remedy = DIVERGENCES["recompute-first-run"].remedy
    return UndecidableError(f"adprotocol was asked about {kind_of(value)} {where}. {remedy}")
