"""What pyhf 0.7.6 gains: an objective that is differentiated again, by the observed data."""

import numpy as np
import pyhf
import pytest
import torch
from pyhf.infer.mle import twice_nll
from pyhf.optimize.common import _get_tensor_shim
from scipy.special import digamma

JIT_PIECES = {"fixed_idx": [], "variable_idx": [0, 1], "fixed_values": [], "do_stitch": False}
PARS = np.array([1.0, 1.0])


@pytest.fixture(autouse=True)
def _numpy_again():
    yield
    pyhf.set_backend("numpy", default=True)


def objective_and_grad():
    """Return the pair as a function of the observed data."""
    model = pyhf.simplemodels.uncorrelated_background(signal=[5.0], bkg=[50.0], bkg_uncertainty=[7.0])

    def pair(observed):
        # The auxiliary measurement of the background is (50 / 7)².
        data = pyhf.tensorlib.concatenate([observed, pyhf.tensorlib.astensor([(50.0 / 7.0) ** 2])])
        return _get_tensor_shim()(twice_nll, data, model, lambda pars: pars, do_grad=True, jit_pieces=JIT_PIECES)(PARS)

    return pair


def closed_form(observed):
    """Return the derivatives of -2 log(likelihood) and of its gradient by the data: -2 log(λ / n) and -2 λ' / λ."""
    rate, slopes = 55.0, np.array([5.0, 50.0])
    by_data = -2.0 * (np.log(rate) - digamma(observed + 1.0))
    return by_data, -2.0 * slopes / rate


@pytest.mark.parametrize("precision", ["32b", "64b"])
def test_pytorch(precision):
    pyhf.set_backend(pyhf.tensor.pytorch_backend(precision=precision))
    observed = pyhf.tensorlib.astensor([60.0]).requires_grad_()
    value, gradient = objective_and_grad()(observed)
    by_data, mixed = closed_form(60.0)
    (found,) = torch.autograd.grad(value, observed, retain_graph=True)
    np.testing.assert_allclose(found.item(), by_data, rtol=1e-4, atol=1e-4)
    for slope, expected in zip(gradient, mixed, strict=True):
        (found,) = torch.autograd.grad(slope, observed, retain_graph=True)
        np.testing.assert_allclose(found.item(), expected, rtol=1e-4)


def test_pytorch_in_torch_func():
    pyhf.set_backend(pyhf.tensor.pytorch_backend(precision="64b"))
    pair = objective_and_grad()
    observed = pyhf.tensorlib.astensor([60.0])
    found = torch.func.grad(lambda observed: pair(observed)[0])(observed)
    np.testing.assert_allclose(found.item(), closed_form(60.0)[0], rtol=1e-6)
