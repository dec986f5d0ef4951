"""What DeepXDE 1.15.0 gains on JAX and PyTorch: rows and columns in either mode, derivatives of entries."""

import deepxde as dde
import numpy as np
import pytest
from deepxde import backend as bkd

IS_JAX = dde.backend.backend_name == "jax"
POINTS = np.array([[0.3, 1.1], [0.9, -0.4], [-0.2, 0.7]], dtype="float32")


@pytest.fixture(params=["reverse", "forward"])
def mode(request):
    """Differentiate in this mode, with nothing remembered."""
    dde.config.set_default_autodiff(request.param)
    yield request.param
    dde.grad.clear()
    dde.config.set_default_autodiff("reverse")


def field(x):
    """Return three components at points (x, y)."""
    a, b = x[..., 0], x[..., 1]
    return bkd.stack([a * b, a**2 * b, bkd.sin(b)], -1)


def inputs_and_outputs(mode, function=field):
    """Return them as a model hands them to an equation."""
    x = bkd.as_tensor(POINTS)
    if not IS_JAX:
        x.requires_grad_()
    return x, (function(x), function) if IS_JAX or mode == "forward" else function(x)


def values(derivative):
    """Return them as a NumPy array."""
    return bkd.to_numpy(derivative[0] if isinstance(derivative, tuple) else derivative)


def jacobian_of(points):
    a, b = points.T
    zero = np.zeros_like(a)
    return np.stack([np.stack([b, a], -1), np.stack([2 * a * b, a**2], -1), np.stack([zero, np.cos(b)], -1)], 1)


def test_a_row(mode):
    x, y = inputs_and_outputs(mode)
    for i in range(3):
        np.testing.assert_allclose(values(dde.grad.jacobian(y, x, i=i)), jacobian_of(POINTS)[:, i], rtol=1e-5)


def test_a_column(mode):
    if mode == "reverse" and not IS_JAX:
        pytest.skip("a tensor of PyTorch has no function to push forward")
    x, y = inputs_and_outputs(mode)
    for j in range(2):
        np.testing.assert_allclose(values(dde.grad.jacobian(y, x, j=j)), jacobian_of(POINTS)[:, :, j], rtol=1e-5)


def test_the_derivative_of_an_entry(mode):
    x, y = inputs_and_outputs(mode)
    entry = dde.grad.jacobian(y, x, i=1, j=0)
    slopes = values(dde.grad.jacobian(entry, x, i=0, j=1))[:, 0]
    np.testing.assert_allclose(slopes, 2 * POINTS[:, 0], rtol=1e-5)


def test_hessians(mode):
    x, y = inputs_and_outputs(mode)
    a, b = POINTS.T
    for (i, j), expected in {(0, 0): 2 * b, (0, 1): 2 * a, (1, 1): 0 * a}.items():
        hessian = values(dde.grad.hessian(y, x, component=1, i=i, j=j))
        np.testing.assert_allclose(hessian[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_a_function_without_forward_mode(mode):
    """Forward mode derives the product from reverse mode, where the framework has no rule."""
    if IS_JAX:
        import jax

        @jax.custom_vjp
        def squared(x):
            return x**2

        squared.defvjp(lambda x: (x**2, x), lambda x, cotangent: (2 * x * cotangent,))
    else:
        import torch

        class Square(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**2

            @staticmethod
            def backward(ctx, cotangent):
                return 2 * ctx.saved_tensors[0] * cotangent

        squared = Square.apply
    x, y = inputs_and_outputs(mode, lambda x: squared(x)[..., :1])
    np.testing.assert_allclose(values(dde.grad.jacobian(y, x, i=0, j=0)), 2 * POINTS[:, :1], rtol=1e-5)
