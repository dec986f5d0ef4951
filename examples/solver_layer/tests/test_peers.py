"""The same derivatives by libraries of one framework each, where they are installed."""

import numpy as np
import pytest

import solver_layer
from solver_problems import PROBLEMS, animals, enable_double  # noqa: F401  (a fixture)


def test_the_quadratic_program_of_cvxpylayers():
    cvxpy, layers = pytest.importorskip("cvxpy"), pytest.importorskip("cvxpylayers.torch")
    import torch

    arrays = PROBLEMS["quadratic program"][1]
    # It wants P as a product, so that the program is convex whatever it is given.
    given = {"R": np.linalg.cholesky(arrays["P"]).T, **{name: arrays[name] for name in "qGhAb"}}
    names = {name: cvxpy.Parameter(array.shape) for name, array in given.items()}
    x = cvxpy.Variable(4)
    program = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(names["R"] @ x) / 2 + names["q"] @ x),
        [names["G"] @ x <= names["h"], names["A"] @ x == names["b"]],
    )
    layer = layers.CvxpyLayer(program, list(names.values()), [x])

    def ours(R, *others):  # noqa: N803
        return solver_layer.minimise(R.T @ R, *others).x

    def gradients(solver):
        tensors = [torch.tensor(array, requires_grad=True) for array in given.values()]
        (solver(*tensors) ** 2).sum().backward()
        return [tensor.grad for tensor in tensors]

    for got, want in zip(gradients(ours), gradients(lambda *tensors: layer(*tensors)[0]), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5)


def test_the_differential_equation_of_diffrax(double):
    diffrax = pytest.importorskip("diffrax")
    jax = double
    from solver_problems import lotka_volterra

    params = jax.tree.map(jax.numpy.asarray, PROBLEMS["ordinary differential equation"][1])

    def theirs(params):
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, rates: jax.numpy.stack(lotka_volterra(t, y, rates))),
            diffrax.Dopri8(),
            0.0,
            0.2,
            None,
            params["start"],
            params["rates"],
            saveat=diffrax.SaveAt(ts=[0.1, 0.2]),
            stepsize_controller=diffrax.PIDController(rtol=1e-10, atol=1e-10),
        ).ys
        return found[0, 0] * found[1, 1] ** 2

    got, want = jax.grad(animals)(params), jax.grad(theirs)(params)
    for name in params:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-7)
