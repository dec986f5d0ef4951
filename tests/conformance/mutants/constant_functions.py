"""Decorated functions, and labels, that let derivatives through: `non_differentiable` gone wrong."""

import collections
import functools

import toyad

import adprotocol
from mutants.constants import GROUP, real
from mutants.mutant import at, mutant, noted


def decorates(wrapper, *, wraps=True):
    """Return a mutant that wraps functions in another way."""

    def decorate(value):
        if not callable(value) or isinstance(value, toyad.Value):
            return real(value)

        def wrapped(*args, **kwargs):
            return wrapper(value, *args, **kwargs)

        return functools.wraps(value)(wrapped) if wraps else wrapped

    return {"adprotocol.non_differentiable": decorate}


@mutant(GROUP, decorates)
def first_argument_only(fun, first, *args, **kwargs):
    """Makes the first argument of a function constant, and nothing else."""
    return fun(real(first), *args, **kwargs)


@mutant(GROUP, decorates)
def forgets_keywords(fun, *args, **kwargs):
    """Makes the positional arguments of a function constant, and nothing else."""
    return fun(*map(real, args), **kwargs)


@mutant(GROUP, decorates)
def closed_over_values_leak(fun, *args, **kwargs):
    """Makes the arguments of a function constant, and not what it closes over."""
    return fun(*map(real, args), **{name: real(value) for name, value in kwargs.items()})


@mutant(GROUP, decorates)
def arguments_stay_tracked(fun, *args, **kwargs):
    """Makes the result of a function constant, and runs it on arguments that are differentiated."""
    return real(fun(*args, **kwargs))


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
        with noted(flag):
            return real(fun)(*args, **kwargs)

    return decorates(flagged) | stops_native_gradients(flag)


@mutant(GROUP, remembers=True)
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


@mutant(GROUP, alone="what a label on the right of an array gives is asked in one way, with arrays and numbers")
def label_on_the_right_is_a_float():
    """Gives floats for integers where a label is on the right."""
    return {"adprotocol.NonDifferentiable.__radd__": lambda self, other: 1.0 * (other + self.value)}


@mutant(GROUP)
def label_refuses_reflection():
    """Knows a label on the left of an operator only."""

    def refuse(self, other):
        return NotImplemented

    return {f"adprotocol.NonDifferentiable.__r{name}__": refuse for name in ("add", "sub", "mul", "truediv")}


@mutant(GROUP, at("adprotocol.NonDifferentiable.__reduce__"), beside="trainable")
def label_is_lost_in_copies(self):
    """Copies and pickles the value without the label."""
    return (_itself, (self.held,))


def _itself(value):
    return value


@mutant(GROUP, at("adprotocol.non_differentiable"))
def sorts_dicts(value):
    """Returns dicts in another order."""
    made = real(value)
    return dict(sorted(made.items(), reverse=True)) if type(made) is dict else made


@mutant(GROUP)
def breaks_methods():
    """Returns, of a decorated function, an object that is not bound as a method."""

    class Wrapped:
        def __init__(self, fun):
            self.fun = real(fun)
            functools.update_wrapper(self, fun)

        def __call__(self, *args, **kwargs):
            return self.fun(*args, **kwargs)

    def wrapped(value):
        return Wrapped(value) if callable(value) and not isinstance(value, toyad.Value) else real(value)

    return {"adprotocol.non_differentiable": wrapped}


@mutant(GROUP, at("adprotocol.non_differentiable"))
def ordered_dicts(value):
    """Returns dicts of another class."""
    made = real(value)
    return collections.OrderedDict(made) if type(made) is dict else made
