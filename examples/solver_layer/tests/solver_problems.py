"""Programs that call each solver: a number of a dict of arrays, with the arrays to call it with."""

import numpy as np
import pytest

import solver_layer

RANDOM = np.random.default_rng(0)
FACTOR = RANDOM.normal(size=(4, 4))


def minimum(params):
    solution = solver_layer.minimise(*(params[name] for name in "PqGhAb"))
    return (solution.x**2).sum() + (solution.inequalities**2).sum() + 2.0 * solution.equalities.sum()


def equations(x, params):
    return params["cubic"] * x**3 + params["linear"] @ x - params["right"]


def crossing(params):
    return (solver_layer.root(equations, params["guess"], params) ** 2).sum()


def lotka_volterra(t, state, rates):
    prey, hunters = state[0], state[1]
    return [prey * (rates[0] - rates[1] * hunters) + 0.1 * t, hunters * (rates[2] * prey - rates[3])]


def animals(params):
    start = [params["start"][0], params["start"][1]]
    half = solver_layer.odeint(lotka_volterra, start, params["rates"], span=(0.0, 0.1), tolerance=1e-8)
    end = solver_layer.odeint(lotka_volterra, half, params["rates"], span=(0.1, 0.2), tolerance=1e-8)
    return half[0] * end[1] ** 2


# The program, its arguments, and the vector that it is differentiated by twice.
PROBLEMS = {
    "quadratic program": (
        minimum,
        {
            "P": FACTOR @ FACTOR.T + np.eye(4),
            "q": RANDOM.normal(size=4),
            "G": RANDOM.normal(size=(3, 4)),
            "h": np.array([0.1, 0.2, -0.3]),
            "A": RANDOM.normal(size=(1, 4)),
            "b": np.array([0.5]),
        },
        "h",
    ),
    "root": (
        crossing,
        {
            "cubic": np.array([0.5, 1.0]),
            "linear": np.array([[2.0, 0.3], [-0.4, 3.0]]),
            "right": np.array([1.0, 2.0]),
            "guess": np.zeros(2),
        },
        "right",
    ),
    "ordinary differential equation": (
        animals,
        {"start": np.array([2.0, 1.0]), "rates": np.array([1.5, 1.0, 0.7, 1.2])},
        "start",
    ),
}


# No conftest.py: a second one would take the name of the first.
@pytest.fixture(name="double")
def enable_double():
    """JAX in double precision."""
    jax = pytest.importorskip("jax")
    enable = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with enable(True):
        yield jax
