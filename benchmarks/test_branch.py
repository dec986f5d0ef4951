"""A concrete `cond` beside an `if`, and a gradient by `where` beside that by the double `where`."""

import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from interleave import call, long_call
from row import compared

from adprotocol import cond, where


def successor(x):
    return x + 1.0


def predecessor(x):
    return x - 1.0


def by_hand(pred, true_fun, false_fun, x):
    return true_fun(x) if pred else false_fun(x)


def as_numpy(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


@pytest.mark.parametrize(
    ("what", "operand", "limit"),
    [
        ("plain torch tensor", lambda: torch.ones(3), 1.4),
        ("torch tensor that requires grad", lambda: torch.ones(3, requires_grad=True), 1.3),
        ("computed torch tensor", lambda: torch.ones(3, requires_grad=True) * 2, 1.3),
        ("jax.Array", lambda: jnp.ones(3), 1.3),
    ],
)
def test_cond(side_by_side, record, what, operand, limit):
    args = True, successor, predecessor, operand()
    assert np.array_equal(as_numpy(cond(*args)), as_numpy(by_hand(*args)))
    found = side_by_side(call(cond, *args), call(by_hand, *args))
    reason = "checks the predicate and asks about it"
    record(compared(f"cond(True, x + 1, x - 1), {what}", "an if by hand", found, at_most=limit, reason=reason))


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


SMALL = "guards both functions, and their constants: twice as many small operations"


@pytest.mark.parametrize(
    ("name", "gradient", "size", "limit", "reason"),
    [
        ("torch", of_torch, 10, 3.0, SMALL),
        ("torch", of_torch, 100_000, 1.5, ""),
        ("torch", of_torch, 512_000, 1.4, ""),
        ("JAX under jit", of_jax, 10, 1.5, ""),
        ("JAX under jit", of_jax, 100_000, 1.5, ""),
        ("autograd", of_autograd, 10, 2.2, SMALL),
        ("autograd", of_autograd, 100_000, 1.5, ""),
    ],
)
def test_where(side_by_side, record, name, gradient, size, limit, reason):  # noqa: PLR0913, PLR0917
    x = np.linspace(-1.0, 1.0, size, dtype=np.float32)
    ours, hand = gradient(chosen, x), gradient(chosen_twice, x)
    assert np.allclose(ours(), hand(), rtol=1e-4, atol=1e-5)
    found = side_by_side(long_call(ours), long_call(hand), seconds=3.0)
    what = f"gradient through where, {size:,} elements, {name}"
    record(compared(what, "a double where by hand, one side", found, at_most=limit, reason=reason))
