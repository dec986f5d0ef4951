"""Gradients of parts of structures in optax loops: frozen leaves do not move and do not count."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import adprotocol
from adprotocol import NonDifferentiable, combine, trainable

STEPS = 8
INPUTS = jnp.linspace(-1.0, 1.0, 12).reshape(6, 2)
TARGETS = jnp.sin(3.0 * INPUTS[:, :1])


class Dense(NamedTuple):
    w: object
    b: object


class FrozenDense(NamedTuple):
    w: object
    b: object


adprotocol.register_trainable(FrozenDense, [])


def model_of(frozen=Dense, label=lambda leaf: leaf):
    first, middle, last = (
        jnp.linspace(-1.0, 1.0, n).reshape(shape) for n, shape in ((6, (2, 3)), (9, (3, 3)), (3, (3, 1)))
    )
    return {
        "first": Dense(first, jnp.zeros(3)),
        "middle": frozen(label(10.0 * middle), label(jnp.full(3, 5.0))),
        "last": Dense(last, jnp.zeros(1)),
        "scale": 3.0,
        "steps": jnp.arange(3),
        "none": None,
    }


def loss(model, x, y):
    for name in ("first", "middle", "last"):
        x = jnp.tanh(x @ model[name].w + model[name].b)
    # The frozen scale would have by far the greatest gradient.
    return jnp.mean((x - y) ** 2) * (1.0 + model["scale"] ** 4)


TRAINED = ("first", "last")

# How the same parts are chosen.
WAYS = {
    "patterns": (model_of(), ["first.*", "last.*"]),
    "predicate": (model_of(), lambda path, leaf: path.partition(".")[0] in TRAINED),
    "mask": (model_of(), {name: name in TRAINED for name in model_of()}),
    "declaration": (model_of(FrozenDense) | {"scale": NonDifferentiable(3.0)}, None),
    "label": (model_of(label=NonDifferentiable) | {"scale": NonDifferentiable(3.0)}, None),
}

OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.1), optax.adamw(0.1, weight_decay=0.5))


@functools.cache
def written_by_hand():
    """The loop over a dict of the trained leaves alone, everything else closed over."""
    model = model_of()
    params = {name: model[name] for name in TRAINED}
    state = OPTIMIZER.init(params)
    gradient_of = jax.jit(jax.value_and_grad(lambda p: loss({**model, **p}, INPUTS, TARGETS)))
    norms = []
    for _ in range(STEPS):
        value, gradient = gradient_of(params)
        norms.append(optax.tree.norm(gradient))
        updates, state = OPTIMIZER.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    return params, norms, value


@pytest.mark.parametrize("way", WAYS)
def test_loop_is_the_one_over_the_trained_leaves_alone(way):
    expected, expected_norms, expected_value = written_by_hand()
    model, where = WAYS[way]
    params = trainable(model, where)
    state = OPTIMIZER.init(params)
    gradient_of = jax.jit(adprotocol.value_and_grad(loss, where=where))
    norms = []
    for _ in range(STEPS):
        value, gradient = gradient_of(combine(params, model), INPUTS, TARGETS)
        norms.append(optax.tree.norm(gradient))
        updates, state = OPTIMIZER.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    final = combine(params, model)
    assert float(value) == pytest.approx(float(expected_value), rel=1e-4)
    assert np.allclose(norms, expected_norms, rtol=1e-3)
    for name in TRAINED:
        for mine, theirs, start in zip(final[name], expected[name], model[name], strict=True):
            assert np.allclose(mine, theirs, rtol=1e-3, atol=1e-5)
            assert not np.array_equal(mine, start)
    # The others have not moved by a bit: they are the same objects.
    for name in model.keys() - set(TRAINED):
        assert all(map(lambda mine, start: mine is start, *map(flat, (final[name], model[name])))), name
    # Nor are there moments for them.
    assert len(jax.tree.leaves(params)) == 4


def flat(part):
    return list(part) if isinstance(part, tuple) else [part]
