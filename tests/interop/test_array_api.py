"""A loss written against array-api-compat, differentiated on each framework it knows."""

import dataclasses

import array_api_compat
import autograd
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import adprotocol
from adprotocol import cond, within_gradient

POINTS = np.array([[0.5, -1.0], [2.0, 0.25], [1.5, 1.0]])
WEIGHT, OFFSET, SCALE = np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([0.5, -0.5]), 2.0


@dataclasses.dataclass
class Model:
    weight: object
    offset: object
    scale: object = dataclasses.field(metadata={"trainable": False})
    degree: int = 2


def loss(model, points):
    """The author's function: no framework is named."""
    xp = array_api_compat.array_namespace(points, model.weight)
    hidden = xp.matmul(points, model.weight) + model.offset
    hidden = cond(within_gradient(hidden), lambda h: h, lambda h: h * 1.0, hidden)
    return xp.mean(xp.sum(hidden**model.degree, axis=-1)) * model.scale


def expected():
    hidden = POINTS @ WEIGHT + OFFSET
    factor = 2.0 * SCALE / len(POINTS)
    return np.mean(np.sum(hidden**2, axis=-1)) * SCALE, factor * POINTS.T @ hidden, factor * hidden.sum(axis=0)


def as_numpy(array):
    return array.detach().numpy() if isinstance(array, torch.Tensor) else np.asarray(array)


MAKERS = {
    "jax": jnp.asarray,
    "torch": lambda array: torch.as_tensor(array, dtype=torch.float32),
}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("where", [None, "weight", ["weight", "offset"]])
def test_one_source_on_each_framework(name, where):
    make = MAKERS[name]
    model = Model(make(WEIGHT), make(OFFSET), make(SCALE))
    value, gradient = adprotocol.value_and_grad(loss, where=where)(model, make(POINTS))
    true_value, by_weight, by_offset = expected()
    assert type(gradient) is Model
    assert np.allclose(as_numpy(value), true_value, rtol=1e-5)
    assert np.allclose(as_numpy(gradient.weight), by_weight, rtol=1e-5)
    if where == "weight":
        assert gradient.offset is None
    else:
        assert np.allclose(as_numpy(gradient.offset), by_offset, rtol=1e-5)
    assert gradient.scale is gradient.degree is None


def test_boxes_of_autograd_are_known_alone_and_refused_beside_numpy_arrays():
    # NumPy arrays go to autograd. Its boxes have a namespace of their own, so that array-api-compat
    # refuses them beside an array that is not differentiated: its own error, with or without us.
    for gradient in (adprotocol.grad, autograd.grad):
        with pytest.raises(TypeError, match="Multiple namespaces for array inputs"):
            gradient(lambda w: loss(Model(w, OFFSET, SCALE), POINTS))(WEIGHT)
    both = adprotocol.grad(loss, argnums=(0, 1))(Model(WEIGHT, OFFSET, SCALE), POINTS)
    assert np.allclose(both[0].weight, expected()[1])
    assert np.allclose(both[0].offset, expected()[2])
