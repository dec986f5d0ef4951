"""blackjax: Hamiltonian Monte Carlo on a density that asks, and whose data are a constant."""

import pytest

blackjax = pytest.importorskip("blackjax", reason="needs blackjax: make libraries")
import jax
import jax.numpy as jnp

import adprotocol
from adprotocol import NonDifferentiable, cond, within_gradient

DATA = jnp.array([1.5, 2.5])


def density(at):
    tracked = within_gradient(at)
    return cond(tracked, lambda: -jnp.sum((at["mean"] - DATA) ** 2), lambda: -jnp.sum((at["mean"] - DATA) ** 2))


def native(at):
    return -jnp.sum((at["mean"] - DATA) ** 2)


def test_the_chain_is_that_of_the_density_by_hand():
    start = {"mean": jnp.float32(0.0)}
    chains = []
    for logdensity in (density, native):
        sampler = blackjax.hmc(logdensity, 0.1, jnp.ones(1), 5)
        state, step = sampler.init(start), jax.jit(sampler.step)
        chain = []
        for key in jax.random.split(jax.random.key(0), 10):
            state, _ = step(key, state)
            chain.append(state.position["mean"])
        chains.append(jnp.stack(chain))
    assert jnp.allclose(*chains)


def test_the_gradient_of_a_state_leaves_a_label_alone():
    at = {"mean": jnp.float32(0.0), "data": NonDifferentiable(DATA)}
    gradient = adprotocol.grad(lambda at: -jnp.sum((at["mean"] - at["data"]) ** 2))(at)
    assert gradient["mean"] == 8.0
    assert gradient["data"] is None
