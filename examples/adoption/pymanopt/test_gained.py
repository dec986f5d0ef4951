"""What pymanopt gains: on PyTorch, Hessians of a cost that ignores an argument or is linear.

On every back end a product with a Hessian runs the cost once, as before.
"""

import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from pymanopt.autodiff.backends import AutogradBackend, JaxBackend, PyTorchBackend

jax.config.update("jax_enable_x64", True)  # noqa: FBT003

X, V = np.array([1.0, 2.0]), np.array([1.0, 0.0])


@pytest.fixture
def backend():
    return PyTorchBackend()


def test_a_cost_that_ignores_an_argument(backend):
    operator = backend.generate_hessian_operator(lambda x, _: (x**3).sum(), 2)
    first, second = operator(X, X, V, V)
    np.testing.assert_allclose(first, 6.0 * X * V)
    np.testing.assert_allclose(second, 0.0)


def test_a_linear_cost(backend):
    operator = backend.generate_hessian_operator(lambda x: (3.0 * x).sum(), 1)
    np.testing.assert_allclose(operator(X, V), 0.0)


@pytest.mark.parametrize(
    ("backend", "xp"),
    [(AutogradBackend(), anp), (JaxBackend(), jnp), (PyTorchBackend(), torch)],
    ids=["autograd", "jax", "torch"],
)
def test_a_product_runs_the_cost_once(backend, xp):
    rows = []

    def cost(x):
        rows.append(x)
        return xp.exp(x).sum() + x[0] ** 2 * x[1]

    product = backend.generate_hessian_operator(cost, 1)(X, V)
    np.testing.assert_allclose(product, [np.exp(1.0) + 2.0 * X[1], 2.0 * X[0]])
    # In one run of the cost.
    assert len(rows) == 1
