"""Answers inside of `tf.function`: a boolean that the traced program is given anew in each call.

A function is traced once, and whoever calls it then may differentiate it or not. So the answer is an
input of the traced function, and `ConcreteFunction._call_flat`, through which each call goes, is wrapped:
it asks about the arguments and captures from which a derivative can come to the value. If the call is
itself part of a program that is being traced, that answer is staged there in the same way.
"""

from __future__ import annotations

import functools
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import backprop_util
from tensorflow.python.eager.polymorphic_function.concrete_function import ConcreteFunction
from tensorflow.python.framework import func_graph
from tensorflow.python.ops import gradients_util
from tensorflow.python.saved_model import save_context

from adprotocol.errors import UndecidableError
from adprotocol_tensorflow import stack
from adprotocol_tensorflow.paths import Walk, through
from adprotocol_tensorflow.recording import handles, recorders, recorders_around, recorders_unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Question:
    """One question about some values, at one place of a function that is being traced."""

    def __init__(self, values: Sequence[Any]) -> None:
        graphs = stack.chain(tf.compat.v1.get_default_graph())
        self.function: Any = graphs[-1]
        if not isinstance(self.function, func_graph.FuncGraph):
            raise undecidable("a value of a graph of TensorFlow 1, which is differentiated after it was built")
        self.values = list(values)
        self.known = False  # that the answer is True in every call
        self.sentinel: Any = None  # what is captured, until a call puts the answer in its place
        self.answer: Any = None
        self.later: list[Any] = []  # what tf.gradients differentiates with respect to, after this question
        self._loops = stack.loops(graphs)
        self._followed: list[Any] = []
        self._ends: list[Any] | None = None
        self._look(graphs[1:])

    def _look(self, around: Sequence[Any]) -> None:
        """Find out whether something that was opened in this function follows the values."""
        arguments = stack.recomputed() or ()
        if arguments:
            # The second run follows all arguments if anything is to be differentiated at all.
            seen = self._walk().seen
            if any(id(argument) in seen for argument in arguments):
                self.values += [one for one in arguments if isinstance(one, tf.Tensor)]
        open_here = recorders(self.function)
        self._stopped = bool(arguments)
        self.known = any(open_here.follow(self.values, stopped=self._stopped))
        if not self.known and any(recorders_unknown().follow(self.values)):
            raise undecidable("a value that a tape follows which was opened before; import adprotocol_tensorflow first")
        if self._loops and open_here and not self.known:
            # The variables of a loop come from around it: what is followed there, so may they be.
            tensors = [tensor for graph in around for op in graph.get_operations() for tensor in op.outputs]
            tensors = [tensor for tensor in tensors if backprop_util.IsTrainable(tensor)]
            followed = open_here.follow(tensors, stopped=self._stopped)
            self._followed = [tensor for tensor, one in zip(tensors, followed, strict=True) if one]

    def stage(self) -> Any:
        """Return the input of the function that is given the answer."""
        with tf.init_scope():
            self.sentinel = tf.constant(False)
        self.answer = self.function._capture_helper(self.sentinel, "within_gradient")
        notes(self.function).questions.append(self)
        return self.answer

    def decide(self) -> bool:
        """Return the answer for a function that is called once, now: by what is open around it."""
        captures = {id(within): outside for outside, within in self.function.captures}
        variables = {id(variable.handle): variable for variable in self.function.variables}
        actual = [captures.get(id(end), end) for end in self._walk().ends.values()]
        actual = [variables.get(id(one), one) for one in actual]
        self.answer = any(recorders_around().follow(actual, stopped=self._stopped))
        notes(self.function).decided.append(self)
        return self.answer

    @property
    def can_decide(self) -> bool:
        """Whether all the ways to the values are there already."""
        return not self._loops and stack.is_called_once()

    def check_later(self, tensors: Sequence[Any]) -> None:
        """Raise if the answer was given too early, without what `tf.gradients` now differentiates."""
        seen = self._walk().seen
        if self.answer is False and any(id(tensor) in seen for tensor in tensors):
            raise undecidable("a value of tf.vectorized_map that tf.gradients differentiates afterwards")

    def _walk(self) -> Walk:
        walk = Walk(self.function, self._loops)
        try:
            walk.back([value.handle if isinstance(value, tf.Variable) else value for value in self.values])
        except LookupError as error:
            raise undecidable(f"a value of the loop {error.args[0]!r}, which TensorFlow made by itself") from None
        return walk

    def ends(self) -> list[Any]:
        """Return where a derivative can come from: inputs of the function, and what it closes over."""
        if self._ends is None:
            walk = self._walk()
            self.known |= any(id(tensor) in walk.seen for tensor in [*self._followed, *self.later])
            self._ends = list(walk.ends.values())
        return self._ends


class Guard(NamedTuple):
    """An error to be raised in a call in which all of these questions have these answers."""

    conditions: list[tuple[Question, bool]]
    error: Callable[[], Exception]


class Notes:
    """What is to be known of a traced function when it is called."""

    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.guards: list[Guard] = []
        self.decided: list[Question] = []
        self.constants = False  # whether something in it was made constant
        self.constant_outputs: list[int] | None = None


def notes(graph: Any) -> Notes:
    """Return the notes on a traced function; they live as long as its graph."""
    found = getattr(graph, _NOTES, None)
    if found is None:
        found = Notes()
        setattr(graph, _NOTES, found)
    return found


_NOTES = "_adprotocol_notes"


class Branches(threading.local):
    """The questions on whose answers it depends that what is being traced runs, each with the answer."""

    def __init__(self) -> None:
        self.taken: list[tuple[Question, bool]] = []


BRANCHES = Branches()


@contextmanager
def branch(question: Question | None, answer: bool) -> Iterator[None]:  # noqa: FBT001
    """Trace a branch that runs where a question has an answer."""
    if question is None:
        yield
        return
    BRANCHES.taken.append((question, answer))
    try:
        yield
    finally:
        BRANCHES.taken.pop()


def branches_here() -> list[tuple[Question, bool]]:
    """Return the branches that are being traced in this function, and not those that call it."""
    function = stack.function_of(tf.compat.v1.get_default_graph())
    return [one for one in BRANCHES.taken if one[0].function is function]


def undecidable(what: str) -> UndecidableError:
    """Return the error for a value about which there is no answer."""
    return UndecidableError(
        f"adprotocol was asked about {what}; ask outside about the arguments, and close over the answer or pass it on"
    )


def question_of(answer: Any) -> Question | None:
    """Return the question that a tensor answers in the function that is being traced, if it does."""
    graph = stack.function_of(tf.compat.v1.get_default_graph())
    found = [question for question in _questions(graph) if question.answer is answer]
    return found[0] if found else None


def _questions(graph: Any) -> list[Question]:
    return notes(graph).questions if hasattr(graph, _NOTES) else []


def ask(values: Sequence[Any]) -> Any:
    """Return the answer about values, in the program being traced: True, False or an input of the function."""
    if save_context.in_save_context():
        return False
    if stack.rule() is not None:
        return any(recorders(stack.function_of(tf.compat.v1.get_default_graph())).follow(values))
    question = Question(values)
    if question.known:
        return True
    return question.decide() if question.can_decide else question.stage()


def guard(value: Any, error: Callable[[], Exception]) -> None:
    """Raise an error where a value is differentiated: now, or in a call of the function that is being traced."""
    if stack.rule() is not None or save_context.in_save_context():
        if ask([value]):
            raise error()
        return
    question = Question([value])
    around = branches_here()
    if not around and (question.known or (question.can_decide and question.decide())):
        raise error()
    notes(question.function).guards.append(Guard([(question, True), *around], error))


def answered(graph: Any, arguments: Sequence[Any], captured: Sequence[Any], answer: Callable[..., Any]) -> list[Any]:
    """Return the captured inputs of a call, with the answers among them."""
    given = dict(zip(map(id, graph.inputs), [*arguments, *captured], strict=True))
    variables = {id(variable.handle): variable for variable in graph.variables}
    found: dict[int, Any] = {}

    def of(question: Question) -> Any:
        if id(question) not in found:
            actual = [given.get(id(end), end) for end in question.ends()]
            found[id(question)] = question.known or answer([variables.get(id(one), one) for one in actual])
        return found[id(question)]

    answers = {id(question.sentinel): of(question) for question in notes(graph).questions}
    for one in notes(graph).guards:
        _stand(one, of)
    return [_as_tensor(answers[id(one)]) if id(one) in answers else one for one in captured]


def _stand(one: Guard, of: Callable[[Question], Any]) -> None:
    """Raise the error of a guard, let it pass, or leave it to the calls of the function in which this call is."""
    conditions: list[tuple[Question, bool]] = []
    for question, expected in one.conditions:
        answer = of(question)
        if not isinstance(answer, bool):
            conditions.append((question_of(answer), expected))
        elif answer is not expected:
            return
    conditions += branches_here()
    if not conditions:
        raise one.error()
    notes(conditions[0][0].function).guards.append(Guard(conditions, one.error))


def _as_tensor(answer: Any) -> Any:
    return tf.constant(answer) if isinstance(answer, bool) else answer


def note_constant() -> None:
    """Note that something in the function that is being traced is made constant."""
    notes(stack.function_of(tf.compat.v1.get_default_graph())).constants = True


def constant_results(graph: Any, results: Any) -> Any:
    """Return the results of a call, with those as constants to which no derivative comes inside of the function.

    A tape follows every result of a function of which it follows an argument.
    """
    on = notes(graph)
    if not on.constants:
        return results
    flat = tf.nest.flatten(results, expand_composites=True)
    tensors = [place for place, one in enumerate(flat) if isinstance(one, tf.Tensor)]
    if on.constant_outputs is None:
        # Behind the results the graph has what the derivative needs.
        trainable = [place for place in range(len(tensors)) if backprop_util.IsTrainable(graph.outputs[place])]
        on.constant_outputs = [place for place in trainable if not through(graph, place)]
    if not on.constant_outputs:
        return results
    for place in on.constant_outputs:
        flat[tensors[place]] = tf.stop_gradient(flat[tensors[place]])
    if not tf.executing_eagerly():
        note_constant()
    return tf.nest.pack_sequence_as(results, flat, expand_composites=True)


def install(answer: Callable[[Sequence[Any]], Any]) -> None:
    """Have the questions of each function that is called answered, by `answer` for the values outside of it."""
    call = ConcreteFunction._call_flat
    gradients = gradients_util._GradientsHelper

    @functools.wraps(call)
    def call_flat(self: Any, tensor_inputs: Sequence[Any], captured_inputs: Sequence[Any]) -> Any:
        graph = self._func_graph
        if not hasattr(graph, _NOTES):
            return call(self, tensor_inputs, captured_inputs)
        captured_inputs = answered(graph, tensor_inputs, captured_inputs, answer)
        return constant_results(graph, call(self, tensor_inputs, captured_inputs))

    @functools.wraps(gradients)
    def helper(ys: Any, xs: Any, *args: Any, **kwargs: Any) -> Any:
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if kwargs.get("src_graph") is None and isinstance(graph, func_graph.FuncGraph):
            flat = tf.nest.flatten(xs, expand_composites=True)
            tensors = [one for x in flat for one in (handles(x) if isinstance(x, tf.Variable) else [x])]
            function = stack.function_of(graph)
            guarded = [one.conditions[0][0] for one in notes(function).guards]
            for question in [*_questions(function), *guarded]:
                question.later.extend(tensors)
            for question in notes(function).decided:
                question.check_later(tensors)
        return gradients(ys, xs, *args, **kwargs)

    ConcreteFunction._call_flat = call_flat
    gradients_util._GradientsHelper = helper
