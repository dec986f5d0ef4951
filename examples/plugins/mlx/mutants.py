"""The plugin for MLX, broken on purpose: see `mutation`, which runs the mutants and says how to."""

# ruff: noqa: ANN001, ANN202  (reaches into the plugin)

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1]))

from mutation import COND, GRADIENT, GUARD, QUERY, TRAINABLE, Mutants

if TYPE_CHECKING:
    from collections.abc import Callable

MUTANTS = Mutants("mlx", __file__)
mutant = MUTANTS.mutant


# The answer -----------------------------------------------------------------------------------------------------------


@mutant(QUERY)
def staged_answer_of_the_first() -> None:
    """Of several values in vmap the first decides."""
    from adprotocol_mlx import answer

    staged = answer._staged
    answer._staged = lambda first, *_: staged(first)


@mutant(QUERY)
def batch_of_the_first() -> None:
    """Of several values that vmap puts in the first decides."""
    from adprotocol_mlx import answer

    ask = answer.ask
    answer.ask = lambda values: ask(values[:1] if isinstance(values, list) else values)


@mutant(QUERY)
def seen_for_good() -> None:
    """An argument that was differentiated once is so for good."""
    from adprotocol_mlx import levels

    was_seen, ever = levels._was_seen, set()

    def before(number):
        if was_seen(number):
            ever.add(number)
        return number in ever

    levels._was_seen = before


@mutant(QUERY)
def outermost_level_alone() -> None:
    """Of the derivatives behind a value only the one that began first counts."""
    from adprotocol_mlx import graph

    copies = graph.Graph.copies

    def outermost(self):
        found = copies(self)
        return {number for number in found if not self.of_copies([number])}

    graph.Graph.copies = outermost


@mutant(QUERY)
def further_arguments_count() -> None:
    """All arguments of grad are taken for differentiated."""
    from adprotocol_mlx import levels

    roles = levels._roles

    def first(held):
        for array, role in roles(held):
            yield array, levels._Role.FIRST if role is levels._Role.FURTHER else role

    levels._roles = first


@mutant(QUERY)
def second_runs_are_plain() -> None:
    """In the second run of a checkpoint the answer is False."""
    from adprotocol_mlx import graph

    graph.Graph.of_checkpoint = lambda _self, _copies: False


@mutant(QUERY)
def big_is_plain() -> None:
    """No derivative comes through an array of more than a hundred elements."""
    from adprotocol_mlx import answer

    is_inexact = answer.is_inexact
    answer.is_inexact = lambda value: is_inexact(value) and value.size <= 100


@mutant(QUERY)
def empty_is_plain() -> None:
    """No derivative comes through an array without elements."""
    from adprotocol_mlx import answer

    is_inexact = answer.is_inexact
    answer.is_inexact = lambda value: is_inexact(value) and value.size > 0


@mutant(QUERY)
def long_programs_are_plain() -> None:
    """The walk through the graph gives up after thirty operations."""
    from adprotocol_mlx import graph

    reached = graph.Graph._reached

    def near(self, starts, passes):
        steps = []

        def first(label):
            steps.append(label)
            return len(steps) <= 30 and passes(label)

        return reached(self, starts, first)

    graph.Graph._reached = near


# Branches -------------------------------------------------------------------------------------------------------------


@mutant(COND)
def defaults_unguarded() -> None:
    """A NaN comes back from a default argument of the branch that is not taken."""
    _unguarded("__defaults__")


@mutant(COND)
def keyword_defaults_unguarded() -> None:
    """The same, from a default of a keyword-only argument."""
    _unguarded("__kwdefaults__")


def _unguarded(name: str) -> None:
    import types

    from adprotocol_mlx import guard

    function = guard._Guard.function

    def without(self, fun):
        own = getattr(fun, name, None)
        found = function(self, fun)
        if isinstance(fun, types.FunctionType) and own:
            setattr(found, name, own)
        return found

    guard._Guard.function = without


@mutant(COND)
def keywords_of_partials_unguarded() -> None:
    """A NaN comes back from a keyword argument of a functools.partial that is not taken."""
    import functools

    from adprotocol_mlx import guard

    function = guard._Guard.function

    def without(self, fun):
        found = function(self, fun)
        if isinstance(fun, functools.partial):
            return functools.partial(found.func, *found.args, **fun.keywords)
        return found

    guard._Guard.function = without


@mutant(COND)
def methods_unguarded() -> None:
    """A NaN comes back from the object of a bound method that is not taken."""
    import types

    from adprotocol_mlx import guard

    function = guard._Guard.function
    guard._Guard.function = lambda self, fun: fun if isinstance(fun, types.MethodType) else function(self, fun)


@mutant(COND)
def called_functions_unguarded() -> None:
    """A NaN comes back from what a function closes over that the branch closes over."""
    from adprotocol_mlx import guard

    new = guard._Guard._new
    guard._Guard._new = lambda self, leaf: leaf if type(leaf).__name__ == "function" else new(self, leaf)


@mutant(COND)
def cells_stay_after_an_exception() -> None:
    """What a branch closes over stays guarded after an exception in it."""
    from adprotocol_mlx import guard

    def call_guarded(pred, fun, operands):
        import contextlib

        undo = contextlib.ExitStack()
        made = guard._Guard(pred, undo)
        result = made.function(fun)(*[made.value(operand) for operand in operands])
        undo.close()
        return result

    from adprotocol_mlx import branch

    branch.call_guarded = call_guarded


@mutant(COND)
def cells_stay_guarded() -> None:
    """What a branch closes over stays guarded for what comes after it."""
    import contextlib

    from adprotocol_mlx import branch, guard

    kept = contextlib.ExitStack()

    def call_guarded(pred, fun, operands):
        made = guard._Guard(pred, kept)
        return made.function(fun)(*[made.value(operand) for operand in operands])

    branch.call_guarded = call_guarded


@mutant(COND)
def constants_of_the_first_branch() -> None:
    """What is no array in the results need not be the same: that of the first branch is returned."""
    from adprotocol._hooks import branches

    branches.same_constant = lambda _one, _other: True


# Guards and constants -------------------------------------------------------------------------------------------------


@mutant(GUARD)
def guards_end_at_vmap() -> None:
    """What vmap puts in is not guarded."""
    from adprotocol_mlx import prevention

    prevention.prevent.__globals__["ask"] = _false_in_vmap(prevention.ask)


def _false_in_vmap(ask: Callable) -> Callable:
    import sys as system

    def answer(values):
        caller = system._getframe(2)
        return False if caller.f_code.co_name == "<lambda>" else ask(values)

    return answer


@mutant(GUARD)
def message_of_the_first_guard() -> None:
    """All guards raise with the message of the first."""
    from adprotocol_mlx import prevention

    prevent, messages = prevention.prevent, []

    def first(value, message):
        messages.append(message)
        return prevent(value, messages[0])

    prevention.prevent = first


# Gradients ------------------------------------------------------------------------------------------------------------


def _differentiated(change: Callable) -> None:
    def changed(original, fun, leaves, once):
        outputs, others, pull = original(fun, leaves, once)
        value, others, gradients = change(outputs[0], others, pull(None))
        return [value], others, lambda _: gradients

    MUTANTS.replace("vjp", changed)


@mutant(GRADIENT)
def auxiliary_output_is_constant() -> None:
    """Around the call nobody can differentiate the auxiliary output."""
    import mlx.core as mx

    _differentiated(lambda value, others, gradients: (value, list(map(mx.stop_gradient, others)), gradients))


@mutant(GRADIENT)
def value_is_constant() -> None:
    """Around the call nobody can differentiate the value."""
    import mlx.core as mx

    def stopped(value, others, gradients):
        return mx.stop_gradient(value) if isinstance(value, mx.array) else value, others, gradients

    _differentiated(stopped)


@mutant(GRADIENT)
def gradients_are_constants() -> None:
    """A gradient cannot be differentiated again."""
    import mlx.core as mx

    _differentiated(lambda value, others, gradients: (value, others, list(map(mx.stop_gradient, gradients))))


@mutant(GRADIENT)
def leaves_not_copied() -> None:
    """An outer derivative is lost once an inner derivative has closed over its argument."""
    from adprotocol_mlx import gradient

    gradient.renamed = lambda array: array


@mutant(GRADIENT)
def runs_for_each_leaf() -> None:
    """The function runs once for each leaf."""

    def each(original, fun, leaves, once):
        gradients = []
        for place, leaf in enumerate(leaves):

            def of_one(one, place=place):
                return fun([*leaves[:place], one[0], *leaves[place + 1 :]])

            outputs, others, pull = original(of_one, [leaf], once)
            gradients += pull(None)
        return outputs, others, lambda _: gradients

    MUTANTS.replace("vjp", each)


@mutant(GRADIENT)
def gradients_have_the_dtype_of_the_value() -> None:
    """A gradient has the dtype of the value, whatever that of the leaf."""
    import mlx.core as mx

    def cast(value, others, gradients):
        dtype = value.dtype if isinstance(value, mx.array) else mx.float32
        return value, others, [one if one.dtype == mx.complex64 else one.astype(dtype) for one in gradients]

    _differentiated(cast)


def _never_trainable(is_none: Callable) -> None:
    MUTANTS.replace("trainable", lambda original, value: None if is_none(value) else original(value))


@mutant(GRADIENT, TRAINABLE)
def empty_leaves_take_none() -> None:
    """A leaf without elements takes no gradient."""
    _never_trainable(lambda value: value.size == 0)


@mutant(GRADIENT, TRAINABLE)
def half_takes_none() -> None:
    """A leaf of 16 bits takes no gradient."""
    _never_trainable(lambda value: value.dtype.size == 2)


@mutant(GRADIENT, TRAINABLE)
def arrays_are_one_leaf() -> None:
    """An array at two places is one leaf."""
    import adprotocol_mlx as plugin

    from adprotocol.hookspecs import hookimpl

    @hookimpl
    def identity(value):
        return id(value)

    plugin.identity = identity


if __name__ == "__main__":
    sys.exit(MUTANTS.main())
