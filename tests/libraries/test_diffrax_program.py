"""diffrax: a neural ODE of Equinox; the answer is asked outside and passed in."""

import pytest

diffrax = pytest.importorskip("diffrax", reason="needs diffrax: make libraries")
import equinox as eqx
import jax
import jax.numpy as jnp

import adprotocol
from adprotocol import cond, within_gradient

Y0 = jnp.array([2.0, 0.5])


def dynamics(_t, y, args):
    net, tracked = args
    return cond(tracked, lambda: net(y), lambda: 0.5 * net(y))


def loss(net):
    args = (net, jnp.asarray(within_gradient(net)))
    term, solver = diffrax.ODETerm(dynamics), diffrax.Tsit5()
    return jnp.sum(diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.1, Y0, args=args).ys ** 2)


def native(net):
    term, solver = diffrax.ODETerm(lambda t, y, net: net(y)), diffrax.Tsit5()
    return jnp.sum(diffrax.diffeqsolve(term, solver, 0.0, 1.0, 0.1, Y0, args=net).ys ** 2)


def test_a_neural_ode_is_differentiated_in_its_training_branch():
    net = eqx.nn.MLP(2, 2, 4, 1, activation=jnp.tanh, key=jax.random.key(0))
    value, gradient = eqx.filter_jit(adprotocol.value_and_grad(loss))(net)
    expected, slopes = eqx.filter_value_and_grad(native)(net)
    assert jnp.allclose(value, expected)
    assert jax.tree.all(jax.tree.map(lambda a, b: jnp.allclose(a, b, atol=1e-5), gradient, slopes))
    assert not jnp.allclose(loss(net), expected)
