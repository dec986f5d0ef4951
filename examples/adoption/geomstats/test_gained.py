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
