"""Constants that are none, or more than that: `non_differentiable` gone wrong."""

import copy
import functools
import threading

import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from mutants.mutant import is_staged, mutant, tracers

GROUP = "non_differentiable"
stop = right.non_differentiable
real = adprotocol.non_differentiable


def stops(function):
    """Return a mutant with another way to stop a derivative."""
    return {"non_differentiable": function}


@mutant(GROUP)
def identity():
    """Stops nothing."""
    return stops(lambda value: value)


@mutant(GROUP)
def one_level():
    """Stops the innermost level only."""
    return stops(lambda value: value.below if isinstance(value, (toyad.Dual, toyad.Recorded)) else stop(value))


@mutant(GROUP)
def reverse_mode_only():
    """Stops tapes, and lets tangents through."""
    return stops(lambda value: value if any(isinstance(t, toyad.Dual) for t in tracers(value)) else stop(value))


@mutant(GROUP)
def forward_mode_only():
    """Stops tangents, and lets tapes record."""
    return stops(lambda value: value if any(isinstance(t, toyad.Recorded) for t in tracers(value)) else stop(value))


@mutant(GROUP)
def not_under_jit():
    """Stops nothing in what jit traces."""
    return stops(lambda value: value if is_staged(value) else stop(value))


@mutant(GROUP)
def not_under_vmap():
    """Stops nothing in what vmap batches."""
    return stops(lambda value: value if any(isinstance(t, toyad.Batched) for t in tracers(value)) else stop(value))


def first_order_constant(value):
    """Return the value with a first derivative of zero, and a second one that is not."""
    return toyad.custom_rule(lambda x: x, lambda x: x - toyad.stop_gradient(x))(value)


@mutant(GROUP)
def first_derivative_only():
    """Has no first derivative, and a second one."""
    return stops(lambda value: first_order_constant(value) if toyad.is_inexact(value) else stop(value))


@mutant(GROUP)
def changes_the_value():
    """Returns another value, by a little."""
    return stops(lambda value: stop(value) * (1.0 + 1e-3) if toyad.is_inexact(value) else stop(value))


@mutant(GROUP)
def zero():
    """Returns zeros, which have no derivative either."""
    return stops(lambda value: stop(value) * 0)


@mutant(GROUP)
def changes_the_dtype():
    """Makes floats of integers."""
    return stops(lambda value: stop(value) * 1.0 if value.dtype.kind in "iu" else stop(value))


@mutant(GROUP)
def changes_the_shape():
    """Makes a vector of a scalar."""
    return stops(lambda value: stop(value)[None] if value.shape == () else stop(value))


@mutant(GROUP)
def only_in_one_thread():
    """Stops nothing in the threads that a function starts."""
    return stops(lambda value: stop(value) if threading.current_thread().name == "conformance" else value)


@mutant(GROUP)
def works_in_place():
    """Writes the constant into the container that it was given."""

    def constant(value):
        made = real(value)
        if type(value) is dict:
            value.update(made)
            return value
        return made

    return {"adprotocol.non_differentiable": constant}


@mutant(GROUP)
def copies_leaves():
    """Copies what is no array, instead of returning the object itself."""

    def one(leaf):
        if isinstance(leaf, str):
            return "".join(list(leaf)) if len(leaf) > 1 else leaf
        return copy.deepcopy(leaf) if not isinstance(leaf, toyad.Value) else leaf

    return {"adprotocol.non_differentiable": lambda value: real(value) if callable(value) else extend.tree_map(one, real(value))}


def rebuilt(value):
    """Return plain lists and dicts for all containers."""
    if isinstance(value, dict):
        return {key: rebuilt(item) for key, item in value.items()}
    return [rebuilt(item) for item in value] if isinstance(value, (list, tuple)) else value


@mutant(GROUP)
def rebuilds_containers():
    """Returns lists in the place of tuples."""
    return {"adprotocol.non_differentiable": lambda value: rebuilt(real(value))}


@mutant(GROUP)
def forgets_names():
    """Returns tuples in the place of named tuples."""

    def plain(value):
        if type(value) is dict:
            return {key: plain(item) for key, item in value.items()}
        if isinstance(value, tuple):
            return tuple(plain(item) for item in value)
        return [plain(item) for item in value] if type(value) is list else value

    return {"adprotocol.non_differentiable": lambda value: plain(real(value))}


@mutant(GROUP)
def arrays_only():
    """Leaves containers alone."""
    return {
        "adprotocol.non_differentiable": lambda value: (
            real(value) if isinstance(value, toyad.Value) or callable(value) else value
        )
    }


@mutant(GROUP)
def first_level_only():
    """Looks into a container, and not into the containers in it."""

    def shallow(value):
        if type(value) is dict:
            return {key: real(item) if isinstance(item, toyad.Value) else item for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(real(item) if isinstance(item, toyad.Value) else item for item in value)
        return real(value)

    return {"adprotocol.non_differentiable": shallow}


@mutant(GROUP)
def refuses_strings():
    """Raises for a leaf that is no array."""

    def one(leaf):
        if leaf is None or isinstance(leaf, str):
            msg = f"cannot make {leaf!r} constant"
            raise TypeError(msg)
        return leaf

    return {
        "adprotocol.non_differentiable": lambda value: (
            real(value) if callable(value) else real(extend.tree_map(one, value))
        )
    }


def decorates(wrapper, *, wraps=True):
    """Return a mutant that wraps functions in another way."""

    def decorate(value):
        if not callable(value) or isinstance(value, toyad.Value):
            return real(value)

        def wrapped(*args, **kwargs):
            return wrapper(value, *args, **kwargs)

        return functools.wraps(value)(wrapped) if wraps else wrapped

    return {"adprotocol.non_differentiable": decorate}


@mutant(GROUP)
def first_argument_only():
    """Makes the first argument of a function constant, and nothing else."""
    return decorates(lambda fun, first, *args, **kwargs: fun(real(first), *args, **kwargs))


@mutant(GROUP)
def forgets_keywords():
    """Makes the positional arguments of a function constant, and nothing else."""
    return decorates(lambda fun, *args, **kwargs: fun(*map(real, args), **kwargs))


@mutant(GROUP)
def closed_over_values_leak():
    """Makes the arguments of a function constant, and not what it closes over."""
    return decorates(
        lambda fun, *args, **kwargs: fun(*map(real, args), **{name: real(value) for name, value in kwargs.items()})
    )


@mutant(GROUP)
def arguments_stay_tracked():
    """Makes the result of a function constant, and runs it on arguments that are differentiated."""
    return decorates(lambda fun, *args, **kwargs: real(fun(*args, **kwargs)))


@mutant(GROUP)
def loses_metadata():
    """Returns a function without the name and the documentation of the one that it wraps."""
    return decorates(lambda fun, *args, **kwargs: real(fun)(*args, **kwargs), wraps=False)


def stops_native_gradients(flag):
    """Return a `toyad.gradients` that gives zeros while a flag is up."""
    gradients = toyad.gradients

    def stopped(fun, leaves):
        value, aux, found = gradients(fun, leaves)
        return value, aux, [slope * 0.0 for slope in found] if flag else found

    return {"toyad.gradients": stopped}


@mutant(GROUP)
def decorated_function_stops_threads():
    """Stops, while a decorated function runs, what other threads differentiate."""
    flag = []

    def flagged(fun, *args, **kwargs):
        flag.append(True)
        try:
            return real(fun)(*args, **kwargs)
        finally:
            flag.pop()

    return decorates(flagged) | stops_native_gradients(flag)


@mutant(GROUP)
def decorated_function_leaves_a_flag():
    """Stops, once a decorated function has raised, all derivatives for ever."""
    flag = []

    def flagged(fun, *args, **kwargs):
        flag.append(True)
        result = real(fun)(*args, **kwargs)
        flag.pop()
        return result

    return decorates(flagged) | stops_native_gradients(flag)


@mutant(GROUP)
def label_lets_through():
    """Gives out the value of a label with its derivative."""
    return {"adprotocol.NonDifferentiable.value": property(lambda self: self.held)}


@mutant(GROUP)
def label_sticks():
    """Labels the result of arithmetic with a label."""
    label = adprotocol.NonDifferentiable
    return {
        "adprotocol.NonDifferentiable.__add__": lambda self, other: label(self.value + getattr(other, "value", other)),
        "adprotocol.NonDifferentiable.__mul__": lambda self, other: label(self.value * getattr(other, "value", other)),
    }


@mutant(GROUP)
def label_refuses_reflection():
    """Knows a label on the left of an operator only."""

    def refuse(self, other):
        return NotImplemented

    return {f"adprotocol.NonDifferentiable.__r{name}__": refuse for name in ("add", "sub", "mul", "truediv")}


@mutant(GROUP)
def label_is_lost_in_copies():
    """Copies and pickles the value without the label."""
    return {"adprotocol.NonDifferentiable.__reduce__": lambda self: (_itself, (self.held,))}


def _itself(value):
    return value


@mutant(GROUP)
def sorts_dicts():
    """Returns dicts in another order."""

    def by_key(value):
        made = real(value)
        return dict(sorted(made.items(), reverse=True)) if type(made) is dict else made

    return {"adprotocol.non_differentiable": by_key}
