"""flax models trained with our gradients, frozen in part: nnx modules and linen variables."""

import flax.linen
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from flax.training.train_state import TrainState

import adprotocol
from adprotocol import combine, trainable

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


class Linen(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x):
        x = flax.linen.tanh(flax.linen.Dense(4, name="first")(x))
        x = flax.linen.BatchNorm(use_running_average=True, name="norm")(x)
        return flax.linen.Dense(1, name="last")(x)


def test_linen_train_state_of_the_trained_part():
    network = Linen()
    variables = network.init(jax.random.key(0), INPUTS)
    where = ["params.norm.*", "params.last.*"]
    optimizer = optax.chain(optax.clip_by_global_norm(0.05), optax.adamw(0.05, weight_decay=0.1))

    def loss(variables):
        return jnp.mean((network.apply(variables, INPUTS) - TARGETS) ** 2)

    @jax.jit
    def step(state):
        value, gradient = adprotocol.value_and_grad(loss, where=where)(combine(state.params, variables))
        return state.apply_gradients(grads=gradient), value

    @jax.jit
    def native_step(state):
        merged = lambda params: loss({**variables, "params": {**variables["params"], **params}})
        value, gradient = jax.value_and_grad(merged)(state.params)
        return state.apply_gradients(grads=gradient), value

    free = {name: variables["params"][name] for name in ("norm", "last")}
    state = TrainState.create(apply_fn=network.apply, params=trainable(variables, where), tx=optimizer)
    native = TrainState.create(apply_fn=network.apply, params=free, tx=optimizer)
    for _ in range(10):
        state, value = step(state)
        native, expected = native_step(native)
        assert np.allclose(value, expected, rtol=1e-3)
    params = state.params["params"]
    assert params["first"] == {"kernel": None, "bias": None}
    assert alike({name: params[name] for name in free}, native.params)
    assert jax.tree.leaves(state.params["batch_stats"]) == []
