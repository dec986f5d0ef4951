"""Variables of a library above the frameworks (keras.Variable) look like arrays and are refused as such."""

import jax.numpy as jnp
import pytest

import adprotocol
from adprotocol.errors import UnclaimedTypeError


class Variable:
    """A variable with the marks of Keras'."""

    shape, dtype = (2,), "float32"

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


@pytest.mark.parametrize(
    "hook",
    [
        adprotocol.within_gradient,
        adprotocol.non_differentiable,
        adprotocol.trainable,
        lambda v: adprotocol.within_gradient({"a": [v]}),
        adprotocol.grad(lambda v: (v.value * 2.0).sum()),
    ],
)
def test_a_variable_above_the_frameworks_is_refused(hook):
    with pytest.raises(
        UnclaimedTypeError,
        match=r"test_variables\.Variable, an array whose type no plugin claims.*convert it to NumPy first",
    ):
        hook(Variable(jnp.ones(2)))
