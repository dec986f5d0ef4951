"""Variables of a library above the frameworks: they look like arrays, and hold one as their value (keras.Variable)."""

import autograd
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import adprotocol
from adprotocol.errors import MixedFrameworksError, UnclaimedTypeError


class Variable:
    """A variable with the marks of Keras'."""

    def __init__(self, value):
        self._value = value

    @property
    def value(self):
        return self._value

    @property
    def shape(self):
        return self._value.shape

    @property
    def dtype(self):
        return self._value.dtype

    def __jax_array__(self):
        return self._value

    def __mul__(self, other):
        return self._value * other


def torch_grad(fun):
    return lambda x: torch.func.grad(fun)(torch.tensor(x))


GRADS = [jax.grad, lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f)), torch_grad, autograd.grad]


@pytest.mark.parametrize("grad", GRADS)
def test_a_variable_is_asked_about_by_the_array_that_it_holds(grad):
    def layer(x):
        asked = adprotocol.within_gradient(Variable(x * 1.0))
        return adprotocol.cond(asked, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

    def in_a_dict(x):
        asked = adprotocol.within_gradient({"a": [Variable(x * 1.0), 2]}, 1.0)
        return adprotocol.cond(asked, lambda x: 3.0 * x, lambda x: 5.0 * x, x)

    assert float(grad(layer)(2.0)) == 3.0
    assert float(grad(in_a_dict)(2.0)) == 3.0


@pytest.mark.parametrize("value", [jnp.ones(2), torch.ones(2), np.ones(2)])
def test_a_variable_outside_of_a_gradient_is_false(value):
    assert adprotocol.within_gradient(Variable(value)) is False
    assert type(value).__name__ in adprotocol.explain(Variable(value))


def test_a_variable_that_requires_grad():
    assert adprotocol.within_gradient(Variable(torch.ones(2, requires_grad=True))) is True


def test_the_rest_is_refused_with_the_remedy():
    variable = Variable(jnp.ones(2))
    for hook in (
        adprotocol.non_differentiable,
        adprotocol.trainable,
        lambda v: adprotocol.non_differentiable({"a": v}),
        adprotocol.grad(lambda v: (v * 2.0).sum()),
    ):
        with pytest.raises(UnclaimedTypeError, match=r"test_variables.Variable, .* x\.value"):
            hook(variable)


def test_a_variable_beside_what_is_differentiated_is_as_its_array():
    scale = Variable(jnp.float32(2.0))
    assert float(adprotocol.grad(lambda x, v: x * x * v.value)(3.0, scale)) == 12.0
    assert adprotocol.cond(True, lambda v: v.value, lambda v: -v.value, scale) == 2.0
    with pytest.raises(MixedFrameworksError):
        adprotocol.within_gradient(scale, torch.ones(2))


def test_an_array_of_no_plugin_is_not_called_free_of_derivatives():
    class Array:
        shape = ()
        dtype = "float32"

    with pytest.raises(UnclaimedTypeError, match="if it certainly carries none, convert it to NumPy first"):
        adprotocol.within_gradient(Array())
