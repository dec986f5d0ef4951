"""What tensorcircuit-ng gains: one rule for each decomposition, in every mode of JAX and PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorcircuit as tc
import torch

jax.config.update("jax_enable_x64", True)  # noqa: FBT003

RANDOM = np.random.default_rng(0)
TALL, SQUARE = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(3, 3))
EQUAL = np.diag([2.0, 2.0, 1.0])
DECOMPOSITIONS = {
    "svd": (TALL, lambda a: svd(a)[1].sum() + (svd(a)[0][:, :1] * svd(a)[2][:1]).sum()),
    "qr": (TALL, lambda a: (qr(a)[0] ** 3).sum() + (qr(a)[1] ** 2).sum()),
    "wide qr": (TALL.T, lambda a: (qr(a)[0] ** 3).sum() + (qr(a)[1] ** 3).sum()),
    "eigh": (SQUARE + SQUARE.T, lambda a: (eigh(a)[0] ** 2).sum() + (eigh(a)[1][:, 0] ** 4).sum()),
}


def svd(a):
    return tc.backend.svd(a)


def qr(a):
    return tc.backend.qr(a)


def eigh(a):
    return tc.backend.eigh((a + a.mT) / 2)


def along(a, fun, direction, h=1e-5):
    """Return the derivative of a function along a direction, by differences."""
    return (float(fun(a + h * direction)) - float(fun(a - h * direction))) / (2 * h)


@pytest.fixture(params=["jax", "pytorch"])
def framework(request):
    yield tc.set_backend(request.param).name
    tc.set_backend("numpy")


@pytest.fixture(params=DECOMPOSITIONS)
def case(request, framework):
    if (request.param, framework) == ("svd", "pytorch"):
        pytest.skip("the svd of PyTorch is its own")
    a, fun = DECOMPOSITIONS[request.param]
    make, xp = (jnp.asarray, jax) if framework == "jax" else (torch.tensor, torch.func)
    return make(a), fun, make(RANDOM.normal(size=a.shape)), xp


def test_reverse_mode(case):
    a, fun, direction, xp = case
    np.testing.assert_allclose(float((xp.grad(fun)(a) * direction).sum()), along(a, fun, direction), rtol=1e-5)


def test_forward_mode(case):
    a, fun, direction, xp = case
    np.testing.assert_allclose(float(xp.jvp(fun, (a,), (direction,))[1]), along(a, fun, direction), rtol=1e-5)


def test_second_derivatives(case):
    a, fun, direction, xp = case

    def slope(a):
        return (xp.grad(fun)(a) * direction).sum()

    expected = along(a, slope, direction)
    np.testing.assert_allclose(float((xp.grad(slope)(a) * direction).sum()), expected, rtol=1e-4)
    np.testing.assert_allclose(float(xp.jvp(slope, (a,), (direction,))[1]), expected, rtol=1e-4)


def test_a_batch(case):
    a, fun, direction, xp = case
    stack = jnp.stack if xp is jax else torch.stack
    rows = [a, a + direction]
    expected = stack([xp.grad(fun)(row) for row in rows])
    np.testing.assert_allclose(xp.vmap(xp.grad(fun))(stack(rows)), expected, rtol=1e-8, atol=1e-12)


def test_equal_eigenvalues(framework):
    def total(a):
        e, v = eigh(a)
        return ((v * e) @ v.mT * (2 * a)).sum()

    make, xp = (jnp.asarray, jax) if framework == "jax" else (torch.tensor, torch.func)
    np.testing.assert_allclose(np.diag(xp.grad(total)(make(EQUAL))), [8.0, 8.0, 4.0])


def test_a_complex_matrix_has_one_gradient(framework):
    a = TALL + 1j * TALL[::-1]

    def fun(a):
        q, r = qr(a)
        return (abs(r) ** 2).sum() + (q * q).sum().real

    make, xp = (jnp.asarray, jax) if framework == "jax" else (torch.tensor, torch.func)
    gradient = np.asarray(xp.grad(fun)(make(a)))
    gradient = gradient.conj() if framework == "jax" else gradient
    for direction in (TALL, 1j * TALL):
        expected = along(make(a), fun, make(direction.astype(complex)))
        np.testing.assert_allclose((gradient.conj() * direction).sum().real, expected, rtol=1e-5)
