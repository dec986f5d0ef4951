"""Gained: derivatives through SciPy, at its singular points too, under JAX's transformations and PyTorch's."""

import itertools

import jax
import jax.numpy as jnp
import mpmath
import numpy as np
import pytest
import scipy._lib.array_api_extra as xpx
import scipy.special
import torch
from scipy.spatial.transform import Rotation

jax.config.update("jax_enable_x64", True)  # noqa: FBT003

ZERO = np.zeros(3)
GENERATORS = np.array(
    [[[0, 0, 0], [0, 0, -1], [0, 1, 0]], [[0, 0, 1], [0, 0, 0], [-1, 0, 0]], [[0, -1, 0], [1, 0, 0], [0, 0, 0]]], float
)
# The Jacobians of a function, by each way.
JACOBIANS = {
    "jax": lambda f: lambda x: jax.jacrev(f)(jnp.asarray(x)),
    "jax-forward": lambda f: lambda x: jax.jacfwd(f)(jnp.asarray(x)),
    "jax-jit": lambda f: lambda x: jax.jit(jax.jacrev(f))(jnp.asarray(x)),
    "jax-vmap": lambda f: lambda x: jax.vmap(jax.jacrev(f))(jnp.stack([x, x + 1.0]))[0],
    "torch-backward": lambda f: lambda x: torch.autograd.functional.jacobian(f, torch.tensor(x)),
    "torch-func": lambda f: lambda x: torch.func.jacrev(f)(torch.tensor(x)),
}
HESSIANS = {
    "jax": lambda f: lambda x: jax.jit(jax.hessian(f))(jnp.asarray(x)),
    "torch": lambda f: lambda x: torch.func.jacrev(torch.func.jacrev(f))(torch.tensor(x)),
}


def near(got, want, tolerance=1e-6):
    np.testing.assert_allclose(np.asarray(got), want, rtol=tolerance, atol=tolerance)


# Rotations.


@pytest.mark.parametrize("way", JACOBIANS)
def test_the_identity(way):
    jacobian = JACOBIANS[way]
    near(np.moveaxis(np.asarray(jacobian(lambda v: Rotation.from_rotvec(v).as_matrix())(ZERO)), -1, 0), GENERATORS)
    near(jacobian(lambda v: Rotation.from_rotvec(v).as_rotvec())(ZERO), np.eye(3))
    near(jacobian(lambda v: (Rotation.from_rotvec(v) ** 2).as_rotvec())(ZERO), 2.0 * np.eye(3))
    near(jacobian(lambda v: Rotation.from_rotvec(v).magnitude())(ZERO), ZERO)
    near(jacobian(lambda v: Rotation.from_matrix(Rotation.from_rotvec(v).as_matrix()).as_rotvec())(ZERO), np.eye(3))


@pytest.mark.parametrize("way", HESSIANS)
def test_second_derivatives_at_the_identity(way):
    hessian = HESSIANS[way]
    products = np.einsum("aij,bjk->ikab", GENERATORS, GENERATORS)
    wanted = (products + np.swapaxes(products, -1, -2)) / 2.0
    near(hessian(lambda v: Rotation.from_rotvec(v).as_matrix())(ZERO), wanted)
    near(hessian(lambda v: Rotation.from_rotvec(v).as_rotvec())(ZERO), np.zeros((3, 3, 3)))


@pytest.mark.parametrize("way", ["jax", "torch-func"])
def test_elsewhere_as_finite_differences(way):
    point, step = np.array([0.3, -0.2, 0.5]), 1e-6
    f = lambda v: Rotation.from_rotvec(v).as_mrp()
    steps = step * np.eye(3)
    wanted = np.stack([(f(point + one) - f(point - one)) / (2 * step) for one in steps], axis=-1)
    near(JACOBIANS[way](f)(point), wanted)


@pytest.mark.parametrize("way", ["jax", "torch-func"])
def test_the_mean_of_equal_rotations_and_gimbal_lock(way):
    mean = lambda v: Rotation.from_rotvec(_rows(v)).mean().as_rotvec()
    near(JACOBIANS[way](mean)(np.array([0.1, 0.2, 0.3])), np.eye(3))
    euler = lambda v: Rotation.from_euler("xyz", v).as_euler("xyz")[1]
    assert np.isfinite(np.asarray(JACOBIANS[way](euler)(np.array([0.1, np.pi / 2, 0.0])))).all()
    near(JACOBIANS[way](lambda v: Rotation.from_rotvec(v).as_euler("zyx"))(ZERO), np.eye(3)[::-1])


def _rows(v):
    return jnp.stack([v] * 4) if isinstance(v, jax.Array) else torch.stack([v] * 4)


@pytest.mark.parametrize("way", ["jax", "torch-func"])
def test_vectors_with_equal_singular_values_are_aligned(way):
    def aligned(v):
        make = jnp.eye(3) if isinstance(v, jax.Array) else torch.eye(3, dtype=torch.float64)
        return Rotation.align_vectors(Rotation.from_rotvec(v).apply(make), make)[0].as_rotvec()

    near(JACOBIANS[way](aligned)(np.array([0.1, 0.0, 0.0])), np.eye(3))


# The functions of array-api-extra that SciPy is written with.


@pytest.mark.parametrize("way", JACOBIANS)
def test_what_is_not_chosen_reaches_no_derivative(way):
    def root(x):
        xp = jnp if isinstance(x, jax.Array) else torch
        return xpx.apply_where(x > 0, x, xp.sqrt, lambda x: 0 * x)

    near(JACOBIANS[way](root)(np.array([0.0, 4.0, -1.0])), np.diag([0.0, 0.25, 0.0]))
    filled = lambda x: xpx.apply_where(x > 0, x, lambda x: 1 / x, fill_value=2.0)
    near(JACOBIANS[way](filled)(np.array([0.0, 4.0, -1.0])), np.diag([0.0, -0.0625, 0.0]))


@pytest.mark.parametrize("way", JACOBIANS)
def test_a_lazy_function_has_a_derivative(way):
    def sine(x):
        vjp = lambda cotangent, _, x: (cotangent * (jnp.cos(x) if isinstance(x, jax.Array) else torch.cos(x)),)
        return xpx.lazy_apply(np.sin, x, as_numpy=True, vjp=vjp)

    near(JACOBIANS[way](sine)(np.array([0.0, 1.0])), np.diag(np.cos([0.0, 1.0])))


# Special functions: each with a point, and the arguments by which it has a derivative.

FUNCTIONS = {
    "betainc": ((2.0, 3.0, 0.4), [2]),
    "betaincc": ((2.0, 3.0, 0.4), [2]),
    "betaincinv": ((2.0, 3.0, 0.4), [2]),
    "betainccinv": ((2.0, 3.0, 0.4), [2]),
    "betaln": ((2.0, 3.0), [0, 1]),
    "binom": ((5.5, 2.5), [0, 1]),
    "boxcox": ((2.0, 0.5), [0, 1]),
    "cbrt": ((2.0,), [0]),
    "chdtri": ((3.0, 0.4), [1]),
    "cosm1": ((0.3,), [0]),
    "ellipe": ((0.4,), [0]),
    "ellipk": ((0.4,), [0]),
    "erfcinv": ((0.4,), [0]),
    "erfcx": ((0.4,), [0]),
    "exp10": ((0.4,), [0]),
    "exprel": ((0.4,), [0]),
    "fdtr": ((2.0, 3.0, 0.4), [2]),
    "gammaincinv": ((2.0, 0.4), [1]),
    "gdtr": ((2.0, 3.0, 0.4), [0, 2]),
    "huber": ((1.0, 0.4), [0, 1]),
    "iv": ((2.0, 0.4), [1]),
    "ive": ((2.0, 0.4), [1]),
    "j0": ((0.4,), [0]),
    "j1": ((0.4,), [0]),
    "jv": ((2.0, 0.4), [1]),
    "k0": ((0.4,), [0]),
    "k1e": ((0.4,), [0]),
    "kl_div": ((0.4, 0.7), [0, 1]),
    "kv": ((2.0, 0.4), [1]),
    "ndtri_exp": ((-0.4,), [0]),
    "owens_t": ((0.4, 0.7), [0, 1]),
    "pdtr": ((2.0, 0.4), [1]),
    "poch": ((2.0, 0.4), [0, 1]),
    "pseudo_huber": ((1.0, 0.4), [0, 1]),
    "rgamma": ((2.4,), [0]),
    "spence": ((0.4,), [0]),
    "stdtr": ((3.0, 0.4), [1]),
    "stdtrit": ((3.0, 0.4), [1]),
    "y0": ((0.4,), [0]),
    "yv": ((2.0, 0.4), [1]),
}
CASES = [(name, place) for name, (_, places) in FUNCTIONS.items() for place in places]


def differences(f, x, step=1e-3):
    """Return the first and the second derivative of a function of NumPy's arrays."""
    a, b, c, d, e = (f(np.asarray(x + k * step)) for k in (-2, -1, 0, 1, 2))
    return (a - 8 * b + 8 * d - e) / (12 * step), (-a + 16 * b - 30 * c + 16 * d - e) / (12 * step**2)


def made(like, value):
    """Return a number as an array of the framework of another."""
    if isinstance(like, torch.Tensor):
        return torch.as_tensor(value, dtype=torch.float64)
    return (jnp if isinstance(like, jax.Array) else np).asarray(value)


def of_one(name, place):
    """Return a function as one of the argument in a place, and its value at the point."""
    point = FUNCTIONS[name][0]

    def f(x):
        args = [made(x, value) for value in point]
        args[place] = x
        return getattr(scipy.special, name)(*args)

    return f, point[place]


@pytest.mark.parametrize(("name", "place"), CASES)
def test_a_special_function(name, place):
    f, x = of_one(name, place)
    first, second = differences(f, x)
    both = jax.jit(lambda x: (f(x), jax.grad(f)(x), jax.grad(jax.grad(f))(x)))(jnp.asarray(x))
    near(both[0], f(np.asarray(x)))
    near(both[1], first, 1e-5)
    near(both[2], second, 1e-4)
    tensor = torch.tensor(x, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(f(tensor), tensor, create_graph=True)
    near(slope.detach(), first, 1e-5)
    (curvature,) = torch.autograd.grad(slope, tensor)
    near(curvature, second, 1e-4)


@pytest.mark.parametrize("name", ["iv", "stdtrit", "betainc", "owens_t"])
def test_a_special_function_under_every_transformation(name):
    place = FUNCTIONS[name][1][-1]
    f, x = of_one(name, place)
    first = differences(f, x)[0]
    points = jnp.asarray([x, x + 0.1])
    near(jax.grad(f)(jnp.asarray(x)), first, 1e-5)
    near(jax.jvp(f, (jnp.asarray(x),), (jnp.asarray(1.0),))[1], first, 1e-5)
    near(jax.vmap(jax.grad(f))(points)[0], first, 1e-5)
    near(jax.grad(lambda p: jax.vmap(f)(p).sum())(points)[0], first, 1e-5)
    tensors = torch.tensor([x, x + 0.1], dtype=torch.float64)
    near(torch.func.grad(f)(tensors[0]), first, 1e-5)
    near(torch.func.vmap(torch.func.grad(f))(tensors)[0], first, 1e-5)
    near(torch.func.jvp(f, (tensors[0],), (torch.ones_like(tensors[0]),))[1], first, 1e-5)
    compiled = torch.compile(torch.func.grad(lambda t: f(t).sum()), backend="aot_eager")
    near(compiled(tensors)[0], first, 1e-5)


SINGULAR = {
    "betainc at 0": (lambda x: scipy.special.betainc(made(x, 1.0), made(x, 2.0), x), 0.0, lambda x: 1 - (1 - x) ** 2),
    "boxcox by 0": (
        lambda x: scipy.special.boxcox(made(x, 2.0), x),
        0.0,
        lambda x: mpmath.quad(lambda t: 2 ** (x * t) * mpmath.log(2), [0, 1]),
    ),
    "spence at 1": (scipy.special.spence, 1.0, lambda x: mpmath.polylog(2, 1 - x)),
    "exprel at 0": (scipy.special.exprel, 0.0, lambda x: mpmath.hyp1f1(1, 2, x)),
    "exp1": (scipy.special.exp1, 0.5, mpmath.e1),
    "expn": (lambda x: scipy.special.expn(made(x, 3.0), x), 0.5, lambda x: mpmath.expint(3, x)),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_singular_points_as_mpmath(name):
    f, x, exact = SINGULAR[name]
    first, second = (float(mpmath.diff(exact, x, n)) for n in (1, 2))
    near(jax.grad(f)(jnp.asarray(x)), first, 1e-5)
    near(jax.jit(jax.grad(jax.grad(f)))(jnp.asarray(x)), second, 1e-4)
    near(torch.func.grad(f)(torch.tensor(x, dtype=torch.float64)), first, 1e-5)


def test_an_argument_without_a_closed_form_is_refused():
    for place, name in itertools.product((0,), ("iv", "stdtrit", "betainc")):
        f, x = of_one(name, place)
        with pytest.raises(NotImplementedError, match=f"scipy.special.{name} has no derivative by argument 0"):
            jax.grad(f)(jnp.asarray(x))


def test_numpy_gets_the_ufunc_result():
    assert isinstance(scipy.special.iv(2.0, np.ones(2)), np.ndarray)
    assert xpx.apply_where(np.ones(2) > 0, np.ones(2), np.sqrt, fill_value=0.0).tolist() == [1.0, 1.0]
