"""optax: a dataclass trained by Adam, one field of it frozen."""

from dataclasses import dataclass
from typing import Any

import pytest

optax = pytest.importorskip("optax", reason="needs optax: make libraries")
import jax
import jax.numpy as jnp

import adprotocol
from adprotocol import NonDifferentiable, combine, register_structure


@register_structure(static=("name",))
@dataclass(frozen=True)
class Wave:
    amplitude: Any
    phase: Any
    period: Any
    name: str = "wave"


X = jnp.linspace(0.0, 1.0, 16)


def loss(wave):
    return jnp.mean((wave.amplitude * jnp.sin(X / wave.period + wave.phase) - 2.0 * jnp.sin(X / 0.3 + 0.5)) ** 2)


def test_adam_finds_the_wave():
    wave = Wave(jnp.float32(1.0), jnp.float32(0.0), NonDifferentiable(jnp.float32(0.3)))
    part, rest = adprotocol.partition(wave)
    optimizer = optax.adam(0.1)
    state = optimizer.init(part)

    @jax.jit
    def step(part, state):
        value, gradient = adprotocol.value_and_grad(lambda part: loss(combine(part, rest)))(part)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(part, updates), state, value

    for _ in range(200):
        part, state, value = step(part, state)
    found = combine(part, rest)
    assert value < 1e-4
    assert abs(found.amplitude - 2.0) < 0.05
    assert found.period.value == jnp.float32(0.3)
