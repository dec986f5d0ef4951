"""Auxiliary output on HIPS autograd that hides a box of the trace, which is over when the caller gets it."""

import functools
import types

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.tracer import Box, getval, isbox
from hiding import HIDING

import adprotocol
from adprotocol import NonDifferentiable, within_gradient
from adprotocol.errors import OpaqueValueError
from adprotocol.extend import search


def closure(x):
    return lambda: x


def default(x):
    return lambda y=x: y


def object_array(x):
    made = np.empty(2, object)
    made[1] = [x]
    return made


HIDDEN = {
    **HIDING,
    "namespace": lambda x: types.SimpleNamespace(v=[x]),
    "closure": closure,
    "default": default,
    "partial": lambda x: functools.partial(print, x),
    "object array": object_array,
    "closure in a dict": lambda x: {"k": closure(x)},
    "label of an object array": lambda x: NonDifferentiable(object_array(x)),
}


def attempt(function, hide):
    """Return the auxiliary output, or skip where it is refused: what is beside the items of a container is not kept."""
    try:
        (_, aux), slope = adprotocol.value_and_grad(lambda y: (y**2, HIDDEN[hide](function(y))), has_aux=True)(3.0)
    except OpaqueValueError:
        assert "attribute of" in hide
        return None
    assert float(getval(slope)) == 6.0
    return aux


def boxes(aux):
    beside = [
        getattr(aux, "__dict__", None),
        getattr(aux, "held", None),
        None if isinstance(aux, np.ndarray) and not aux.dtype.hasobject else aux,
    ]
    found = search(beside, lambda item: not isinstance(item, (Box, type, types.ModuleType)))
    return [item for item in found if isbox(item)]


@pytest.mark.parametrize("hide", HIDDEN)
def test_a_box_that_is_hidden_in_it_is_one_of_the_outer_trace(hide):
    def outer(x):
        aux = attempt(lambda y: x * y, hide)
        if aux is None:
            return native(x)
        (box,) = boxes(aux)
        assert within_gradient(box) is True
        return anp.sin(box) * x

    native = lambda x: anp.sin(x * 3.0) * x
    assert autograd.grad(outer)(2.0) == autograd.grad(native)(2.0)
    assert autograd.grad(autograd.grad(outer))(2.0) == autograd.grad(autograd.grad(native))(2.0)


@pytest.mark.parametrize("hide", HIDDEN)
def test_a_box_that_is_hidden_in_it_is_a_constant_where_no_trace_is_left(hide):
    aux = attempt(lambda y: 2.0 * y, hide)
    for box in boxes(aux):
        assert within_gradient(box) is False
        assert type(box * 2.0) in (float, np.float64)
        assert autograd.grad(lambda x, box=box: x * box)(1.0) == 6.0
        assert autograd.grad(lambda x, box=box: box * box + x)(1.0) == 1.0


def test_an_object_array_has_numbers():
    (_, aux), _ = adprotocol.value_and_grad(lambda y: (y**2, object_array(y)), has_aux=True)(3.0)
    assert aux.tolist() == [None, [3.0]]
    assert type(aux[1][0]) is float


def test_what_the_function_had_before_is_left_alone():
    before = types.SimpleNamespace(v=1.0)
    (_, aux), _ = adprotocol.value_and_grad(lambda y: (y**2, before), has_aux=True)(3.0)
    assert aux is before
    assert aux.v == 1.0


def test_a_list_that_is_hidden_is_one_of_the_outer_trace():
    def outer(x):
        def inner(y):
            packed = types.SimpleNamespace(v=anp.array([x * y, y]))
            return y**2, packed

        (_, aux), _ = adprotocol.value_and_grad(inner, has_aux=True)(3.0)
        return anp.sum(aux.v)

    assert autograd.grad(outer)(2.0) == 3.0
