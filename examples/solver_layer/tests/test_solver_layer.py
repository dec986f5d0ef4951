"""Each solver under each framework's own transformations, against finite differences."""

import ast
import functools
from pathlib import Path

import numpy as np
import pytest

import solver_layer
from adprotocol.conformance import check_rule
from solver_layer.quadratic_program import _minimise
from solver_problems import PROBLEMS, enable_double, equations  # noqa: F401  (a fixture)


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


def finite_differences(fun, x):
    step = 1e-5
    return np.stack([(fun(x + move) - fun(x - move)) / (2.0 * step) for move in step * np.eye(x.size)]).reshape(x.shape)


@functools.cache
def slopes(name):
    """The derivatives of a program by each of its arguments."""
    fun, params, _ = PROBLEMS[name]

    def along(key):
        def moved(flat):
            return fun({**params, key: flat.reshape(params[key].shape)})

        return finite_differences(moved, params[key].ravel()).reshape(params[key].shape)

    return {key: along(key) for key in params}


def agree(got, problem, rtol=1e-5):
    name = next(name for name, known in PROBLEMS.items() if known is problem)
    for key, want in slopes(name).items():
        given = np.zeros_like(want) if got[key] is None else np.asarray(got[key])
        np.testing.assert_allclose(given, want, rtol=rtol, atol=1e-6, err_msg=key)


def test_the_library_imports_no_framework():
    allowed = {"adprotocol", "clarabel", "collections", "numpy", "scipy", "solver_layer", "typing"}
    for path in Path(solver_layer.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [node.module] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert {name.partition(".")[0] for name in names} <= allowed, path


def test_autograd(problem):
    autograd = pytest.importorskip("autograd")
    fun, params, twice = problem
    agree(autograd.grad(fun)(params), problem)

    def gradient(x):
        return autograd.grad(lambda x: fun({**params, twice: x}))(x)

    hessian = autograd.jacobian(gradient)(params[twice])
    np.testing.assert_allclose(hessian, jacobian(gradient, params[twice]), rtol=1e-4, atol=1e-6)


def jacobian(gradient, x):
    return np.stack([finite_differences(lambda x, i=i: gradient(x)[i], x) for i in range(x.size)])


def test_jax(problem, double):
    jax = double
    fun, params, twice = problem
    params = jax.tree.map(jax.numpy.asarray, params)
    agree(jax.grad(jax.jit(fun))(params), problem)
    batch = jax.tree.map(lambda leaf: jax.numpy.stack([leaf, 1.01 * leaf]), params)
    agree(jax.tree.map(lambda leaf: leaf[0], jax.jit(jax.vmap(jax.grad(fun)))(batch)), problem)

    def of_vector(x):
        return fun({**params, twice: x})

    gradient = jax.jit(jax.grad(of_vector))
    want = jacobian(lambda x: np.asarray(gradient(x)), np.asarray(params[twice]))
    np.testing.assert_allclose(jax.jit(jax.hessian(of_vector))(params[twice]), want, rtol=1e-4, atol=1e-6)


def test_torch(problem):
    torch = pytest.importorskip("torch")
    fun, params, twice = problem
    params = {key: torch.tensor(value) for key, value in params.items()}
    leaves = {key: value.clone().requires_grad_() for key, value in params.items()}
    fun(leaves).backward()
    agree({key: leaf.grad for key, leaf in leaves.items()}, problem)
    agree(torch.func.grad(fun)(params), problem)
    batch = {key: torch.stack([value, 1.01 * value]) for key, value in params.items()}
    agree({key: value[0] for key, value in torch.vmap(torch.func.grad(fun))(batch).items()}, problem)

    def of_vector(x):
        return fun({**params, twice: x})

    def gradient(x):
        return torch.func.grad(of_vector)(torch.tensor(x)).numpy()

    want = jacobian(gradient, params[twice].numpy())
    np.testing.assert_allclose(torch.func.hessian(of_vector)(params[twice]), want, rtol=1e-4, atol=1e-6)


def test_torch_compile(problem):
    torch = pytest.importorskip("torch")
    fun, params, _ = problem
    torch.compiler.reset()
    leaves = {key: torch.tensor(value, requires_grad=True) for key, value in params.items()}
    torch.compile(fun, fullgraph=True, backend="eager")(leaves).backward()
    agree({key: leaf.grad for key, leaf in leaves.items()}, problem)


@pytest.mark.parametrize("name", ["quadratic program", "root"])
def test_every_mode_of_the_rule_agrees(name):
    params = PROBLEMS[name][1]
    if name == "root":
        check_rule(solver_layer.root, equations, params["guess"], params, backend="autograd")
    else:
        check_rule(_minimise, *params.values(), backend="autograd")


def test_a_program_without_solution_is_an_error():
    params = dict(PROBLEMS["quadratic program"][1], A=np.zeros((1, 4)))
    with pytest.raises(ArithmeticError, match="PrimalInfeasible"):
        solver_layer.minimise(*params.values())
    with pytest.raises(ArithmeticError, match="no root of <lambda>"):
        solver_layer.root(lambda x, _: x * x + 1.0, np.ones(1), np.ones(1))


def test_without_equalities():
    autograd = pytest.importorskip("autograd")
    P, q, G, h = list(PROBLEMS["quadratic program"][1].values())[:4]  # noqa: N806

    def least(h):
        return (solver_layer.minimise(P, q, G, h).x ** 2).sum()

    np.testing.assert_allclose(autograd.grad(least)(h), finite_differences(least, h), rtol=1e-5, atol=1e-6)
