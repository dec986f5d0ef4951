"""Equinox models in parts, and with leaves of kinds that JAX sees otherwise."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import adprotocol
from adprotocol import NonDifferentiable, combine, partition, trainable

KEY = jax.random.key(1)


class Regression(eqx.Module):
    body: eqx.nn.MLP
    head: eqx.nn.Linear
    temperature: NonDifferentiable
    shift: jax.Array = eqx.field(metadata={"trainable": False})
    name: str = eqx.field(static=True, default="regression")

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.body = eqx.nn.MLP(1, 4, 8, 1, activation=jax.nn.tanh, key=first)
        self.head = eqx.nn.Linear(4, 1, key=second)
        self.temperature = NonDifferentiable(jnp.float32(2.0))
        self.shift = jnp.ones(1)

    def __call__(self, x):
        return self.head(self.body(x)) / self.temperature + self.shift


def arrays(model):
    return jax.tree.leaves(eqx.filter(model, eqx.is_array))


def test_parts_are_those_of_equinox():
    model = Regression(KEY)
    ours, rest = partition(model, where=lambda path, leaf: eqx.is_inexact_array(leaf))
    free, other = eqx.partition(model, lambda leaf: eqx.is_inexact_array(leaf) and leaf is not model.temperature.held)
    assert jax.tree.structure(ours.body) == jax.tree.structure(free.body)
    assert all(mine is theirs for mine, theirs in zip(*map(jax.tree.leaves, (ours, free)), strict=True))
    assert ours.temperature is None
    assert rest.body.activation is other.body.activation
    # Each library's parts by the other's function.
    assert combine(free, other).head.weight is eqx.combine(ours, rest).head.weight is model.head.weight
    assert combine(ours, rest).temperature is model.temperature


def test_layers_whose_numbers_are_no_parameters():
    # The rate of a dropout is a Python float in Equinox, so by default it takes a gradient: what
    # asks whether it is zero sees a tracer. Selecting arrays leaves it alone, as filter_grad does.
    model = eqx.nn.MultiheadAttention(2, 4, key=KEY)
    assert trainable(model).dropout.p == 0.0
    f = lambda m, x: jnp.sum(m(x, x, x) ** 2)
    x = jnp.linspace(0.0, 1.0, 12).reshape(3, 4)
    with pytest.raises(RuntimeError, match="Dropout requires a key"):
        adprotocol.grad(f)(model, x)
    gradient = adprotocol.grad(f, where=lambda _, leaf: eqx.is_inexact_array(leaf))(model, x)
    assert all(np.allclose(*pair) for pair in zip(*map(arrays, (gradient, eqx.filter_grad(f)(model, x))), strict=True))
    assert gradient.dropout.p is None


def test_a_setting_that_jax_sees_as_a_leaf_is_a_leaf():
    model = eqx.filter_vmap(eqx.nn.Linear(2, 2, key=KEY))  # holds equinox.if_array(0), a dataclass that is no pytree
    x = jnp.ones((3, 2))
    part, rest = partition(model)
    gradient = adprotocol.grad(lambda model: model(x).sum())(model)
    assert arrays(part) == jax.tree.leaves(part)
    updates, _ = optax.adam(0.1).update(gradient, optax.adam(0.1).init(part))
    stepped = combine(optax.apply_updates(part, updates), rest)
    assert stepped(x).shape == (3, 2)
    native = eqx.filter_grad(lambda model: model(x).sum())(model)
    assert jax.tree.structure(native) == jax.tree.structure(gradient)
    assert jax.tree.all(jax.tree.map(jnp.array_equal, native, gradient))


@dataclasses.dataclass(frozen=True)
class Scale:
    """No pytree."""

    factor: object
    unit: str = "m"


class Scaled(eqx.Module):
    fixed: Scale
    inside: dict
    learnt: Scale


def test_a_dataclass_below_an_equinox_module_that_holds_an_array_is_opened():
    model = Scaled(Scale(3), {"again": Scale(2, "s")}, Scale(jnp.float32(2.0)))
    part, rest = partition(model)
    assert (part.fixed, part.inside["again"], part.learnt) == (None, None, Scale(jnp.float32(2.0), None))
    assert (rest.fixed, rest.inside["again"], rest.learnt) == (Scale(3), Scale(2, "s"), Scale(None, "m"))
    assert combine(part, rest) == model
    f = lambda model: model.learnt.factor * model.fixed.factor
    assert adprotocol.grad(f)(model).learnt.factor == 3.0
    assert adprotocol.grad(f, where=adprotocol.trainable_mask(model))(model).learnt.factor == 3.0
    frozen = partition(model, lambda *_: False)
    assert combine(*frozen) == model
