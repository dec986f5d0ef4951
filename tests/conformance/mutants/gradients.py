"""Gradients that are not those asked for: `value_and_grad` gone wrong."""

from collections.abc import Iterator

import numpy as np
import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from adprotocol._gradients import output
from adprotocol._gradients import where as selection
from adprotocol._gradients.structure import Structure
from mutants.mutant import at, mutant

real_only = Structure.only
GROUP = "value_and_grad"
differentiate = right.value_and_grad


def hook(function):
    """Return a mutant with another hook."""

    # pluggy reads the names of the parameters.
    def value_and_grad(fun, leaves):
        return function(fun, leaves)

    return {"value_and_grad": value_and_grad}


def after(change):
    """Return a mutant whose hook changes what comes out: ``change(leaves, value, aux, gradients)``."""
    return hook(lambda fun, leaves: change(leaves, *differentiate(fun, leaves)))


def public(make):
    """Return a mutant with another `value_and_grad`, and the `grad` that goes with it."""

    def grad(fun, **options):
        both = make(fun, **options)

        def differentiated(*args, **kwargs):
            value, slope = both(*args, **kwargs)
            return (slope, value[1]) if options.get("has_aux") else slope

        return differentiated

    return {"adprotocol.value_and_grad": make, "adprotocol.grad": grad}


real = adprotocol.value_and_grad


def is_zero(array):
    """Tell whether all elements are known to be zero."""
    return isinstance(array, toyad.Array) and not array.value.any()


@mutant(GROUP)
def ignores_the_mask():
    """Differentiates with respect to all leaves, whatever `where` says."""
    return {
        "adprotocol._gradients.value_and_grad.select": lambda structures, _where, **kw: selection.select(
            structures, None, **kw
        ),
        "adprotocol._gradients.value_and_grad._check_trainable": lambda *_: None,
    }


@mutant(GROUP, public)
def computes_the_frozen(fun, *, where=None, argnums=0, **options):
    """Differentiates with respect to all leaves, and drops what was not asked for."""

    def differentiated(*args, **kwargs):
        wanted = iter(extend.tree_leaves((adprotocol.trainable(args[argnums], where),)))
        value, slope = real(fun, argnums=argnums, **options)(*args, **kwargs)
        return value, extend.tree_map(lambda leaf: None if next(wanted) is None else leaf, slope)

    several = not isinstance(argnums, int)
    return real(fun, where=where, argnums=argnums, **options) if several else differentiated


def filled(fill):
    """Return a mutant that puts something in the place of None: ``fill(leaf)``."""

    def rebuilt(self, gradients):
        pairs = zip(self.mask, self.leaves, strict=True)
        return self.with_leaves([next(gradients) if selected else fill(leaf) for selected, leaf in pairs])

    def only(self, leaves):
        return rebuilt(self, leaves) if isinstance(leaves, Iterator) else real_only(self, leaves)

    return {"adprotocol._gradients.structure.Structure.only": only}


def zeros_like(leaf):
    """Return zeros for an array."""
    return toyad.Array(np.zeros(leaf.shape, leaf.dtype)) if isinstance(leaf, toyad.Value) else None


@mutant(GROUP, filled)
def zeros_for_the_frozen(leaf):
    """Returns zeros where nothing is differentiated."""
    return zeros_like(leaf) if isinstance(leaf, toyad.Value) and toyad.is_inexact(leaf) else None


@mutant(GROUP, filled)
def zeros_for_integers(leaf):
    """Returns integer zeros for integers."""
    return zeros_like(leaf) if isinstance(leaf, toyad.Value) and leaf.dtype.kind in "iu" else None


@mutant(GROUP, filled)
def zeros_for_numbers(leaf):
    """Returns zeros for numbers of Python's that are no floats."""
    return 0 if type(leaf) is int else None


@mutant(GROUP, filled)
def the_frozen_themselves(leaf):
    """Leaves what is frozen in the gradient."""
    return leaf


@mutant(GROUP, after)
def none_for_unused(_, value, aux, found):
    """Returns None for a leaf that the function does not use."""
    return (value, aux, [None if is_zero(slope) else slope for slope in found])


@mutant(GROUP, after)
def nan_for_unused(_, value, aux, found):
    """Returns NaN for a leaf that the function does not use."""
    return (value, aux, [s / s if is_zero(s) else s for s in found])


@mutant(GROUP, after)
def scalar_for_unused(_, value, aux, found):
    """Returns the number zero for an array that the function does not use."""
    return (value, aux, [toyad.array(0.0) if is_zero(s) else s for s in found])


@mutant(GROUP, after)
def sum_for_tied_leaves(leaves, value, aux, found):
    """Returns the sum of all places for each place of an array."""
    total = {}
    for leaf, slope in zip(leaves, found, strict=True):
        total[id(leaf)] = total[id(leaf)] + slope if id(leaf) in total else slope
    return value, aux, [total[id(leaf)] for leaf in leaves]


@mutant(GROUP, at("identity"))
def once_for_tied_leaves(value):
    """Takes an array at two places for one leaf."""
    return id(value)


@mutant(GROUP)
def parameters_twice():
    """Takes a parameter at two places for two leaves."""
    return {"identity": None}


@mutant(GROUP, hook, beside="cond")
def runs_twice(fun, leaves):
    """Calls the function for its value, and again for the gradient."""
    return (fun(leaves), differentiate(fun, leaves))[1]


@mutant(GROUP, after)
def drops_aux(_, value, _aux, found):
    """Returns no auxiliary output."""
    return (value, None, found)


@mutant(GROUP, hook)
def aux_keeps_tracers(fun, leaves):
    """Leaves tracers in the auxiliary output."""
    aux = []

    def of_value(tracked):
        value, other = fun(tracked)
        aux.append(other)
        return value, None

    value, _, found = differentiate(of_value, leaves)
    return value, aux[0], found


@mutant(GROUP, hook)
def aux_in_own_containers_only(fun, leaves):
    """Takes tracers out of its own containers, and leaves them in others."""

    def checked(tracked):
        value, aux = fun(tracked)
        extend.check_output(value, value)
        return value, aux

    return toyad.gradients(checked, leaves)


@mutant(GROUP, after)
def aux_is_constant(_, value, aux, found):
    """Returns an auxiliary output that a derivative around the call does not see."""
    return (value, extend.constant_tree(aux), found)


def reduced(change):
    """Return a mutant that changes the result of the function before it is differentiated."""

    def lenient(fun, leaves):
        def changed(tracked):
            value, aux = fun(tracked)
            return change(value), aux

        return differentiate(changed, leaves)

    return hook(lenient)


@mutant(GROUP, reduced)
def sums_vectors(value):
    """Differentiates the sum of a vector, instead of refusing it."""
    return toyad.sum(value) if getattr(value, "shape", ()) else value


@mutant(GROUP, reduced)
def takes_integers(value):
    """Differentiates an integer, instead of refusing it."""
    return value * 1.0 if isinstance(value, (int, toyad.Value)) else value


@mutant(GROUP, reduced)
def takes_none(value):
    """Takes None for zero, instead of refusing it."""
    return 0.0 if value is None else value


@mutant(GROUP)
def error_of_its_own():
    """Refuses what is no scalar with the framework's own error."""
    return {"adprotocol.extend.check_output": lambda *_: None, "toyad_adprotocol.check_output": lambda *_: None}


@mutant(GROUP, at("adprotocol._gradients.output.split"))
def takes_no_pair(result, binding, *, has_aux, split=output.split):
    """Takes a result without auxiliary output for one with None, where a pair is promised."""
    return split(result if not has_aux or isinstance(result, tuple) else (result, None), binding, has_aux=has_aux)


@mutant(GROUP, after)
def detached_gradients(_, value, aux, found):
    """Returns gradients that a derivative around the call does not see."""
    return (value, aux, list(map(toyad.stop_gradient, found)))


@mutant(GROUP, after)
def detached_value(_, value, aux, found):
    """Returns a value that a derivative around the call does not see."""
    return (toyad.stop_gradient(value), aux, found)


@mutant(GROUP, hook)
def detached_leaves(fun, leaves):
    """Cuts the leaves off from the derivatives around the call."""
    return differentiate(fun, [toyad.stop_gradient(x) if isinstance(x, toyad.Tracer) else x for x in leaves])
