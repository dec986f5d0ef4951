"""Other libraries on the same work."""

import json
import os
import subprocess
from pathlib import Path

import equinox
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx
from interleave import long_call
from row import Row, compared

import adprotocol

SECONDS = 3.0
HERE = Path(__file__).parent
INTERPRETER = HERE.parent / ".venv-peers" / "bin" / "python"


class Dense(equinox.Module):
    w: jax.Array
    b: jax.Array
    width: int


class NnxDense(nnx.Module):
    def __init__(self):
        self.w = nnx.Param(jnp.full((8, 8), 0.1))
        self.b = nnx.Param(jnp.zeros(8))


def loss(model, x):
    return jnp.sum(jnp.tanh(x @ model.w + model.b) ** 2)


@pytest.mark.parametrize("jitted", [False, True])
def test_equinox(side_by_side, record, jitted):
    model, x = Dense(jnp.full((8, 8), 0.1), jnp.zeros(8), 8), jnp.ones(8)
    ours, theirs = adprotocol.value_and_grad(loss), equinox.filter_value_and_grad(loss)
    if jitted:
        ours, theirs = equinox.filter_jit(ours), equinox.filter_jit(theirs)
    np.testing.assert_allclose(ours(model, x)[1].w, theirs(model, x)[1].w)
    found = side_by_side(long_call(ours, model, x), long_call(theirs, model, x), seconds=SECONDS)
    how = "under filter_jit" if jitted else "eager"
    record(compared(f"value_and_grad, Equinox module, {how}", "equinox.filter_value_and_grad", found, at_most=1.05))


def test_nnx(side_by_side, record):
    model, theirs_model, x = {"w": jnp.full((8, 8), 0.1), "b": jnp.zeros(8)}, NnxDense(), jnp.ones(8)

    def of_dict(model, x):
        return jnp.sum(jnp.tanh(x @ model["w"] + model["b"]) ** 2)

    ours, theirs = adprotocol.value_and_grad(of_dict), nnx.value_and_grad(loss)
    np.testing.assert_allclose(ours(model, x)[1]["w"], theirs(theirs_model, x)[1]["w"][...], rtol=1e-6)
    found = side_by_side(long_call(ours, model, x), long_call(theirs, theirs_model, x), seconds=SECONDS)
    record(compared("value_and_grad, dict beside an nnx.Module, eager", "flax.nnx.value_and_grad", found, at_most=1.0))


def test_functional_call(side_by_side, record):
    module, x = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)), torch.ones(4, 8)

    def theirs(module, x):
        def of(parameters):
            return torch.func.functional_call(module, parameters, (x,)).pow(2).mean()

        gradient, value = torch.func.grad_and_value(of)(dict(module.named_parameters()))
        return value, gradient

    ours = adprotocol.value_and_grad(lambda module, x: module(x).pow(2).mean())
    torch.testing.assert_close(list(ours(module, x)[1].values()), list(theirs(module, x)[1].values()))
    found = side_by_side(long_call(ours, module, x), long_call(theirs, module, x), seconds=SECONDS)
    record(compared("value_and_grad, nn.Module", "torch.func.grad with functional_call", found, at_most=1.0))


def test_others(benchmark, record):
    interpreter = Path(os.environ.get("ADPROTOCOL_PEERS_PYTHON") or INTERPRETER)
    if not interpreter.exists():
        benchmark.pedantic(lambda: None, rounds=1)
        record(Row("beside Keras, POT and geomstats", "", "skipped: not installed, run `make bench-peers-env`"))
        return

    def rows():
        run = subprocess.run([interpreter, HERE / "peers_side.py"], check=False, capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
        return [Row(**row) for row in json.loads(run.stdout)]

    record(*benchmark.pedantic(rows, rounds=1))
