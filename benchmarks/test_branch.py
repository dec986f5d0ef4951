"""What a concrete `cond` adds to its branch, and a gradient by `where` beside that by the double `where`."""

import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from interleave import call, long_call
from row import added, compared

from adprotocol import cond, where


def identity(x):
    return x


def successor(x):
    return x + 1.0


def as_numpy(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


BRANCHES = {"identity": identity, "x + 1": successor}


@pytest.mark.parametrize(
    ("what", "operand", "name", "microseconds"),
    [
        ("plain torch tensor", lambda: torch.ones(3), "identity", 0.7),
        ("plain torch tensor", lambda: torch.ones(3), "x + 1", 0.8),
        ("torch tensor that requires grad", lambda: torch.ones(3, requires_grad=True), "identity", 1.0),
        ("torch tensor that requires grad", lambda: torch.ones(3, requires_grad=True), "x + 1", 1.2),
        ("computed torch tensor", lambda: torch.ones(3, requires_grad=True) * 2, "x + 1", None),
        ("jax.Array", lambda: jax.numpy.ones(3), "identity", None),
        ("float", lambda: 1.0, "identity", None),
    ],
)
def test_cond(side_by_side, record, what, operand, name, microseconds):  # noqa: PLR0913, PLR0917
    x, chosen, branch = operand(), True, BRANCHES[name]
    assert np.array_equal(as_numpy(cond(chosen, branch, identity, x)), as_numpy(branch(x)))
    found = side_by_side(call(cond, chosen, branch, successor, x), call(branch, x))
    record(added(f"cond(True, {name}, …), {what}", "the branch alone", found, microseconds))


def of_torch(fun, x):
    leaf = torch.from_numpy(x).requires_grad_()
    return lambda: torch.autograd.grad(fun(torch, leaf).sum(), [leaf])[0]


def of_jax(fun, x):
    gradient, array = jax.jit(jax.grad(lambda x: fun(jnp, x).sum())), jnp.asarray(x)
    return lambda: jax.block_until_ready(gradient(array))


def of_autograd(fun, x):
    gradient = autograd.grad(lambda x: anp.sum(fun(anp, x)))
    return lambda: gradient(x)


def chosen(xp, x):
    return where(x > 0.0, lambda x: xp.sqrt(x) * xp.log(x), lambda x: 2.0 * x, x)


def chosen_twice(xp, x):
    positive = xp.where(x > 0.0, x, xp.ones_like(x))
    return xp.where(x > 0.0, xp.sqrt(positive) * xp.log(positive), 2.0 * x)


@pytest.mark.parametrize("size", [10, 100_000])
@pytest.mark.parametrize(
    ("name", "gradient"), [("torch", of_torch), ("JAX under jit", of_jax), ("autograd", of_autograd)]
)
def test_where(side_by_side, record, name, gradient, size):
    x = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    ours, hand = gradient(chosen, x), gradient(chosen_twice, x)
    assert np.allclose(ours(), hand(), rtol=1e-4, atol=1e-5)
    found = side_by_side(long_call(ours), long_call(hand), seconds=3.0)
    what = f"gradient through where, {size:,} elements, {name}"
    record(compared(what, "the double where by hand", found, at_most=1.5))
