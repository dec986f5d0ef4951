"""Constants that are none, or more than that: `non_differentiable` gone wrong."""

import copy
import threading

import toyad
import toyad_adprotocol as right

import adprotocol
from adprotocol import extend
from mutants.mutant import at, follows, is_staged, mutant

GROUP = "non_differentiable"
stop = right.non_differentiable
real = adprotocol.non_differentiable


def stops(function):
    """Return a mutant with another way to stop a derivative."""
    return {"non_differentiable": function}


@mutant(GROUP, stops)
def identity(value):
    """Stops nothing."""
    return value


@mutant(GROUP, stops)
def one_level(value):
    """Stops the innermost level only."""
    return value.below if isinstance(value, (toyad.Dual, toyad.Recorded)) else stop(value)


@mutant(GROUP, stops)
def reverse_mode_only(value):
    """Stops tapes, and lets tangents through."""
    return value if follows(toyad.Dual, value) else stop(value)


@mutant(GROUP, stops)
def forward_mode_only(value):
    """Stops tangents, and lets tapes record."""
    return value if follows(toyad.Recorded, value) else stop(value)


@mutant(GROUP, stops)
def not_under_jit(value):
    """Stops nothing in what jit traces."""
    return value if is_staged(value) else stop(value)


@mutant(GROUP, stops)
def not_under_vmap(value):
    """Stops nothing in what vmap batches."""
    return value if follows(toyad.Batched, value) else stop(value)


def first_order_constant(value):
    """Return the value with a first derivative of zero, and a second one that is not."""
    return toyad.custom_rule(lambda x: x, lambda x: x - toyad.stop_gradient(x))(value)


@mutant(GROUP, stops)
def first_derivative_only(value):
    """Has no first derivative, and a second one."""
    return first_order_constant(value) if toyad.is_inexact(value) else stop(value)


@mutant(GROUP, stops)
def changes_the_value(value):
    """Returns another value, by a little."""
    return stop(value) * (1.0 + 1e-3) if toyad.is_inexact(value) else stop(value)


@mutant(GROUP, stops)
def zero(value):
    """Returns zeros, which have no derivative either."""
    return stop(value) * 0


@mutant(GROUP, stops)
def changes_the_dtype(value):
    """Makes floats of integers."""
    return stop(value) * 1.0 if value.dtype.kind in "iu" else stop(value)


@mutant(GROUP, stops)
def changes_the_shape(value):
    """Makes a vector of a scalar."""
    return stop(value)[None] if value.shape == () else stop(value)


@mutant(GROUP, at("adprotocol.non_differentiable"))
def works_in_place(value):
    """Writes the constant into the container that it was given."""
    made = real(value)
    if type(value) is dict:
        value.update(made)
        return value
    return made


def of_leaves(change):
    """Return a mutant that changes the leaves of what is no function."""
    return {
        "adprotocol.non_differentiable": lambda value: (
            real(value) if callable(value) else extend.tree_map(change, real(value))
        )
    }


@mutant(GROUP, of_leaves)
def copies_leaves(leaf):
    """Copies what is no array, instead of returning the object itself."""
    if isinstance(leaf, str):
        return "".join(list(leaf)) if len(leaf) > 1 else leaf
    return copy.deepcopy(leaf) if not isinstance(leaf, toyad.Value) else leaf


def rebuilt(value):
    """Return plain lists and dicts for all containers."""
    if isinstance(value, dict):
        return {key: rebuilt(item) for key, item in value.items()}
    return [rebuilt(item) for item in value] if isinstance(value, (list, tuple)) else value


@mutant(GROUP, at("adprotocol.non_differentiable"))
def rebuilds_containers(value):
    """Returns lists in the place of tuples."""
    return rebuilt(real(value))


def nameless(value):
    """Return plain tuples for named ones."""
    if type(value) is dict:
        return {key: nameless(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(nameless(item) for item in value)
    return [nameless(item) for item in value] if type(value) is list else value


@mutant(GROUP, at("adprotocol.non_differentiable"))
def forgets_names(value):
    """Returns tuples in the place of named tuples."""
    return nameless(real(value))


@mutant(GROUP, at("adprotocol.non_differentiable"))
def arrays_only(value):
    """Leaves containers alone."""
    return real(value) if isinstance(value, toyad.Value) or callable(value) else value


@mutant(GROUP, at("adprotocol.non_differentiable"))
def first_level_only(value):
    """Looks into a container, and not into the containers in it."""
    if type(value) is dict:
        return {key: real(item) if isinstance(item, toyad.Value) else item for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(real(item) if isinstance(item, toyad.Value) else item for item in value)
    return real(value)


@mutant(GROUP, of_leaves)
def refuses_strings(leaf):
    """Raises for a leaf that is no array."""
    if leaf is None or isinstance(leaf, str):
        msg = f"cannot make {leaf!r} constant"
        raise TypeError(msg)
    return leaf


@mutant(GROUP, stops)
def only_in_one_thread(value):
    """Stops nothing in a thread that the differentiated function starts."""
    # The name of the thread that the suite runs scenarios in.
    return stop(value) if threading.current_thread().name == "conformance" else value
