"""numpyro: the log density of a regression, and its variational inference."""

import pytest

numpyro = pytest.importorskip("numpyro", reason="needs numpyro: make libraries")
import jax
import jax.numpy as jnp
from numpyro import distributions, optim
from numpyro.infer import SVI, Trace_ELBO, autoguide
from numpyro.infer.util import log_density

import adprotocol
from adprotocol import cond, within_gradient

X = jnp.linspace(-1.0, 1.0, 8)
Y = 2.0 * X + 0.5


def model(x, y=None):
    slope = numpyro.sample("slope", distributions.Normal(0.0, 1.0))
    shift = numpyro.sample("shift", distributions.Normal(0.0, 1.0))
    mean = cond(within_gradient(slope), lambda: slope * x + shift, lambda: slope * x + shift)
    numpyro.sample("y", distributions.Normal(mean, 0.1), obs=y)


def test_the_gradient_of_the_log_density_is_that_of_jax():
    at = {"slope": jnp.float32(1.0), "shift": jnp.float32(0.0)}
    density = lambda at: log_density(model, (X, Y), {}, at)[0]
    gradient = adprotocol.grad(density, where="slope")(at)
    assert jnp.allclose(gradient["slope"], jax.grad(density)(at)["slope"])
    assert gradient["shift"] is None


def test_inference_finds_the_line():
    inference = SVI(model, autoguide.AutoDelta(model), optim.Adam(0.1), Trace_ELBO())
    found = inference.run(jax.random.key(0), 200, X, Y, progress_bar=False).params
    assert abs(found["slope_auto_loc"] - 2.0) < 0.1
    assert abs(found["shift_auto_loc"] - 0.5) < 0.1
