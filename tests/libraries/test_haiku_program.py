"""haiku: a network whose first layer is frozen by a pattern over its names."""

import pytest

hk = pytest.importorskip("haiku", reason="needs dm-haiku: make libraries")
import jax
import jax.numpy as jnp

import adprotocol
from adprotocol import cond, within_gradient

X = jnp.linspace(-1.0, 1.0, 6)[:, None]


def forward(x, tracked):
    hidden = hk.nets.MLP([4, 1], name="mlp")(x)
    return cond(tracked, lambda: 2.0 * hidden, lambda: hidden)


NETWORK = hk.without_apply_rng(hk.transform(forward))


def loss(params):
    return jnp.mean((NETWORK.apply(params, X, within_gradient(params)) - X**2) ** 2)


def test_a_layer_is_frozen_by_its_name():
    params = NETWORK.init(jax.random.key(0), X, False)
    value, gradient = jax.jit(adprotocol.value_and_grad(loss, where="mlp/~/linear_1.*"))(params)
    native = jax.grad(loss)(params)
    assert gradient["mlp/~/linear_0"] == {"w": None, "b": None}
    assert all(jnp.allclose(gradient["mlp/~/linear_1"][k], native["mlp/~/linear_1"][k]) for k in "wb")
    assert jnp.allclose(value, jax.value_and_grad(loss)(params)[0])
    assert not jnp.allclose(value, loss(params))
