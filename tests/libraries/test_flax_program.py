"""flax: linen's variables, and a module of nnx, each with a frozen part."""

import pytest

pytest.importorskip("flax", reason="needs flax: make libraries")
import jax
import jax.numpy as jnp
from flax import linen, nnx

import adprotocol
from adprotocol import cond, within_gradient

X = jnp.linspace(-1.0, 1.0, 6)[:, None]


class Network(linen.Module):
    @linen.compact
    def __call__(self, x):
        x = linen.tanh(linen.Dense(4)(x))
        x = cond(within_gradient(x), lambda x: 2.0 * x, lambda x: x, x)
        return linen.Dense(1)(x)


def test_linen():
    network = Network()
    variables = network.init(jax.random.key(0), X)
    loss = lambda variables: jnp.mean(network.apply(variables, X) ** 2)
    value, gradient = jax.jit(adprotocol.value_and_grad(loss, where="*Dense_0*"))(variables)
    expected, native = jax.value_and_grad(loss)(variables)
    assert jnp.allclose(value, expected)
    assert not jnp.allclose(value, loss(variables))
    assert gradient["params"]["Dense_1"] == {"kernel": None, "bias": None}
    assert jnp.allclose(gradient["params"]["Dense_0"]["kernel"], native["params"]["Dense_0"]["kernel"])


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.first, self.last = nnx.Linear(1, 4, rngs=rngs), nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.first(x)))


def test_nnx():
    model = Perceptron(nnx.Rngs(0))
    loss = lambda model: jnp.mean(model(X) ** 2)
    gradient = nnx.jit(adprotocol.grad(loss, where="last.*"))(model)
    native = nnx.grad(loss)(model)
    assert gradient.first.kernel.get_raw_value() is None
    assert jnp.allclose(gradient.last.kernel[...], native["last"]["kernel"][...])
