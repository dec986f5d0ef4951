"""Variables of a library above the frameworks (keras.Variable) look like arrays and are refused as such."""

import jax.numpy as jnp
import pytest

import adprotocol
from adprotocol.errors import UnclaimedTypeError


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


@pytest.mark.parametrize(
    "hook",
    [
        adprotocol.within_gradient,
        adprotocol.non_differentiable,
        adprotocol.trainable,
        lambda v: adprotocol.within_gradient({"a": [v]}),
        adprotocol.grad(lambda v: (v * 2.0).sum()),
    ],
)
def test_a_variable_above_the_frameworks_is_refused(hook):
    with pytest.raises(UnclaimedTypeError, match=r"test_variables\.Variable, an array whose type no plugin claims"):
        hook(Variable(jnp.ones(2)))


def test_an_array_of_no_plugin_is_not_called_free_of_derivatives():
    class Array:
        shape = ()
        dtype = "float32"

    with pytest.raises(UnclaimedTypeError, match="if it certainly carries none, convert it to NumPy first"):
        adprotocol.within_gradient(Array())
