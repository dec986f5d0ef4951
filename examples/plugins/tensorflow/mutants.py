"""The plugin for TensorFlow, broken on purpose: see `mutation`, which runs the mutants and says how to."""

# ruff: noqa: ANN001, ANN003, ANN202, ARG001, ARG005, PLC0415, SLF001  (reaches into the plugin)

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation import COND, CONSTANT, GRADIENT, GUARD, QUERY, TRAINABLE, Mutants

if TYPE_CHECKING:
    from collections.abc import Callable

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

MUTANTS = Mutants("tensorflow", __file__)
mutant = MUTANTS.mutant


# The answer in a traced function --------------------------------------------------------------------------------------


@mutant(QUERY)
def answer_frozen_when_traced() -> None:
    """What is open while a function is traced decides for all of its calls."""
    from adprotocol_tensorflow import recording, staging

    staging.ask = lambda values: any(recording.Recorders(lambda _: True).follow(values))


@mutant(QUERY)
def variable_frozen_when_traced() -> None:
    """The same, for variables alone."""
    import tensorflow as tf
    from adprotocol_tensorflow import recording, staging

    ask = staging.ask

    def frozen(values):
        if all(isinstance(value, tf.Variable) for value in values):
            return any(recording.Recorders(lambda _: True).follow(values))
        return ask(values)

    staging.ask = frozen


@mutant(QUERY)
def answer_of_first_call() -> None:
    """The answers of the first call hold for all."""
    from adprotocol_tensorflow import staging

    answered, kept = staging.answered, {}

    def once(graph, arguments, captured, answer):
        if id(graph) not in kept:
            kept[id(graph)] = graph, answered(graph, arguments, captured, answer)
        return kept[id(graph)][1]

    staging.answered = once


def _ends(keep: Callable) -> None:
    from adprotocol_tensorflow import staging

    ends = staging.Question.ends
    staging.Question.ends = lambda self: [end for end in ends(self) if keep(self, end)]


@mutant(QUERY)
def captures_ignored() -> None:
    """Only arguments count, not what a traced function closes over."""
    _ends(lambda question, end: all(end is not within for _, within in question.function.captures))


@mutant(QUERY)
def closed_over_tensors_ignored() -> None:
    """Arguments and variables count, closed-over tensors do not."""
    import tensorflow as tf

    _ends(
        lambda question, end: (
            end.dtype == tf.resource or all(end is not within for _, within in question.function.captures)
        )
    )


@mutant(QUERY)
def arguments_ignored() -> None:
    """Only what a traced function closes over counts."""
    _ends(lambda question, end: any(end is within for _, within in question.function.captures))


@mutant(QUERY)
def every_argument_counts() -> None:
    """A traced function has one answer: whether any of its inputs is differentiated."""
    from adprotocol_tensorflow import staging

    staging.Question.ends = lambda self: [one for one in self.function.inputs if one.dtype.is_floating]


@mutant(QUERY)
def plain_in_a_nested_function() -> None:
    """A traced function that is called by another is taken for plain."""
    import tensorflow as tf
    from adprotocol_tensorflow import staging

    answered = staging.answered
    staging.answered = lambda graph, arguments, captured, answer: answered(
        graph, arguments, captured, answer if tf.executing_eagerly() else lambda _: False
    )


@mutant(QUERY)
def tape_inside_unseen() -> None:
    """A tape that is opened in a traced function is not seen."""
    from adprotocol_tensorflow import staging

    staging.recorders = lambda graph=None: staging.recorders_around().__class__(lambda _: False)


@mutant(QUERY)
def loop_variables_are_constants() -> None:
    """No derivative comes to a variable of a loop."""
    from adprotocol_tensorflow import paths, stack

    before = paths.Walk._before

    def stopping(self, tensor):
        place = None if not hasattr(tensor, "graph") else self._place(tensor.graph, tensor)
        loop = place is not None and stack.is_loop(tensor.graph)
        captured = loop and any(within is tensor for _, within in tensor.graph.captures)
        return () if loop and not captured else before(self, tensor)

    _careful(paths.Walk, stopping)


@mutant(QUERY)
def loops_carry_nothing() -> None:
    """A variable of a loop is what it was before the loop."""
    from adprotocol_tensorflow import paths, stack

    before = paths.Walk._before

    def first(self, tensor):
        found = before(self, tensor)
        return found[:1] if isinstance(found, tuple) and len(found) == 2 and stack.is_loop(tensor.graph) else found  # noqa: PLR2004

    _careful(paths.Walk, first)


def _careful(cls, method) -> None:
    from tensorflow.python.framework import ops

    before = cls._before
    cls._before = lambda self, one: before(self, one) if isinstance(one, ops.EagerTensor) else method(self, one)


@mutant(QUERY)
def loop_under_a_tape_inside() -> None:
    """What a tape follows around a loop in the same function is not followed in it."""
    from adprotocol_tensorflow import staging

    look = staging.Question._look
    staging.Question._look = lambda self, around: look(self, [])


@mutant(QUERY)
def tf_gradients_unseen() -> None:
    """What tf.gradients differentiates afterwards has the plain answer."""
    from adprotocol_tensorflow import staging

    ends = staging.Question.ends

    def without(self):
        self.later = []
        return ends(self)

    staging.Question.ends = without


def _stops(*types: str) -> None:
    from adprotocol_tensorflow import paths

    passed = paths.passed
    paths.passed = lambda op, output: () if op.type in types else passed(op, output)


@mutant(QUERY)
def reductions_lose_it() -> None:
    """No derivative comes through a reduction in a traced program."""
    _stops("Sum", "Mean", "Max", "Min", "Prod")


@mutant(QUERY)
def selections_lose_it() -> None:
    """No derivative comes through where or indexing."""
    _stops("Select", "SelectV2", "StridedSlice", "GatherV2")


@mutant(QUERY)
def casts_lose_it() -> None:
    """No derivative comes through a cast."""
    _stops("Cast")


@mutant(QUERY)
def calls_lose_it() -> None:
    """No derivative comes through the call of a traced function."""
    _stops("PartitionedCall", "StatefulPartitionedCall")


@mutant(QUERY, CONSTANT)
def comparisons_keep_it() -> None:
    """Everything passes derivatives, rounding and stop_gradient too."""
    from adprotocol_tensorflow import paths

    paths.passed = lambda op, output: op.inputs


@mutant(QUERY)
def vectorized_is_plain() -> None:
    """In tf.vectorized_map the answer is False."""
    from adprotocol_tensorflow import staging

    staging.Question.decide = lambda self: False


# The answer anywhere --------------------------------------------------------------------------------------------------


@mutant(QUERY)
def ambient() -> None:
    """True where any tape is open."""
    from adprotocol_tensorflow import recording

    recording.eager = lambda value: bool(recording.OPEN.tapes or recording.OPEN.accumulators)


@mutant(QUERY)
def forward_mode_ignored() -> None:
    """Accumulators do not count."""
    from adprotocol_tensorflow import recording

    init = recording.Recorders.__init__

    def without(self, chosen):
        init(self, chosen)
        self.accumulators = []

    recording.Recorders.__init__ = without
    recording.eager = lambda value: recording.recorders().follow([value])[0]


@mutant(QUERY)
def unread_variables_are_plain() -> None:
    """A variable counts once a tape has seen it being read."""
    from adprotocol_tensorflow import recording

    recording.Recorders.watch_variables = property(lambda self: False)


@mutant(QUERY)
def untrainable_variables_count() -> None:
    """A tape is taken to watch every variable, whatever its flag."""
    import tensorflow as tf
    from adprotocol_tensorflow import recording

    follow = recording.Recorders._follow
    recording.Recorders._follow = lambda self, value: (
        (isinstance(value, tf.Variable) and self.watch_variables) or follow(self, value)
    )
    eager = recording.eager
    recording.eager = lambda value: (
        recording.recorders().follow([value])[0] if isinstance(value, tf.Variable) else eager(value)
    )


@mutant(QUERY)
def float32_alone() -> None:
    """Only float32 can carry a derivative."""
    import adprotocol_tensorflow as plugin
    import tensorflow as tf

    plugin._is_inexact = lambda value: value.dtype == tf.float32


@mutant(QUERY)
def complex_is_plain() -> None:
    """Complex numbers carry no derivative."""
    import adprotocol_tensorflow as plugin

    plugin._is_inexact = lambda value: value.dtype.is_floating


@mutant(QUERY, GUARD)
def rules_ignored() -> None:
    """The inside of a function with a derivative rule of its own counts as differentiated."""
    from adprotocol_tensorflow import stack

    stack.rule = lambda around=False: None


@mutant(QUERY)
def first_run_is_plain() -> None:
    """The first run of tf.recompute_grad, which records nothing, is taken for plain."""
    from adprotocol_tensorflow import stack

    stack.recomputed = lambda: None


@mutant(QUERY)
def tapes_of_all_threads() -> None:
    """What is open in one thread counts in all."""
    from adprotocol_tensorflow import recording

    class Shared:
        tapes: list = []  # noqa: RUF012
        accumulators: list = []  # noqa: RUF012

    recording.OPEN = Shared()
    recording.eager = lambda value: (
        bool(Shared.tapes or Shared.accumulators)
        and (any(id(value) for _ in Shared.tapes) or bool(Shared.accumulators))
    )


@mutant(QUERY)
def first_value_alone() -> None:
    """Of several values the first decides."""
    import adprotocol_tensorflow as plugin

    answer = plugin._answer
    plugin._answer = lambda values: answer(values[:1])


# Constants ------------------------------------------------------------------------------------------------------------


@mutant(CONSTANT)
def variable_stays_itself() -> None:
    """A variable made constant is the variable."""
    _constant(lambda value, constant: value if hasattr(value, "assign") else constant(value))


@mutant(CONSTANT)
def constants_in_eager_code_alone() -> None:
    """In a traced function non_differentiable does nothing."""
    import tensorflow as tf

    _constant(lambda value, constant: constant(value) if tf.executing_eagerly() else value)


@mutant(CONSTANT)
def constants_in_reverse_mode_alone() -> None:
    """A tangent passes."""
    import tensorflow as tf
    from tensorflow.python.eager import record

    def constant(value, _):
        result = tf.stop_gradient(value)
        if tf.executing_eagerly() and value.dtype.is_floating:
            record.record_operation_forwardprop_only("Identity", [result], [value], lambda g: [g], None)
        return result

    _constant(constant)


def _constant(change: Callable) -> None:
    import adprotocol_tensorflow as plugin

    from adprotocol.hookspecs import hookimpl

    original = plugin.non_differentiable

    @hookimpl
    def non_differentiable(value):
        return change(value, original)

    plugin.non_differentiable = non_differentiable


@mutant(CONSTANT, QUERY)
def results_of_constant_functions() -> None:
    """A tape follows the constant results of a traced function."""
    from adprotocol_tensorflow import staging

    staging.constant_results = lambda graph, results: results


@mutant(CONSTANT)
def decorators_lost() -> None:
    """TensorFlow looks through the decorator of a function that is an argument."""
    from adprotocol_tensorflow import functions

    functions._is_decorated = lambda entity: False


# Branches -------------------------------------------------------------------------------------------------------------


@mutant(COND)
def both_branches_and_select() -> None:
    """A staged cond is a select: a NaN of the branch not taken reaches the gradient."""
    from adprotocol_tensorflow import branch

    branch._Staged._run = branch._Staged._select
    branch._guarded = lambda mask, captured: captured


@mutant(COND)
def vectorized_select_unguarded() -> None:
    """In tf.vectorized_map alone."""
    from adprotocol_tensorflow import branch

    branch._guarded = lambda mask, captured: captured


@mutant(COND)
def both_branches_run() -> None:
    """The branch not taken runs too, where the predicate is known."""
    import adprotocol_tensorflow as plugin

    from adprotocol.hookspecs import hookimpl

    original = plugin.cond

    @hookimpl
    def cond(pred, true_fun, false_fun, operands):
        if isinstance(pred, bool):
            chosen = true_fun(*operands), false_fun(*operands)
            return chosen[not pred]
        return original(pred, true_fun, false_fun, operands)

    plugin.cond = cond


@mutant(COND)
def shapes_may_differ() -> None:
    """Branches of a staged cond are not compared."""
    from adprotocol_tensorflow import branch

    branch._agree = lambda one, other: True


@mutant(COND)
def numbers_keep_their_dtype() -> None:
    """A Python number in a branch takes no dtype from the other."""
    from adprotocol_tensorflow import branch

    branch._common_dtype = lambda one, other: one.dtype


# Guards ---------------------------------------------------------------------------------------------------------------


@mutant(GUARD)
def no_guard_in_a_traced_function() -> None:
    """prevent_gradient passes everything that is traced."""
    from adprotocol_tensorflow import staging

    staging.guard = lambda value, error: None


@mutant(GUARD)
def guards_everywhere() -> None:
    """A guard in a branch that is not taken raises."""
    from adprotocol_tensorflow import staging

    class Nothing:
        @property
        def taken(self):
            return _Forgetful()

    class _Forgetful(list):
        pass

    staging.BRANCHES = Nothing()


@mutant(GUARD)
def guards_of_called_functions() -> None:
    """A guard in a traced function that another one calls is lost."""
    from adprotocol_tensorflow import staging

    stand = staging._stand

    def eager_alone(one, of):
        import tensorflow as tf

        if tf.executing_eagerly():
            stand(one, of)

    staging._stand = eager_alone


# Gradients ------------------------------------------------------------------------------------------------------------


@mutant(GRADIENT, TRAINABLE)
def flags_ignored() -> None:
    """Every variable takes a gradient."""
    import adprotocol_tensorflow as plugin

    from adprotocol.hookspecs import hookimpl

    @hookimpl
    def trainable(value):
        return True if plugin._is_inexact(value) else None

    plugin.trainable = trainable


@mutant(GRADIENT)
def frozen_variables_followed() -> None:
    """The tape watches every variable that is read."""
    _tape(watch_accessed_variables=True)


@mutant(GRADIENT)
def gradients_are_constants() -> None:
    """A gradient cannot be differentiated again."""
    import tensorflow as tf
    from adprotocol_tensorflow import gradient

    original = gradient.value_and_grad

    def first_order(fun, leaves):
        value, aux, gradients = original(fun, leaves)
        return value, aux, [tf.stop_gradient(one) for one in gradients]

    gradient.value_and_grad = first_order


@mutant(GRADIENT)
def leaves_not_copied() -> None:
    """One array at two places has one gradient."""
    import types

    import tensorflow as tf
    from adprotocol_tensorflow import gradient

    gradient.tf = types.SimpleNamespace(**{name: getattr(tf, name) for name in dir(tf) if name != "identity"})
    gradient.tf.identity = lambda x: x


@mutant(GRADIENT)
def variables_are_places() -> None:
    """A variable at two places is two leaves."""
    import adprotocol_tensorflow as plugin

    from adprotocol.hookspecs import hookimpl

    @hookimpl
    def identity(value):
        return None

    plugin.identity = identity


@mutant(GRADIENT)
def numbers_are_float32() -> None:
    """Numbers among the leaves do not take the dtype of the arrays."""
    import tensorflow as tf
    from adprotocol_tensorflow import gradient

    gradient._dtype = lambda leaves: tf.float32


def _tape(**options) -> None:
    import types

    import tensorflow as tf
    from adprotocol_tensorflow import gradient

    gradient.tf = types.SimpleNamespace(**{name: getattr(tf, name) for name in dir(tf) if name != "GradientTape"})
    gradient.tf.GradientTape = lambda **_: tf.GradientTape(**options)


if __name__ == "__main__":
    sys.exit(MUTANTS.main())
