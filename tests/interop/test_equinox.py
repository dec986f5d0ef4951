"""Equinox models with leaves of kinds that JAX sees otherwise."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import adprotocol
from adprotocol import combine, partition, trainable

KEY = jax.random.key(1)


def arrays(model):
    return jax.tree.leaves(eqx.filter(model, eqx.is_array))


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
