"""The plugin for TensorFlow, broken on purpose: see `mutation`, which runs the mutants and says how to."""

# ruff: noqa: ANN001, ANN003, ANN202, ARG001, ARG005  (reaches into the plugin)

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation import COND, CONSTANT, GRADIENT, GUARD, QUERY, TRAINABLE, Mutants

from adprotocol.hookspecs import TreeLibrary

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
        return found[:1] if isinstance(found, tuple) and len(found) == 2 and stack.is_loop(tensor.graph) else found

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

    branch._Staged.agree = lambda self, one, other: True


@mutant(COND)
def numbers_keep_their_dtype() -> None:
    """A Python number in a branch takes no dtype from the other."""
    from adprotocol_tensorflow import branch

    branch._common_dtype = lambda one, other: branch._dtype(one)


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

    def first_order(original, fun, leaves, once):
        outputs, others, pull = original(fun, leaves, once)
        return outputs, others, lambda cotangents: [tf.stop_gradient(one) for one in pull(cotangents)]

    MUTANTS.replace("vjp", first_order)


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


# Of one call, for another ---------------------------------------------------------------------------------------------


@mutant(QUERY)
def one_answer_for_all_calls_in_a_program() -> None:
    """Of two calls of a traced function in another one, the second has the answers of the first."""
    import tensorflow as tf
    from adprotocol_tensorflow import staging

    answered, kept = staging.answered, {}

    def once(graph, arguments, captured, answer):
        if tf.executing_eagerly():
            return answered(graph, arguments, captured, answer)
        around = tf.compat.v1.get_default_graph()
        found = answered(graph, arguments, captured, answer)
        _, _, first = kept.setdefault((id(graph), id(around)), (graph, around, found))
        answers = {id(question.sentinel) for question in staging.notes(graph).questions}
        return [old if id(one) in answers else new for one, old, new in zip(captured, first, found, strict=True)]

    staging.answered = once


@mutant(QUERY)
def first_question_answers_for_all() -> None:
    """A traced function has one answer, that of its first question."""
    from adprotocol_tensorflow import staging

    ends = staging.Question.ends

    def of_first(self):
        first = staging.notes(self.function).questions[:1]
        return ends(first[0] if first else self)

    staging.Question.ends = of_first


@mutant(CONSTANT, QUERY)
def first_result_decides() -> None:
    """All results of a traced function are constants if the first is one."""
    from adprotocol_tensorflow import staging

    through = staging.through
    staging.through = lambda graph, _: through(graph, 0)


@mutant(CONSTANT, QUERY)
def further_results_stay() -> None:
    """Of several results of a traced function only the first can be a constant."""
    from adprotocol_tensorflow import staging

    through = staging.through
    staging.through = lambda graph, place: through(graph, place) if place == 0 else {0}


@mutant(QUERY)
def calls_have_one_result() -> None:
    """What comes to the first result of a called function comes to all."""
    from adprotocol_tensorflow import paths

    of_call = paths._of_call
    paths._of_call = lambda op, _: of_call(op, 0)


@mutant(QUERY)
def branches_have_one_result() -> None:
    """What comes to the first result of a cond comes to all."""
    from adprotocol_tensorflow import paths

    of_branches = paths._of_branches
    paths._of_branches = lambda op, _: of_branches(op, 0)


@mutant(QUERY)
def calls_in_calls_lose_it() -> None:
    """No derivative comes through a function that a called function calls."""
    from adprotocol_tensorflow import paths

    through, depth = paths.through, []

    def shallow(graph, output):
        if depth:
            return set()
        depth.append(graph)
        try:
            return through(graph, output)
        finally:
            depth.pop()

    paths.through = shallow


# Left behind ----------------------------------------------------------------------------------------------------------


@mutant(QUERY)
def tapes_stay_after_an_exception() -> None:
    """A tape that an exception has closed goes on watching variables."""
    import tensorflow as tf
    from adprotocol_tensorflow import recording

    leave, eager, left = tf.GradientTape.__exit__, recording.eager, []

    def noted(self, kind, error, traceback):
        if kind is not None:
            left.append(self)
        return leave(self, kind, error, traceback)

    tf.GradientTape.__exit__ = noted
    recording.eager = lambda value: (bool(left) and isinstance(value, tf.Variable) and value.trainable) or eager(value)


@mutant(COND, GUARD, QUERY)
def branch_stays_after_an_exception() -> None:
    """After an exception in a branch all that is traced counts as part of it."""
    import contextlib

    from adprotocol_tensorflow import staging

    @contextlib.contextmanager
    def branch(question, answer):
        if question is not None:
            staging.BRANCHES.taken.append((question, answer))
        yield
        if question is not None:
            staging.BRANCHES.taken.pop()

    staging.branch = branch


@mutant(CONSTANT)
def constants_by_id() -> None:
    """A tensor that has the id of one that is gone is made the constant that this was."""
    import tensorflow as tf

    kept = {}

    def constant(original, value):
        if not tf.executing_eagerly() or isinstance(value, tf.Variable):
            return original(value)
        found = kept.get(id(value))
        if found is None or found.shape != value.shape or found.dtype != value.dtype:
            found = kept[id(value)] = original(value)
        return found

    MUTANTS.replace("non_differentiable", constant)


# Guards in branches ---------------------------------------------------------------------------------------------------


@mutant(GUARD)
def guards_stand_once() -> None:
    """A guard is looked at in the first call of a traced function, and in no other."""
    from adprotocol_tensorflow import staging

    answered = staging.answered

    def first(graph, arguments, captured, answer):
        try:
            return answered(graph, arguments, captured, answer)
        finally:
            staging.notes(graph).guards.clear()

    staging.answered = first


@mutant(GUARD)
def guards_of_false_branches_lost() -> None:
    """A guard in the branch of what is not differentiated is none."""
    from adprotocol_tensorflow import staging

    guard = staging.guard

    def of_true(value, error):
        if all(answer for _, answer in staging.BRANCHES.taken):
            guard(value, error)

    staging.guard = of_true


@mutant(GUARD)
def innermost_branch_alone() -> None:
    """Of the branches around a guard only the innermost counts."""
    from adprotocol_tensorflow import staging

    guard = staging.guard

    def innermost(value, error):
        taken = staging.BRANCHES.taken
        staging.BRANCHES.taken = taken[-1:]
        try:
            guard(value, error)
        finally:
            staging.BRANCHES.taken = taken

    staging.guard = innermost


@mutant(GUARD)
def first_message() -> None:
    """All guards of a traced function raise with the message of the first."""
    from adprotocol_tensorflow import staging

    stand, messages = staging._stand, {}

    def first(one, of):
        said = messages.setdefault(id(one.conditions[0][0].function), (one.conditions[0][0], one.error))
        stand(one._replace(error=said[1]), of)

    staging._stand = first


# Operands and results of branches -------------------------------------------------------------------------------------


def _operands(change: Callable) -> None:
    import tensorflow as tf

    from adprotocol.extend import tree_map

    def cond(original, pred, true_fun, false_fun, operands):
        if not isinstance(pred, bool) and tf.is_symbolic_tensor(pred):
            operands = tuple(tree_map(change, operand) for operand in operands)
        return original(pred, true_fun, false_fun, operands)

    MUTANTS.replace("cond", cond)


@mutant(COND)
def integers_become_tensors() -> None:
    """A Python integer among the operands of a staged cond is a tensor in the branches."""
    import tensorflow as tf

    _operands(lambda leaf: tf.constant(leaf) if type(leaf) is int else leaf)


@mutant(COND)
def labels_come_apart() -> None:
    """A label among the operands of a staged cond is a tensor in the branches."""
    import adprotocol

    def cond(original, pred, true_fun, false_fun, operands):
        operands = tuple(one.value if isinstance(one, adprotocol.NonDifferentiable) else one for one in operands)
        return original(pred, true_fun, false_fun, operands)

    MUTANTS.replace("cond", cond)


@mutant(COND)
def integer_results_are_floats() -> None:
    """An integer that both branches of a staged cond return becomes a float."""
    import tensorflow as tf
    from adprotocol_tensorflow import branch

    common = branch._common_dtype

    def floats(one, other):
        dtype = common(one, other)
        both = isinstance(one, branch.NUMBERS) and isinstance(other, branch.NUMBERS)
        return tf.float32 if both and dtype == tf.int32 else dtype

    branch._common_dtype = floats


@mutant(COND)
def constants_of_the_first_branch() -> None:
    """What is no array in the results need not be the same: that of the first branch is returned."""
    from adprotocol._hooks import branches

    branches.same_constant = lambda one, other: True


# Gradients of several orders and kinds --------------------------------------------------------------------------------


def _differentiated(change: Callable) -> None:
    def changed(original, fun, leaves, once):
        outputs, others, pull = original(fun, leaves, once)
        value, others, gradients = change(outputs[0], others, pull(None))
        return [value], others, lambda _: gradients

    MUTANTS.replace("vjp", changed)


@mutant(GRADIENT)
def third_derivatives_are_zero() -> None:
    """A gradient can be differentiated once."""
    import tensorflow as tf
    from adprotocol_tensorflow import recording

    def shallow(value, others, gradients):
        deep = len(recording.OPEN.tapes) > 1
        return value, others, [tf.stop_gradient(one) if deep else one for one in gradients]

    _differentiated(shallow)


@mutant(GRADIENT)
def no_forward_over_reverse() -> None:
    """A tangent does not come through a gradient."""
    import tensorflow as tf
    from adprotocol_tensorflow import recording

    def plain(value, others, gradients):
        forward = recording.OPEN.accumulators
        return value, others, [tf.stop_gradient(one) if forward else one for one in gradients]

    _differentiated(plain)


@mutant(GRADIENT)
def auxiliary_output_is_constant() -> None:
    """Around the call nobody can differentiate the auxiliary output."""
    import tensorflow as tf

    def stopped(leaf):
        return tf.stop_gradient(leaf) if isinstance(leaf, tf.Tensor) and leaf.dtype.is_floating else leaf

    _differentiated(lambda value, others, gradients: (value, list(map(stopped, others)), gradients))


@mutant(GRADIENT)
def value_is_constant() -> None:
    """Around the call nobody can differentiate the value."""
    import tensorflow as tf

    def stopped(value, others, gradients):
        return tf.stop_gradient(value) if isinstance(value, tf.Tensor) else value, others, gradients

    _differentiated(stopped)


@mutant(GRADIENT)
def gradients_have_the_dtype_of_the_value() -> None:
    """A gradient has the dtype of the value, whatever that of the leaf."""
    import tensorflow as tf

    def cast(value, others, gradients):
        dtype = value.dtype if isinstance(value, tf.Tensor) else tf.float32
        return value, others, [one if one.dtype.is_complex else tf.cast(one, dtype) for one in gradients]

    _differentiated(cast)


@mutant(GRADIENT)
def gradients_of_one_row() -> None:
    """A leaf without elements has a gradient of shape (1,)."""
    import tensorflow as tf

    _differentiated(
        lambda value, others, gradients: (
            value,
            others,
            [tf.zeros([1], one.dtype) if 0 in one.shape else one for one in gradients],
        )
    )


@mutant(GRADIENT)
def variables_are_copied() -> None:
    """The function is given copies of the variables, which it cannot assign to, and reads the others elsewhere."""
    import tensorflow as tf

    def copied(original, fun, leaves, once):
        return original(fun, [tf.identity(leaf) if isinstance(leaf, tf.Variable) else leaf for leaf in leaves], once)

    MUTANTS.replace("vjp", copied)


# Leaves ---------------------------------------------------------------------------------------------------------------


@mutant(GRADIENT, TRAINABLE)
def variables_of_one_name() -> None:
    """Variables with the same name are one leaf."""
    import tensorflow as tf

    MUTANTS.replace("identity", lambda _, value: value.name if isinstance(value, tf.Variable) else None)


@mutant(GRADIENT, TRAINABLE)
def equal_variables_are_one() -> None:
    """Variables with the same values are one leaf."""
    import tensorflow as tf

    def by_value(_, value):
        if not isinstance(value, tf.Variable) or not tf.executing_eagerly():
            return value.ref() if isinstance(value, tf.Variable) else None
        return value.dtype.name, tuple(value.shape), value.numpy().tobytes()

    MUTANTS.replace("identity", by_value)


def _never_trainable(is_none: Callable) -> None:
    MUTANTS.replace("trainable", lambda original, value: None if is_none(value) else original(value))


@mutant(GRADIENT, TRAINABLE)
def empty_leaves_take_none() -> None:
    """A leaf without elements takes no gradient."""
    _never_trainable(lambda value: 0 in tuple(value.shape))


@mutant(GRADIENT, TRAINABLE)
def half_takes_none() -> None:
    """A leaf of 16 bits takes no gradient."""
    _never_trainable(lambda value: value.dtype.size == 2)


@mutant(GRADIENT, TRAINABLE)
def complex_takes_none() -> None:
    """A complex leaf takes no gradient."""
    _never_trainable(lambda value: value.dtype.is_complex)


@mutant(GRADIENT, TRAINABLE)
def flags_decide_for_good() -> None:
    """A variable whose flag is off never takes a gradient, though the call selects it."""
    import tensorflow as tf

    _never_trainable(lambda value: isinstance(value, tf.Variable) and not value.trainable)


@mutant(QUERY)
def empty_is_plain() -> None:
    """No derivative comes through a tensor without elements."""
    import adprotocol_tensorflow as plugin

    is_inexact = plugin._is_inexact
    plugin._is_inexact = lambda value: is_inexact(value) and 0 not in tuple(value.shape)


# Labels and registered classes ----------------------------------------------------------------------------------------


def _protocol(**methods) -> None:
    MUTANTS.replace("label_protocol", lambda original: {**original(), **methods})


@mutant(CONSTANT, QUERY)
def label_lets_derivatives_through() -> None:
    """A function of TensorFlow reads a label as what it holds, derivative and all."""
    import tensorflow as tf

    _protocol(__tf_tensor__=lambda self, dtype=None, name=None: tf.convert_to_tensor(self.held, dtype, name=name))


@mutant("plugins/*", CONSTANT)
def label_is_lost_in_a_program() -> None:
    """A label that is an argument of a traced function arrives as a tensor."""
    _protocol(__tf_unflatten__=classmethod(lambda cls, metadata, children: children[0]))


@mutant(CONSTANT, TRAINABLE)
def label_of_the_trace() -> None:
    """A label that is an argument of a traced function has the value of the first call."""
    from tensorflow.core.function import trace_type

    _protocol(__tf_tracing_type__=lambda self, context: trace_type.from_value("label", context))


@mutant(TRAINABLE, "plugins/*", CONSTANT, COND)
def static_fields_of_the_first() -> None:
    """Each instance of a registered class comes out of a traced function with the static fields of the first."""

    def library(original):
        known = original()

        def register(cls, flatten, unflatten):
            first = []

            def remembered(metadata, children):
                first.append(metadata)
                return unflatten(first[0], children)

            known.register(cls, flatten, remembered)

        return TreeLibrary(known.node, register)

    MUTANTS.replace("tree_library", library)


@mutant(QUERY)
def explanation_of_the_answer_alone() -> None:
    """What cannot be differentiated has no explanation, but an error."""

    def explain(original, value):
        if not value.dtype.is_floating:
            raise TypeError(value.dtype)
        return original(value)

    MUTANTS.replace("explain", explain)


if __name__ == "__main__":
    sys.exit(MUTANTS.main())
