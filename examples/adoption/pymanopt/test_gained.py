"""What pymanopt gains: on PyTorch, Hessians of a cost that ignores an argument or is linear."""

import numpy as np
import pytest
from pymanopt.autodiff.backends import PyTorchBackend

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
