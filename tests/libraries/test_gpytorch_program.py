"""gpytorch: a Gaussian process of which the lengthscale alone is learnt."""

import math

import pytest

gpytorch = pytest.importorskip("gpytorch", reason="needs gpytorch: make libraries")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import adprotocol

X = torch.linspace(0.0, 1.0, 12)
Y = torch.sin(X * 2.0 * math.pi)


class Regression(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(X, Y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def loss(model):
    return -gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(X), Y)


def test_one_hyperparameter_is_learnt():
    model = Regression(gpytorch.likelihoods.GaussianLikelihood()).train()
    value, gradient = adprotocol.value_and_grad(loss, where="*raw_lengthscale")(model)
    native = loss(model)
    native.backward()
    torch.testing.assert_close(value, native.detach())
    learnt = {name: slope for name, slope in gradient.items() if slope is not None}
    assert list(learnt) == ["covar_module.base_kernel.raw_lengthscale"]
    torch.testing.assert_close(*learnt.values(), model.covar_module.base_kernel.raw_lengthscale.grad)
