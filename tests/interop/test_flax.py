"""flax.nnx modules trained with our gradients, frozen in part."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import adprotocol

INPUTS = jnp.linspace(-1.0, 1.0, 16).reshape(8, 2)
TARGETS = jnp.sin(2.0 * INPUTS[:, :1])


class Network(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 4, rngs=rngs)
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.last = nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.norm(self.first(x))))


def loss(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


def train(gradient_of, wrt):
    model = Network(nnx.Rngs(0))
    model.eval()
    optimizer = nnx.Optimizer(model, optax.adamw(0.05, weight_decay=0.1), wrt=wrt)
    values = []
    for _ in range(10):
        value, gradient = gradient_of(model)
        optimizer.update(model, gradient)
        values.append(float(value))
    return model, values


def pure(model):
    return nnx.to_pure_dict(nnx.state(model))


def alike(first, second):
    return all(
        np.allclose(*pair, rtol=1e-3, atol=1e-5) for pair in zip(*map(jax.tree.leaves, (first, second)), strict=True)
    )


def test_nnx_optimizer_with_all_parameters():
    where = ["first.*", "norm.scale.*", "norm.bias.*", "last.*"]
    function = jax.jit(adprotocol.value_and_grad(loss, where=where))

    def ours(model):
        value, gradient = function(model, INPUTS, TARGETS)
        return value, nnx.state(gradient, nnx.Param)

    model, values = train(ours, nnx.Param)
    native, expected = train(nnx.jit(lambda m: nnx.value_and_grad(loss)(m, INPUTS, TARGETS)), nnx.Param)
    assert np.allclose(values, expected, rtol=1e-3)
    assert values[-1] < values[0]
    assert alike(pure(model), pure(native))
