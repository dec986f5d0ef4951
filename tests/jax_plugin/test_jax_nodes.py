"""Structures that jax.tree_util knows: Equinox, flax, Partial, registered dataclasses, classes of one's own."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

import adprotocol
from adprotocol import trainable, within_gradient
from adprotocol.errors import OpaqueValueError, SelectionError

eqx = pytest.importorskip("equinox")
flax = pytest.importorskip("flax")
pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
X = jnp.float32(2.0)
XS = jnp.array([1.0, 2.0])
KEY = jax.random.key(0)


def paths(tree):
    found = []
    trainable(tree, where=lambda path, leaf: found.append(path) or False)
    return found


close = functools.partial(np.allclose, rtol=1e-4, atol=1e-5)


def same(tree, other):
    """Whether two JAX trees are equal in structure and leaves."""
    leaves, others = jax.tree.leaves(tree), jax.tree.leaves(other)
    return jax.tree.structure(tree) == jax.tree.structure(other) and all(map(close, leaves, others))


# Equinox


def squared(model, x):
    return jnp.sum(model(x) ** 2)


def mlp(**options):
    return eqx.nn.MLP(2, 1, 4, 2, key=KEY, **options)


def test_equinox_gradient_is_that_of_filter_grad():
    model = mlp()
    expected = eqx.filter_grad(squared)(model, XS)
    assert same(adprotocol.grad(squared)(model, XS), expected)
    assert same(eqx.filter_jit(adprotocol.grad(squared))(model, XS), expected)
    assert same(adprotocol.grad(eqx.filter_jit(squared))(model, XS), expected)
    assert same(adprotocol.grad(eqx.filter_checkpoint(squared))(model, XS), expected)
    assert same(adprotocol.grad(lambda m: squared(m, XS), where=lambda _, leaf: eqx.is_array(leaf))(model), expected)
    mask = jax.tree.map(eqx.is_inexact_array, model)
    assert callable(mask)  # and yet no predicate
    assert same(adprotocol.grad(squared, where=mask)(model, XS), expected)


class Net(eqx.Module):
    w: jax.Array
    static: float = eqx.field(static=True)
    number: float
    inner: object
    nothing: object = None

    def loss(self, x):
        return jnp.sum(self.w * x) * self.static * self.number


def test_methods_of_equinox_modules_carry_their_module():
    net = Net(X, 3.0, 4.0, None)
    assert adprotocol.grad(net.loss)(X) == 24.0
    assert adprotocol.grad(net.loss)(np.float32(2.0)) == 24.0  # the framework is that of the module
    gradient = adprotocol.grad(lambda m: m["loss"](X), where="*.w")({"loss": net.loss})
    assert gradient["loss"].__self__.w == 24.0
    assert gradient["loss"].__self__.number is None


# flax


class Perceptron(nnx.Module):
    def __init__(self, rngs):
        self.first = nnx.Linear(2, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.last = nnx.Linear(3, 1, rngs=rngs)
        self.activation = nnx.tanh
        self.scale = 2.0

    def __call__(self, x):
        return self.last(self.dropout(self.norm(self.activation(self.first(x))))) * self.scale


BATCH = jax.random.normal(KEY, (4, 2))


def test_nnx_paths_and_kinds_of_variable():
    model = Perceptron(nnx.Rngs(0))
    found = paths(model)
    assert {"first.kernel.value", "norm.mean.value", "dropout.rngs.key.value"} <= set(found)
    # Arrays of floats, but no statistics; keys and counts never.
    default = trainable(model)
    assert default.norm.scale.get_raw_value() is model.norm.scale.get_raw_value()
    assert default.norm.mean.get_raw_value() is None
    assert default.dropout.rngs.key.get_raw_value() is None
    assert default.dropout.rngs.count.get_raw_value() is None
    parameter = nnx.Param(XS)
    assert np.array_equal(adprotocol.grad(lambda p: jnp.sum(p[...] ** 2))(parameter)[...], 2.0 * XS)
    assert jax.grad(lambda x: jnp.where(within_gradient(nnx.Param(x)), 3.0, 1.0) * x)(X) == 3.0
    assert (
        paths(nnx.state(model, nnx.Param)) == [name for name in found if "mean" not in name and "var" not in name][2:]
    )


class Mean(nnx.Variable):
    """A user's own statistic."""


class Adapted(nnx.Module):
    def __init__(self, rngs):
        self.linear = nnx.LoRALinear(2, 3, lora_rank=1, rngs=rngs)
        self.norm = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)
        self.mean, self.cache = Mean(jnp.ones(2)), nnx.Cache(jnp.ones(2))

    def __call__(self, x):
        return self.norm(self.linear((x - self.mean[...]) * self.cache[...]))


def test_nnx_trains_parameters_alone():
    model = Adapted(nnx.Rngs(0))
    native = nnx.grad(squared, argnums=nnx.DiffState(0, nnx.Param))(model, BATCH)
    kinds = {name: type(variable) for name, variable in nnx.to_flat_state(nnx.state(model))}
    for where in (None, "*", ["linear.*", "norm.*"]):
        for transform in (lambda f: f, jax.jit, nnx.jit):
            gradient = transform(adprotocol.grad(squared, where=where))(model, BATCH)
            found = nnx.to_flat_state(nnx.state(gradient))
            taken = {name for name, variable in found if variable.get_raw_value() is not None}
            assert taken == {name for name, kind in kinds.items() if issubclass(kind, nnx.Param)}
            assert same(nnx.to_pure_dict(nnx.state(gradient, nnx.Param)), nnx.to_pure_dict(native))
    for where in ("mean.value", "cache.*", "norm.mean.value", lambda path, leaf: path.startswith("norm.var")):
        with pytest.raises(SelectionError, match="which is an ArrayImpl of dtype float32 and cannot take a gradient"):
            adprotocol.grad(squared, where=where)(model, BATCH)
    # A statistic may be differentiated by JAX all the same.
    assert jax.grad(lambda x: jnp.where(within_gradient(Mean(x)), 3.0, 1.0) * x)(X) == 3.0


def test_flax_linen_variables():
    class Network(flax.linen.Module):
        @flax.linen.compact
        def __call__(self, x, train=False):
            x = flax.linen.tanh(flax.linen.Dense(3)(x))
            return flax.linen.Dense(1)(flax.linen.BatchNorm(use_running_average=not train)(x))

    network = Network()
    variables = network.init(KEY, BATCH)
    loss = lambda v: jnp.sum(network.apply(v, BATCH) ** 2)
    native = jax.grad(lambda params: loss({**variables, "params": params}))(variables["params"])
    for given in (variables, flax.core.freeze(variables)):
        gradient = adprotocol.grad(loss, where="params.*")(given)
        assert type(gradient) is type(given)
        assert same(flax.core.unfreeze(gradient["params"]), native)
        assert jax.tree.leaves(gradient["batch_stats"]) == []
    dense = adprotocol.grad(loss, where="params.Dense_0.kernel")(variables)["params"]
    assert same(dense["Dense_0"]["kernel"], native["Dense_0"]["kernel"])
    assert dense["Dense_0"]["bias"] is dense["Dense_1"]["kernel"] is None

    def trained(v):
        y, updates = network.apply(v, BATCH, train=True, mutable=["batch_stats"])
        return jnp.sum(y**2), updates

    updates = adprotocol.grad(trained, where="params.*", has_aux=True)(variables)[1]
    assert updates["batch_stats"]["BatchNorm_0"]["mean"].any()
    with pytest.raises(OpaqueValueError, match="Network, which holds a jax ArrayImpl"):
        adprotocol.grad(lambda m: jnp.sum(m(BATCH)))(network.bind(variables))


# Partial, registered dataclasses, classes of one's own


def scaled(w, x):
    return jnp.sum(w * x)


def test_partials_of_jax_are_containers_of_what_they_bind():
    partial = Partial(scaled, X)
    assert adprotocol.grad(lambda p: p(3.0))(partial).args == (3.0,)
    gradient = adprotocol.grad(lambda m: m["p"](m["x"]))({"p": partial, "x": jnp.float32(5.0)})
    assert (gradient["p"].args[0], gradient["x"]) == (5.0, 2.0)
    assert jax.grad(lambda x: jnp.where(within_gradient(Partial(scaled, x)), 3.0, 1.0) * x)(X) == 3.0
    assert trainable(Partial(scaled, w=X)).keywords == {"w": X}
    assert adprotocol.grad(Partial(scaled, X))(jnp.float32(5.0)) == 2.0


def test_batch_statistics_that_are_declared_to_take_gradients_do():
    class Statistic(nnx.BatchStat):
        pass

    adprotocol.register_trainable(Statistic, ["value"])
    assert np.array_equal(trainable({"own": Statistic(XS)})["own"][...], XS)
