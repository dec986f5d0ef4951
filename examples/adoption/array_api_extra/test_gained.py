"""Gained: `apply_where` and `lazy_apply` are differentiated right at singular points, under JAX and PyTorch."""

import array_api_extra as xpx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

jax.config.update("jax_enable_x64", True)  # noqa: FBT003

# The Jacobian of a function of the array of one framework, by each way.
JACOBIANS = {
    "jax": lambda f: lambda x: jax.jacrev(f)(jnp.asarray(x)),
    "jax-forward": lambda f: lambda x: jax.jacfwd(f)(jnp.asarray(x)),
    "jax-jit": lambda f: lambda x: jax.jit(jax.jacrev(f))(jnp.asarray(x)),
    "jax-of-jit": lambda f: lambda x: jax.jacrev(jax.jit(f))(jnp.asarray(x)),
    "jax-vmap": lambda f: lambda x: jax.vmap(jax.jacrev(f))(jnp.stack([x, x + 1.0]))[0],
    "torch-backward": lambda f: lambda x: torch.autograd.functional.jacobian(f, torch.tensor(x)),
    "torch-func": lambda f: lambda x: torch.func.jacrev(f)(torch.tensor(x)),
    "torch-forward": lambda f: lambda x: torch.func.jacfwd(f)(torch.tensor(x)),
    "torch-vmap": lambda f: lambda x: torch.func.vmap(torch.func.jacrev(f))(torch.tensor(np.stack([x, x + 1.0])))[0],
}
x = np.array([0.0, 4.0, -1.0])
HESSIANS = {
    "jax": lambda f: jax.jit(jax.hessian(f))(jnp.asarray(x)),
    "torch": lambda f: torch.func.jacrev(torch.func.jacrev(f))(torch.tensor(x)),
    "torch-forward": lambda f: torch.func.hessian(f)(torch.tensor(x)),
}


def of(like):
    return jnp if isinstance(like, jax.Array) else torch


# Each with the diagonals of its first and second derivative at 0, 4 and -1.
CHOICES = {
    "a root": (
        lambda x: xpx.apply_where(x > 0, x, of(x).sqrt, lambda x: 0 * x),
        [0.0, 0.25, 0.0],
        [0.0, -1 / 32, 0.0],
    ),
    "a quotient beside a number": (
        lambda x: xpx.apply_where(x != 0, x, lambda x: 1 / x, fill_value=0.0),
        [0.0, -1 / 16, -1.0],
        [0.0, 1 / 32, -2.0],
    ),
    "a quotient beside an array": (
        lambda x: xpx.apply_where(x != 0, x, lambda x: 1 / x, fill_value=3 * x),
        [3.0, -1 / 16, -1.0],
        [0.0, 1 / 32, -2.0],
    ),
    "x log x of two arguments": (
        lambda x: xpx.apply_where(x > 0, (x, 2 * x), lambda x, y: x * of(x).log(y), lambda x, y: y - x),
        [1.0, np.log(8.0) + 1.0, 1.0],
        [0.0, 0.25, 0.0],
    ),
    "a function of SciPy's": (
        lambda x: xpx.apply_where(x == 0, x, lambda x: 1 - x**2 / 6, lambda x: of(x).sin(x) / x),
        [0.0, np.cos(4.0) / 4 - np.sin(4.0) / 16, np.sin(1.0) - np.cos(1.0)],
        None,
    ),
}


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("way", JACOBIANS)
def test_what_is_not_chosen_reaches_no_derivative(way, name):
    choice, slopes, _ = CHOICES[name]
    np.testing.assert_allclose(JACOBIANS[way](choice)(x), np.diag(slopes), atol=1e-12)


@pytest.mark.parametrize("name", [name for name, (*_, second) in CHOICES.items() if second])
@pytest.mark.parametrize("way", HESSIANS)
def test_nor_a_second_derivative(way, name):
    choice, _, second = CHOICES[name]
    np.testing.assert_allclose(np.einsum("iii->i", np.asarray(HESSIANS[way](choice))), second, atol=1e-12)


def test_a_compiled_function():
    choice, slopes, _ = CHOICES["a root"]
    tensor = torch.tensor(x, requires_grad=True)
    torch.compile(choice, backend="aot_eager")(tensor).sum().backward()
    np.testing.assert_allclose(tensor.grad, slopes)


def test_without_a_derivative_the_value_is_as_it_was():
    choice = CHOICES["a root"][0]
    for value in (jax.jit(choice)(jnp.asarray(x)), jax.vmap(choice)(jnp.asarray(x)), choice(torch.tensor(x))):
        assert value.tolist() == [0.0, 2.0, 0.0]
    assert xpx.apply_where(x > 0, x, np.sqrt, fill_value=0.0).tolist() == [0.0, 2.0, 0.0]


# Functions of NumPy's arrays.


def sine(x):
    def vjp(cotangent, _, x):
        return (cotangent * of(x).cos(x),)

    return xpx.lazy_apply(np.sin, x, as_numpy=True, vjp=vjp)


@pytest.mark.parametrize("way", JACOBIANS)
def test_a_function_of_numpy_has_a_derivative(way):
    np.testing.assert_allclose(JACOBIANS[way](sine)(x), np.diag(np.cos(x)), atol=1e-12)


@pytest.mark.parametrize("way", ["jax", "jax-jit", "torch-func"])
def test_so_has_one_of_several_results(way):
    def both(x):
        def vjp(cotangents, results, _):
            return (cotangents[0] * results[1] - cotangents[1] * results[0],)

        results = xpx.lazy_apply(
            lambda x: (np.sin(x), np.cos(x)), x, shape=(x.shape, x.shape), dtype=(x.dtype,) * 2, as_numpy=True, vjp=vjp
        )
        return results[0] * 2 + results[1]

    np.testing.assert_allclose(JACOBIANS[way](both)(x), np.diag(2 * np.cos(x) - np.sin(x)), atol=1e-12)


def test_it_runs_in_a_compiled_function():
    tensor = torch.tensor(x, requires_grad=True)
    torch.compile(sine, backend="aot_eager")(tensor).sum().backward()
    np.testing.assert_allclose(tensor.grad, np.cos(x))
    np.testing.assert_allclose(torch.func.vmap(sine)(torch.tensor(x)), np.sin(x))
    np.testing.assert_allclose(jax.vmap(sine)(jnp.asarray(x)), np.sin(x))


def test_without_a_rule_a_derivative_is_refused():
    silent = lambda x: xpx.lazy_apply(np.sin, x, as_numpy=True)
    for way in ("jax", "jax-jit", "torch-func"):
        with pytest.raises(Exception, match="is a host function, which has no derivative"):
            JACOBIANS[way](silent)(x)
