"""equinox: a network of which a part is frozen, mapped over a batch of networks."""

import pytest

eqx = pytest.importorskip("equinox", reason="needs equinox: make libraries")
import jax
import jax.numpy as jnp

import adprotocol
from adprotocol import cond, within_gradient

X = jnp.linspace(-1.0, 1.0, 6)[:, None]


class Network(eqx.Module):
    body: eqx.nn.Linear
    head: eqx.nn.Linear

    def __init__(self, key):
        one, two = jax.random.split(key)
        self.body, self.head = eqx.nn.Linear(1, 4, key=one), eqx.nn.Linear(4, 1, key=two)

    def __call__(self, x):
        x = jnp.tanh(self.body(x))
        return self.head(cond(within_gradient(self.head), lambda x: 2.0 * x, lambda x: x, x))


def loss(network):
    return jnp.mean((jax.vmap(network)(X) - X**2) ** 2)


def test_the_head_is_trained():
    network = Network(jax.random.key(0))
    gradient = eqx.filter_jit(adprotocol.grad(loss, where="head.*"))(network)
    native = eqx.filter_grad(loss)(network)
    assert gradient.body.weight is None
    assert jnp.allclose(gradient.head.weight, native.head.weight)


def test_an_ensemble_is_differentiated_at_once():
    networks = eqx.filter_vmap(Network)(jax.random.split(jax.random.key(0), 3))
    gradients = eqx.filter_vmap(adprotocol.grad(loss, where="head.*"))(networks)
    assert gradients.head.weight.shape == (3, 1, 4)
    assert gradients.body.weight is None
