"""Products with a Jacobian, and what is made of them, beside the framework's own."""

import autograd
import autograd.numpy as anp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from interleave import long_call
from row import compared
from test_gradient import FLATTENS

from adprotocol import grad, jacobian, jvp, vjp

SECONDS = 3.0
FRAMEWORKS = {"torch": (torch, torch.tensor), "eager JAX": (jnp, jnp.asarray), "autograd": (anp, np.asarray)}


def function(xp):
    """Return a function of one array to arrays of its shape."""
    return lambda x: xp.tanh(x) * x


def torch_pull(fun, x, cotangent):
    tracked = x.detach().requires_grad_()
    value = fun(tracked)
    return value.detach(), torch.autograd.grad(value, [tracked], [cotangent])[0]


def jax_pull(fun, x, cotangent):
    value, pull = jax.vjp(fun, x)
    return value, pull(cotangent)[0]


def autograd_pull(fun, x, cotangent):
    pull, value = autograd.make_vjp(fun)(x)
    return value, pull(cotangent)


def our_pull(fun, x, cotangent):
    value, pull = vjp(fun, x)
    return value, pull(cotangent)[0]


def our_push(fun, x, tangent):
    return jvp(fun, (x,), (tangent,))


# Each framework's own: its name, the function, the most that ours may take of it, and what for.
PULLS = {
    "torch": ("autograd.grad by hand", torch_pull, 1.6, ""),
    "eager JAX": ("jax.vjp", jax_pull, 1.4, ""),
    "autograd": ("autograd.make_vjp", autograd_pull, 1.6, FLATTENS),
}
PUSHES = {
    "torch": ("torch.func.jvp", lambda fun, x, v: torch.func.jvp(fun, (x,), (v,)), 1.8, FLATTENS),
    "eager JAX": ("jax.jvp", lambda fun, x, v: jax.jvp(fun, (x,), (v,)), 1.2, ""),
    "autograd": ("autograd.make_jvp", lambda fun, x, v: autograd.make_jvp(fun)(x)(v), 1.6, FLATTENS),
}
JACOBIANS = {
    "torch": ("torch.func.jacrev", torch.func.jacrev),
    "eager JAX": ("jax.jacrev", jax.jacrev),
    "autograd": ("autograd.jacobian", autograd.jacobian),
}
FORWARD = {
    "torch": ("torch.func.jacfwd", torch.func.jacfwd),
    "eager JAX": ("jax.jacfwd", jax.jacfwd),
}


def row(side_by_side, what, reference, ours, theirs, args, at_most, reason=""):  # noqa: PLR0913, PLR0917
    """Check the answer, time both, and return the row."""
    if "JAX" in what:  # which returns before it has computed
        ours, theirs = (lambda *args, fun=fun: jax.block_until_ready(fun(*args)) for fun in (ours, theirs))
    for one, other in zip(map(np.asarray, ours(*args)), map(np.asarray, theirs(*args)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    found = side_by_side(long_call(ours, *args), long_call(theirs, *args), seconds=SECONDS)
    return compared(what, reference, found, at_most=at_most, reason=reason)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_vjp(side_by_side, record, name):
    xp, array = FRAMEWORKS[name]
    reference, theirs, *limit = PULLS[name]
    args = function(xp), array(np.linspace(-1.0, 1.0, 8)), array(np.ones(8))
    record(row(side_by_side, f"vjp and one pull, {name}, one array", reference, our_pull, theirs, args, *limit))


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_jvp(side_by_side, record, name):
    xp, array = FRAMEWORKS[name]
    reference, theirs, *limit = PUSHES[name]
    args = function(xp), array(np.linspace(-1.0, 1.0, 8)), array(np.ones(8))
    record(row(side_by_side, f"jvp, {name}, one array", reference, our_push, theirs, args, *limit))


@pytest.mark.parametrize("size", [10, 1000])
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_jacobian(side_by_side, record, name, size):
    xp, array = FRAMEWORKS[name]
    reference, native = JACOBIANS[name]
    weight = array(np.random.default_rng(0).normal(size=(size, size)) / size)
    fun = lambda x: xp.tanh(weight @ x)
    what = f"jacobian, {size:,} by {size:,}, {name}"
    args = (array(np.linspace(-1.0, 1.0, size)),)
    record(row(side_by_side, what, reference, jacobian(fun), native(fun), args, 1.1))


@pytest.mark.parametrize("name", FORWARD)
def test_jacobian_in_forward_mode(side_by_side, record, name):
    xp, array = FRAMEWORKS[name]
    reference, native = FORWARD[name]
    weight = array(np.random.default_rng(0).normal(size=(1000, 10)))
    fun = lambda x: xp.tanh(weight @ x)
    what = f"jacobian in forward mode, 1,000 by 10, {name}"
    ours, args = jacobian(fun, mode="forward"), (array(np.linspace(-1.0, 1.0, 10)),)
    record(row(side_by_side, what, reference, ours, native(fun), args, 1.1))


# Second derivatives.


def network(xp, array):
    """Return the loss of a multilayer perceptron as a function of its weights, and these, one array each."""
    rng = np.random.default_rng(0)
    weights = [array(rng.normal(size=(64, 64)) / 8.0) for _ in range(3)]
    data = array(rng.normal(size=(64, 64)))

    def loss(weights):
        y = data
        for weight in weights:
            y = xp.tanh(y @ weight)
        return (y**2).mean()

    return loss, weights


def our_hvp(loss):
    return lambda weights, v: jvp(grad(loss), (weights,), (v,))[1]


HVPS = {
    "torch": (
        "torch.func.jvp of torch.func.grad",
        lambda loss: lambda w, v: torch.func.jvp(torch.func.grad(loss), (w,), (v,))[1],
        lambda fun: fun,
    ),
    "JAX under jit": (
        "jax.jvp of jax.grad",
        lambda loss: lambda w, v: jax.jvp(jax.grad(loss), (w,), (v,))[1],
        jax.jit,
    ),
    "autograd": (
        "autograd.hessian_vector_product",
        lambda loss: lambda w, v: list(autograd.hessian_vector_product(loss)(w, v)),
        lambda fun: fun,
    ),
}


@pytest.mark.parametrize("name", HVPS)
def test_hessian_vector_product(side_by_side, record, name):
    reference, native, compiled = HVPS[name]
    xp, array = FRAMEWORKS["eager JAX" if "JAX" in name else name]
    loss, weights = network(xp, array)
    what = f"Hessian-vector product of an MLP, {name}"
    ours, theirs = compiled(our_hvp(loss)), compiled(native(loss))
    record(row(side_by_side, what, reference, ours, theirs, (weights, weights), 1.1))


def laplacian(product, vmap, eye):
    """Return the trace of a Hessian, by a product for each coordinate."""
    return lambda fun: lambda x: vmap(lambda row: (product(fun, x, row) * row).sum())(eye).sum()


def our_product(fun, x, v):
    return jvp(grad(fun), (x,), (v,))[1]


LAPLACIANS = {
    "torch": (
        "torch.func.jvp of torch.func.grad",
        lambda fun, x, v: torch.func.jvp(torch.func.grad(fun), (x,), (v,))[1],
        torch.func.vmap,
    ),
    "JAX under jit": ("jax.jvp of jax.grad", lambda fun, x, v: jax.jvp(jax.grad(fun), (x,), (v,))[1], jax.vmap),
    "autograd": (
        "autograd.hessian_vector_product",
        lambda fun, x, v: autograd.hessian_vector_product(fun)(x, v),
        lambda fun: lambda rows: np.stack([fun(row) for row in rows]),
    ),
}


@pytest.mark.parametrize("name", LAPLACIANS)
def test_laplacian(side_by_side, record, name):
    reference, product, vmap = LAPLACIANS[name]
    xp, array = FRAMEWORKS["eager JAX" if "JAX" in name else name]
    weight = array(np.random.default_rng(0).normal(size=(100, 100)) / 10.0)
    fun = lambda x: (xp.tanh(weight @ x) ** 2).sum()
    eye, compiled = array(np.eye(100)), jax.jit if "JAX" in name else lambda fun: fun
    ours, theirs = (compiled(laplacian(one, vmap, eye)(fun)) for one in (our_product, product))
    args = (array(np.linspace(-1.0, 1.0, 100)),)
    record(
        row(side_by_side, f"Laplacian in 100 dimensions, {name}", reference, lambda x: [ours(x)],
            lambda x: [theirs(x)], args, 1.1)
    )  # fmt: skip
