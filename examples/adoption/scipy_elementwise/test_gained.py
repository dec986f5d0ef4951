"""What SciPy's elementwise solvers gain: JAX, and derivatives of roots and minima in every mode of JAX and PyTorch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from scipy.optimize.elementwise import bracket_root, find_minimum, find_root

jax.config.update("jax_enable_x64", True)  # noqa: FBT003

C = np.array([3.0, 4.0, 5.0])
ROOTS = find_root(lambda x, c: x**3 - 2 * x - c, (1.5, 4.0), args=(C,)).x
SLOPES = 1 / (3 * ROOTS**2 - 2)
CURVATURES = -6 * ROOTS * SLOPES**3


def cubic(x, c):
    return x**3 - 2 * x - c


def root(c):
    return find_root(cubic, (0 * c + 1.5, 0 * c + 4.0), args=(c,)).x


def bracketed(c):
    """Return a root in a bracket that is searched for."""
    bracket = bracket_root(cubic, 0 * c, 0 * c + 1.0, args=(c,)).bracket
    return find_root(cubic, bracket, args=(c,)).x


def lowest(c):
    """Return where (x - c²)² + c³ is lowest, which is c², and how low, which is c³."""
    found = find_minimum(lambda x, c: (x - c**2) ** 2 + c**3, (0 * c, 0 * c + 5.0, 0 * c + 50.0), args=(c,))
    return found.x, found.f_x


@pytest.fixture(params=["jax", "torch"])
def framework(request):
    """Yield the array of C, and the transformations."""
    return (jnp.asarray(C), jax) if request.param == "jax" else (torch.tensor(C), torch.func)


def check(actual, expected, rtol=1e-8):
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=rtol)


@pytest.mark.parametrize("fun", [root, bracketed])
def test_values(framework, fun):
    check(fun(framework[0]), ROOTS)


@pytest.mark.parametrize("fun", [root, bracketed])
def test_reverse_mode(framework, fun):
    c, xp = framework
    check(xp.grad(lambda c: fun(c).sum())(c), SLOPES)


def test_forward_mode(framework):
    c, xp = framework
    check(xp.jvp(root, (c,), (2 * c,))[1], 2 * C * SLOPES)


def test_a_hessian(framework):
    c, xp = framework
    check(xp.hessian(lambda c: root(c).sum())(c), np.diag(CURVATURES), rtol=1e-7)


def test_a_batch(framework):
    c, xp = framework
    check(xp.vmap(xp.grad(root))(c), SLOPES)


def test_a_minimum(framework):
    c, xp = framework
    for i, expected in enumerate((2 * C, 3 * C**2)):
        check(xp.grad(lambda c, i=i: lowest(c)[i].sum())(c), expected, rtol=1e-6)


def test_a_compiled_program_of_jax():
    for fun in (root, bracketed):
        check(jax.jit(fun)(jnp.asarray(C)), ROOTS)
        check(jax.jit(jax.vmap(jax.grad(fun)))(jnp.asarray(C)), SLOPES)


def test_backward():
    c = torch.tensor(C, requires_grad=True)
    found = find_root(cubic, (torch.tensor(1.5), torch.tensor(4.0)), args=(c,))
    (found.x + found.f_x).sum().backward()
    check(c.grad, SLOPES)
    assert not found.bracket[0].requires_grad


def test_what_the_function_closes_over_is_refused_if_it_is_differentiated(framework):
    c, xp = framework

    def hidden(c):
        return find_root(lambda x: cubic(x, c), (0 * c.sum() + 1.5, 0 * c.sum() + 4.0)).x

    with pytest.raises(Exception, match=r"pass it in `args`|pass the value as an argument"):
        xp.grad(hidden)(c[0])
    tracked = torch.tensor(3.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="pass it in `args`"):
        find_root(lambda x: cubic(x, tracked), (torch.tensor(1.5), torch.tensor(4.0)))
