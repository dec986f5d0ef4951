"""What BatchNorm gains: with no flag set it normalises by the batch where it is trained, and nowhere else."""

import jax.numpy as jnp
import pytest
from flax import nnx

X = jnp.array([[1.0], [3.0]])


def layer():
    return nnx.BatchNorm(1, use_running_average=None, momentum=0.5, rngs=nnx.Rngs(0))


def output(model, x):
    y = model(x)
    return (y * jnp.array([[0.0], [1.0]])).sum(), y


def test_called_it_evaluates():
    model = layer()
    assert jnp.allclose(model(X), X, atol=1e-4)
    assert jnp.allclose(nnx.jit(lambda model, x: model(x))(model, X), X, atol=1e-4)
    assert model.mean[...] == 0.0


@pytest.mark.parametrize("surround", [lambda f: f, nnx.jit])
def test_differentiated_it_trains(surround):
    model = layer()
    gradient, y = surround(nnx.grad(output, has_aux=True))(model, X)
    assert jnp.allclose(y, jnp.array([[-1.0], [1.0]]), atol=1e-4)
    assert jnp.allclose(gradient["scale"][...], 1.0, atol=1e-4)
    assert model.mean[...] == 1.0
    assert jnp.allclose(model(X)[:, 0] * jnp.sqrt(model.var[...]), X[:, 0] - 1.0, atol=1e-4)


def test_a_compiled_function_trains_where_it_is_differentiated():
    model = layer()
    compiled = nnx.jit(output)
    assert jnp.allclose(compiled(model, X)[1], X, atol=1e-4)
    _, y = nnx.grad(compiled, has_aux=True)(model, X)
    assert jnp.allclose(y, jnp.array([[-1.0], [1.0]]), atol=1e-4)
    assert jnp.allclose(model.mean[...], 1.0)


def test_a_layer_that_says_so_does_what_it_says():
    model = layer()
    model.eval()
    _, y = nnx.grad(output, has_aux=True)(model, X)
    assert jnp.allclose(y, X, atol=1e-4)
