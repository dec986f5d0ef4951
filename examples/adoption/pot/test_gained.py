"""What POT gains: whole gradients on JAX, transport costs that JAX and torch.func differentiate."""

import jax
import jax.numpy as jnp
import numpy as np
import ot
import pytest
import torch
from ot.backend import get_backend

A, B = [0.5, 0.5], [0.3, 0.7]
COSTS = [[0.1, 1.0], [0.9, 0.2]]
PLAN = [[0.3, 0.2], [0.0, 0.5]]


def test_a_gradient_that_is_set_is_the_whole_one_on_jax():
    backend = get_backend(jnp.ones(1))

    def square(x):
        return backend.set_gradients((x**2).sum(), (x,), (2.0 * backend.detach(x),))

    np.testing.assert_allclose(jax.grad(square)(jnp.array([1.0, -3.0])), [2.0, -6.0])
    np.testing.assert_allclose(jax.jvp(square, (jnp.ones(2),), (jnp.ones(2),))[1], 4.0)


def test_jax_differentiates_the_cost_of_a_transport():
    got = jax.grad(lambda costs: ot.emd2(jnp.array(A), jnp.array(B), costs))(jnp.array(COSTS))
    np.testing.assert_allclose(got, PLAN, atol=1e-6)


def test_torch_func_differentiates_what_is_set():
    backend = get_backend(torch.ones(1))

    def square(x):
        return backend.set_gradients((x**2).sum(), (x,), (2.0 * x.detach(),))

    x = torch.tensor([1.0, -3.0])
    np.testing.assert_allclose(torch.func.grad(square)(x), [2.0, -6.0])
    np.testing.assert_allclose(torch.func.jvp(square, (x,), (torch.ones(2),))[1], -4.0)


def test_a_second_derivative_that_is_not_known_raises():
    costs = torch.tensor(COSTS, requires_grad=True)
    cost = ot.emd2(torch.tensor(A), torch.tensor(B), costs)
    (gradient,) = torch.autograd.grad(cost * costs.sum(), costs, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiated"):
        torch.autograd.grad(gradient.sum(), costs)
