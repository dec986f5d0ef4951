"""A call of a function with a derivative rule, and its gradient, beside a rule written for the framework alone."""

import functools

import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from autograd.extend import defvjp, primitive
from interleave import call, long_call
from row import compared, counted
from test_compiled import instructions

import adprotocol

SECONDS = 3.0
CHECKS = "refuses changes in place, and searches closures for what is differentiated"


def rule_of(exp):
    """Return the logistic function with a rule, of the functions of one framework."""

    @adprotocol.custom_derivative
    def logistic(x):
        return 1.0 / (1.0 + exp(-x))

    @logistic.defvjp
    def logistic_vjp(cotangent, y, x):
        return (cotangent * y * (1.0 - y),)

    return logistic


class Logistic(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return 1.0 / (1.0 + torch.exp(-x))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, cotangent):
        (y,) = ctx.saved_tensors
        return cotangent * y * (1.0 - y)


@jax.custom_vjp
def jax_logistic(x):
    return 1.0 / (1.0 + jnp.exp(-x))


def _forward(x):
    y = jax_logistic(x)
    return y, y


def _backward(y, cotangent):
    return (cotangent * y * (1.0 - y),)


jax_logistic.defvjp(_forward, _backward)


@primitive
def autograd_logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


defvjp(autograd_logistic, lambda y, x: lambda cotangent: cotangent * y * (1.0 - y))


def of_torch(fun):
    def gradient(x):
        return torch.autograd.grad(fun(x).sum(), [x])[0]

    return gradient, torch.full((8,), 0.3, requires_grad=True)


def of_jax(fun):
    return jax.grad(lambda x: fun(x).sum()), jnp.full((8,), 0.3)


def of_autograd(fun):
    return autograd.grad(lambda x: anp.sum(fun(x))), np.full((8,), 0.3)


@pytest.mark.parametrize(
    ("name", "differentiate", "exp", "theirs", "reference", "limit"),
    [
        ("torch", of_torch, torch.exp, Logistic.apply, "torch.autograd.Function", 1.8),
        ("eager JAX", of_jax, jnp.exp, jax_logistic, "jax.custom_vjp", 1.5),
        ("autograd", of_autograd, np.exp, autograd_logistic, "autograd.extend.primitive", 2.0),
    ],
)
def test_gradient(side_by_side, record, name, differentiate, exp, theirs, reference, limit):  # noqa: PLR0913, PLR0917
    ours, x = differentiate(rule_of(exp))
    hand, _ = differentiate(theirs)
    np.testing.assert_allclose(ours(x), hand(x), rtol=1e-6)
    found = side_by_side(long_call(ours, x), long_call(hand, x), seconds=SECONDS)
    record(compared(f"a rule, its call and gradient, {name}", reference, found, at_most=limit, reason=CHECKS))


def test_numpy_alone(side_by_side, record):
    fun, x = rule_of(np.exp), np.full((8,), 0.3)
    np.testing.assert_array_equal(fun(x), fun.fun(x))
    found = side_by_side(call(fun, x), call(fun.fun, x))
    reason = "searches the arguments for a framework's values"
    record(compared("a rule, NumPy alone", "the function itself", found, at_most=2.5, reason=reason))


def test_compiled(benchmark, record):
    x = jnp.full((8,), 0.3)
    ours, theirs = jax.grad(lambda x: rule_of(jnp.exp)(x).sum()), jax.grad(lambda x: jax_logistic(x).sum())
    np.testing.assert_allclose(jax.jit(ours)(x), jax.jit(theirs)(x), rtol=1e-6)
    found = benchmark.pedantic(instructions, args=(ours, x), rounds=1)
    record(counted("HLO instructions, jit of the gradient by a rule", "jax.custom_vjp", found, instructions(theirs, x)))


def logistic_of_numpy(x):
    return (1.0 / (1.0 + np.exp(-x))).astype(x.dtype)


class HostLogistic(Logistic):
    @staticmethod
    def forward(x):
        return torch.from_numpy(logistic_of_numpy(x.numpy(force=True)))


@jax.custom_vjp
def jax_host_logistic(x):
    return jax.pure_callback(logistic_of_numpy, x, x)


jax_host_logistic.defvjp(lambda x: (jax_host_logistic(x),) * 2, _backward)


@pytest.mark.parametrize(
    ("name", "differentiate", "theirs", "reference", "limit"),
    [
        ("torch", of_torch, HostLogistic.apply, "torch.autograd.Function", 2.5),
        ("eager JAX", of_jax, jax_host_logistic, "jax.custom_vjp of jax.pure_callback", 1.5),
        ("autograd", of_autograd, autograd_logistic, "autograd.extend.primitive", 2.1),
    ],
)
def test_host_rule(side_by_side, record, name, differentiate, theirs, reference, limit):  # noqa: PLR0913, PLR0917
    host = adprotocol.custom_derivative(adprotocol.host_function(logistic_of_numpy, like=lambda x: x, batched=True))
    host.defvjp(lambda cotangent, y, _: (cotangent * y * (1.0 - y),))
    ours, x = differentiate(host)
    hand, _ = differentiate(theirs)
    np.testing.assert_allclose(ours(x), hand(x), rtol=1e-6)
    found = side_by_side(long_call(ours, x), long_call(hand, x), seconds=SECONDS)
    what = f"a rule of a host function, its call and gradient, {name}"
    record(compared(what, reference, found, at_most=limit, reason=CHECKS))


def test_host_function_under_vmap(side_by_side, record):
    x = jnp.full((4, 8), 0.3)
    exp = functools.partial(np.exp, dtype=np.float32)
    ours = jax.vmap(adprotocol.host_function(exp, like=lambda x: x, batched=True))
    hand = jax.vmap(lambda x: jax.pure_callback(exp, x, x, vmap_method="broadcast_all"))
    np.testing.assert_allclose(ours(x), hand(x), rtol=1e-6)
    found = side_by_side(long_call(ours, x), long_call(hand, x), seconds=SECONDS)
    record(compared("a host function under vmap, eager JAX", "jax.pure_callback", found, at_most=1.2))
