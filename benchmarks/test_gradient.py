"""`value_and_grad` of small models beside the same result by hand, or by the framework's own function."""

import autograd
import autograd.numpy as anp
import by_hand
import jax
import numpy as np
import pytest
import torch
from interleave import long_call
from row import compared

import adprotocol

SECONDS = 3.0


def squares(x):
    return (x * x).sum()


def squares_of_values(model):
    total = 0.0
    for leaf in model.values():
        total = total + (leaf * leaf).sum()
    return total


def mean_square(module, data):
    return module(data).pow(2).mean()


def parameters_of(module):
    return squares_of_values(dict(module.named_parameters()))


def mlp():
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    return torch.nn.Sequential(*layers)


def tensors(count):
    return {f"w{i}": torch.full((8,), 0.5) for i in range(count)}


FLATTENS = "flattens the arguments, checks the result, and keeps gradients apart"
SEARCHES = f"{FLATTENS}; searches the graph for what else is differentiated"
CASES = {
    "one tensor": (squares, by_hand.of_tensor, lambda: (torch.ones(8),), 1.8),
    "dict of 10": (squares_of_values, by_hand.of_dict, lambda: (tensors(10),), 1.6),
    "three-layer module": (mean_square, by_hand.of_module, lambda: (mlp(), torch.ones(4, 8)), 2.3),
    "dict of 1,000": (squares_of_values, by_hand.of_dict, lambda: (tensors(1000),), 1.25),
    "module of 1,000 parameters": (
        parameters_of,
        by_hand.of_module,
        lambda: (torch.nn.ParameterDict(tensors(1000)),),
        1.35,
    ),
}


def leaves(gradient):
    return list(gradient.values()) if isinstance(gradient, dict) else [gradient]


@pytest.mark.parametrize("what", CASES)
def test_torch(side_by_side, record, what):
    fun, reference, make, limit = CASES[what]
    arguments = make()
    ours = adprotocol.value_and_grad(fun)
    (value, gradient), (expected, gradients) = ours(*arguments), reference(fun, *arguments)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(leaves(gradient), leaves(gradients))
    found = side_by_side(long_call(ours, *arguments), long_call(reference, fun, *arguments), seconds=SECONDS)
    record(compared(f"value_and_grad, torch, {what}", "by hand", found, at_most=limit, reason=SEARCHES))


def squares_of_arrays(x):
    return anp.sum(x * x)


@pytest.mark.parametrize(("what", "x", "limit"), [("one array", np.ones(8), 1.25), ("one float", 3.0, 1.5)])
def test_autograd(side_by_side, record, what, x, limit):
    ours, native = adprotocol.value_and_grad(squares_of_arrays), autograd.value_and_grad(squares_of_arrays)
    np.testing.assert_array_equal(ours(x)[1], native(x)[1])
    found = side_by_side(long_call(ours, x), long_call(native, x), seconds=SECONDS)
    what = f"value_and_grad, autograd, {what}"
    record(compared(what, "autograd.value_and_grad", found, at_most=limit, reason=FLATTENS))


@pytest.mark.parametrize("count", [1, 10])
def test_jax(side_by_side, record, count):
    model = {f"w{i}": jax.numpy.ones(8) for i in range(count)}
    ours, native = adprotocol.value_and_grad(squares_of_values), jax.value_and_grad(squares_of_values)
    np.testing.assert_array_equal(ours(model)[1]["w0"], native(model)[1]["w0"])
    found = side_by_side(long_call(ours, model), long_call(native, model), seconds=SECONDS)
    record(compared(f"value_and_grad, eager JAX, dict of {count}", "jax.value_and_grad", found, at_most=1.1))
