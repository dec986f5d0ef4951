"""Right once, and wrong the second time: a rule in a rule, a program in a program, what is computed again."""

import numpy as np
import toyad
import toyad_adprotocol as right

from mutants.carriers import closed_over
from mutants.mutant import follows, is_staged, mutant, noted
from mutants.queries import answers, ask, flagged, while_inside

GROUP = "within_gradient"


@mutant(GROUP, beside="prevent_gradient")
def rules_in_rules_are_ad():
    """Says True in a function with a rule of its own that another such function calls."""
    flag = []
    query = answers(lambda value: True if len(flag) > 1 else ask(value))
    return query | {"toyad.custom_rule": flagged(toyad.custom_rule, flag)}


@mutant(GROUP)
def transformed_in_a_rule():
    """Says True in a program, and of rows, that a function with a rule of its own makes."""
    return while_inside(
        "custom_rule", lambda value: bool(toyad.STATE.stages) or follows(toyad.Batched, value) or ask(value)
    )


def programs(change):
    """Return toyad's compilers, whose programs are called by ``change(make, fun, program, args)``, keywords last."""

    def changed(make):
        def made(fun):
            program = make(fun)

            def call(*args, **kwargs):
                def positional(*given):
                    return program(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))

                return change(make, fun, positional, (*args, *kwargs.values()))

            return call

        return made

    return {"toyad.jit": changed(toyad.jit), "toyad.compile": changed(toyad.compile)}


@mutant(GROUP)
def flags_of_the_first_call():
    """Says in a program, for all calls, True if the flag of a parameter was on in its first one."""
    flag = []

    def call(_make, fun, program, args):
        closure = [cell.cell_contents for cell in getattr(fun, "__closure__", None) or ()]
        with noted(flag, any(value.trains for value in (*args, *closure) if isinstance(value, toyad.Parameter))):
            return program(*args)

    def query(value):
        concerned = is_staged(value) or isinstance(value, toyad.Parameter)
        return True if flag and flag[-1] and concerned else ask(value)

    return answers(query) | programs(call)


@mutant("value_and_grad", beside="within_gradient")
def computed_twice_is_constant():
    """Loses the derivative of what is computed in one gradient after something else was."""
    known = []

    def evaluate(_harness, array):
        known.append(array)
        return toyad.stop_gradient(array) if len(known) > 1 else array

    def gradients(*args, real=toyad.gradients):
        known.clear()
        return real(*args)

    return {"toyad_harness.ToyHarness.evaluate": evaluate, "toyad.gradients": gradients}


@mutant("value_and_grad", beside="within_gradient")
def closures_of_inner_programs_are_constants():
    """Takes what a program that another one calls closes over for a constant."""

    def call(make, fun, program, args):
        if not toyad.STATE.stages:
            return program(*args)

        def stopped(held):
            return toyad.stop_gradient(held) if isinstance(held, toyad.Value) else held

        return make(closed_over(fun, stopped))(*args)

    return programs(call)


@mutant(GROUP)
def values_of_the_first_call():
    """Runs a program, in all calls, with the values that the parameters it closes over had in its first one."""
    known = {}

    def call(_make, fun, program, args):
        held = [cell.cell_contents for cell in getattr(fun, "__closure__", None) or ()]
        parameters = [value for value in held if isinstance(value, toyad.Parameter)]
        now = [value.value.copy() for value in parameters]
        first = known.setdefault(id(fun), now)
        for parameter, value in zip(parameters, first, strict=True):
            parameter.value[...] = value
        try:
            return program(*args)
        finally:
            for parameter, value in zip(parameters, now, strict=True):
                parameter.value[...] = value

    return programs(call)


@mutant("value_and_grad")
def flags_as_they_were_first():
    """Trains a parameter, at all times, if its flag was on when it was made."""

    def put(parameter, name, value):
        if name != "trains" or name not in vars(parameter):
            object.__setattr__(parameter, name, value)

    return {"toyad.Parameter.__setattr__": put}


@mutant("value_and_grad")
def parameters_as_they_were_first():
    """Differentiates, at all times, at the value that a parameter had when it was first read."""
    known = {}

    def read(parameter, real=toyad.read):
        return known.setdefault(id(parameter), (parameter, real(parameter)))[1]

    return {"toyad.read": read}


@mutant("value_and_grad")
def arrays_of_numpy_in_double_precision():
    """Differentiates with respect to an array of NumPy as if it was of double precision."""

    def value_and_grad(fun, leaves):
        given = [leaf.astype(float) if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        return right.value_and_grad(fun, given)

    return {"value_and_grad": value_and_grad}
