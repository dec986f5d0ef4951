"""What geomstats 2.8.0 gains on each back end: gradients that stay right when they are taken again, and rules of any
number of arguments, in forward mode too."""

import os

import autograd
import geomstats.backend as gs
import numpy as np
import pytest
import torch

IS_PYTORCH = os.environ["GEOMSTATS_BACKEND"] == "pytorch"
on_pytorch = pytest.mark.skipif(not IS_PYTORCH, reason="autograd's arrays have no flags and no .grad")
X = gs.array([1.0, 2.0])


def cube(x):
    return gs.sum(x**3)


@on_pytorch
def test_a_gradient_is_the_same_the_second_time():
    both, point = gs.autodiff.value_and_grad(cube), X.clone().requires_grad_()
    for _ in range(2):
        assert both(point)[1].tolist() == [3.0, 12.0]


@on_pytorch
def test_nothing_accumulates_in_what_the_function_uses():
    weight = torch.ones(2, requires_grad=True)
    assert gs.autodiff.value_and_grad(lambda x: gs.sum(weight * x))(X)[1].tolist() == [1.0, 1.0]
    assert weight.grad is None


def test_an_argument_that_is_not_used_has_a_gradient_of_zeros():
    _, (_, unused) = gs.autodiff.value_and_grad(lambda x, _: gs.sum(x**2), argnums=(0, 1))(X, X)
    np.testing.assert_array_equal(unused, [0.0, 0.0])


def test_the_gradient_of_a_gradient():
    both = gs.autodiff.value_and_grad(cube)
    _, second = gs.autodiff.value_and_grad(lambda x: gs.sum(both(x)[1]))(X)
    np.testing.assert_allclose(second, [6.0, 12.0])


def with_gradients():
    """Return a function of four arguments with a gradient for each."""

    @gs.autodiff.custom_gradient(lambda x, *_: 2.0 * x, *[lambda *args: args[1]] * 3)
    def squared_norm(x, _a, _b, _c):
        return gs.sum(x**2)

    return squared_norm


def test_a_rule_of_four_arguments():
    value, gradient = gs.autodiff.value_and_grad(with_gradients())(X, X, X, X)
    np.testing.assert_allclose(value, 5.0)
    np.testing.assert_allclose(gradient, [2.0, 4.0])


def test_a_rule_in_forward_mode():
    @gs.autodiff.custom_gradient(lambda x: 2.0 * x)
    def squared_norm(x):
        return gs.sum(x**2)

    tangent = torch.func.jvp(squared_norm, (X,), (X,))[1] if IS_PYTORCH else autograd.make_jvp(squared_norm)(X)(X)[1]
    np.testing.assert_allclose(tangent, 10.0)


# Jacobians and Hessians.

POINTS = gs.array([[0.3, 1.1], [0.9, -0.4]])


def immersion(point):
    return gs.stack([point[0] * point[1], point[0] ** 2, gs.sin(point[1])])


def jacobian_of(p):
    return [[p[1], p[0]], [2.0 * p[0], 0.0], [0.0, np.cos(p[1])]]


def hessian_of(p):
    return [[[0.0, 1.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, -np.sin(p[1])]]]


def test_a_vector_valued_hessian_needs_no_dimension():
    hessian = gs.autodiff.hessian_vec(immersion)(POINTS)
    np.testing.assert_allclose(hessian, [hessian_of(np.asarray(p)) for p in POINTS], atol=1e-6)


def test_value_jacobian_and_hessian_run_the_function_once_for_each_point():
    calls = []

    def counted(point):
        calls.append(1)
        return immersion(point)

    value, jacobian, hessian = gs.autodiff.value_jacobian_and_hessian(counted, func_out_ndim=3)(POINTS)
    assert len(calls) == len(POINTS)
    np.testing.assert_allclose(value, np.stack([np.asarray(immersion(p)) for p in POINTS]), atol=1e-6)
    np.testing.assert_allclose(jacobian, [jacobian_of(np.asarray(p)) for p in POINTS], atol=1e-6)
    np.testing.assert_allclose(hessian, [hessian_of(np.asarray(p)) for p in POINTS], atol=1e-6)


def test_a_jacobian_is_differentiated():
    metric = lambda p: gs.matmul(gs.transpose(gs.autodiff.jacobian(immersion)(p)), gs.autodiff.jacobian(immersion)(p))
    p = POINTS[0]
    x, y = map(float, p)
    np.testing.assert_allclose(metric(p), [[y**2 + 4 * x**2, x * y], [x * y, x**2 + np.cos(y) ** 2]], atol=1e-6)
    slopes = gs.autodiff.jacobian(metric)(p)
    np.testing.assert_allclose(slopes[0], [[8 * x, 2 * y], [y, x]], atol=1e-6)


def test_the_hessian_of_a_linear_function_is_zero():
    np.testing.assert_array_equal(gs.autodiff.hessian(lambda p: 2.0 * gs.sum(p))(POINTS[0]), np.zeros((2, 2)))
