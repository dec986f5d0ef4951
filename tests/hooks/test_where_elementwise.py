"""where: nothing of a function reaches a value or a derivative at an element where it is not chosen."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ad_backends import AUTOGRAD, BACKENDS, JAX, TORCH

from adprotocol import grad, where
from adprotocol.errors import BranchError, BranchMismatchError, MixedFrameworksError, NoValuesError, PredicateError

POINTS = np.array([[0.0, 4.0], [-1.0, 0.25]])
POSITIVE = POINTS > 0
ROOTS = np.where(POSITIVE, np.sqrt(np.abs(POINTS)), 0.0)
SLOPES = np.where(POSITIVE, 0.5 / np.sqrt(np.where(POSITIVE, POINTS, 1.0)), 0.0)
CURVATURES = np.where(POSITIVE, -0.25 * np.where(POSITIVE, POINTS, 1.0) ** -1.5, 0.0)


@pytest.fixture(autouse=True)
def _no_nan_anywhere():
    """The frameworks raise where a NaN arises, even one that is not chosen."""
    with jax.debug_nans(True), torch.autograd.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def root(xp):
    return lambda x: where(x > 0, xp.sqrt, lambda x: 0.0, x)


def near(array, wanted):
    array = array.detach() if isinstance(array, torch.Tensor) else array
    np.testing.assert_allclose(np.asarray(array), wanted, rtol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_value_gradient_tangent_and_second_derivative(backend):
    x, f = backend.make(POINTS), root(backend.xp)
    near(f(x), ROOTS)
    total = lambda x: f(x).sum()
    near(grad(total)(x), SLOPES)
    near(backend.derivative(total)(x), SLOPES)
    near(backend.tangent(f, x, backend.make(np.ones_like(POINTS))), SLOPES)
    near(backend.derivative(lambda x: backend.derivative(total)(x).sum())(x), CURVATURES)
    near(grad(lambda x: grad(total)(x).sum())(x), CURVATURES)


def test_numpy_alone_and_numpy_masks():
    near(root(np)(POINTS), ROOTS)
    near(where(np.zeros(2, bool), np.log, lambda x: 2.0, np.array([0.0, -1.0])), [2.0, 2.0])
    near(where(np.zeros((0, 2), bool), np.log, lambda x: x, np.zeros((0, 2))), np.zeros((0, 2)))
    for backend in BACKENDS:
        f = lambda x, xp=backend.xp: where(POSITIVE, xp.sqrt, lambda x: 0.0, x).sum()
        near(grad(f)(backend.make(POINTS)), SLOPES)


def test_integers_and_numbers():
    index = jnp.array([0, 7])
    near(
        where(index < 2, lambda i, table: table[i], lambda i, _: i * 0.5, index, np.array([10.0, 20.0])[:]), [10.0, 3.5]
    )
    for backend in (JAX, TORCH, AUTOGRAD):
        near(where(backend.make([1.0, 2.0]) > 1.5, lambda _: 1.0, lambda _: 0.0, 2.0), [0.0, 1.0])


@pytest.mark.parametrize("point", [0.0, 4.0])
def test_another_scalar_mask_is_a_choice_of_arrays(point):
    slope = np.where(point > 0, 0.25, 0.0)
    closed_over = {"unit": 1.0}  # which torch.cond would have to capture
    f = lambda xp: lambda x: where(x > 0, lambda x: xp.sqrt(x) * closed_over["unit"], lambda x: 0.0 * x, x)
    near(jax.jit(jax.grad(f(jnp)))(point), slope)
    near(torch.func.grad(f(torch))(torch.tensor(point)), slope)
    assert "cond" not in str(jax.make_jaxpr(f(jnp))(point))
    with torch.autograd.set_detect_anomaly(False):  # in which Dynamo compiles nothing
        compiled = torch.compile(grad(f(torch)), fullgraph=True, backend="eager")
        near(compiled(torch.tensor(point)), slope)


@pytest.mark.parametrize("chosen", [True, False])
@pytest.mark.parametrize("function", ["inv", "cholesky", "svd", "solve", "eigh"])
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_matrices_of_which_one_or_none_is_regular(backend, function, chosen):
    linalg = backend.xp.linalg
    regular = np.array([[2.0, 0.5, 0.0], [0.5, 3.0, 0.0], [0.0, 0.0, 1.0]])
    functions = {
        "svd": lambda m: linalg.svd(m, full_matrices=False)[0] ** 2 * linalg.svd(m, full_matrices=False)[1][..., None],
        "solve": lambda m: linalg.solve(m, m * m),
        "eigh": lambda m: linalg.eigh(m)[1] ** 2,
    }
    one = functions.get(function, getattr(linalg, function))
    mask = np.array([False, chosen])[:, None, None]
    total = lambda m: where(backend.make(mask) > 0.5, one, lambda m: 3.0 * m, m).sum()
    matrices = backend.make(np.array([np.zeros((3, 3)), regular]))
    alone = one if chosen else lambda m: 3.0 * m
    near(total(matrices), alone(backend.make(regular)).sum())
    near(grad(total)(matrices)[0], np.full((3, 3), 3.0))
    wanted = grad(lambda m: alone(m).sum())(backend.make(regular))
    np.testing.assert_allclose(np.asarray(grad(total)(matrices)[1]), np.asarray(wanted), rtol=1e-3, atol=1e-5)
    if backend is AUTOGRAD and function == "inv":
        near(where(mask, np.linalg.inv, lambda m: m, matrices)[0], 0.0)


def test_numpy_is_not_guarded_and_runs_each_function_once():
    given = []

    def reciprocal(x):
        given.append(x)
        return 1.0 / x

    near(where(POINTS > 0.3, reciprocal, lambda x: x, POINTS), [[0.0, 0.25], [-1.0, 0.25]])
    assert len(given) == 1
    assert given[0] is POINTS
    first, second = where(POINTS > 0.3, lambda x: (reciprocal(x), x), lambda x: (x, 0), POINTS)
    near(first, [[0.0, 0.25], [-1.0, 0.25]])
    near(second, [[0.0, 4.0], [0.0, 0.0]])
    assert len(given) == 2
    near(where(jnp.array(POINTS) > 0.3, jnp.reciprocal, lambda x: x, jnp.array(POINTS)), [[0.0, 0.25], [-1.0, 0.25]])


def test_what_fails_for_an_element_that_is_not_chosen_does_not_fail():
    def strict_root(x):
        if (x < 0).any():
            raise ValueError
        return np.sqrt(x)

    near(where(POSITIVE, strict_root, np.abs, POINTS), np.where(POSITIVE, ROOTS, np.abs(POINTS)))
    with pytest.raises(ValueError):
        where(POINTS < 3.0, strict_root, np.abs, POINTS)


def test_what_is_refused():
    x = np.ones(2)
    for mask in (1.0, [True, False], x, "True", None):
        with pytest.raises(PredicateError, match="where was given"):
            where(mask, np.sqrt, np.sqrt, x)
    for mask in (x > 0, True, torch.ones(2) > 0):
        with pytest.raises(NoValuesError, match=r"without operands.*pass the arrays"):
            where(mask, lambda: np.sqrt(x), lambda: 0.0)
    with pytest.raises(BranchError, match=r"where was given a float .*as false_fun"):
        where(x > 0, np.sqrt, 0.0, x)
    with pytest.raises(BranchMismatchError, match="functions of where must return equal structures"):
        where(x > 0, lambda x: {"a": x}, lambda x: x, x)
    with pytest.raises(BranchMismatchError):
        where(x > 0, lambda x: (x, "one"), lambda x: (x, "other"), x)
    with pytest.raises(MixedFrameworksError):
        where(x > 0, lambda a, b: a, lambda a, b: a, jnp.ones(2), torch.ones(2))


NOWHERE = {
    "closed over": lambda xp: lambda w, a, b: where(a > b, lambda a, b: w * xp.log(a - b), lambda a, b: 0.0 * a, a, b),
    "partial": lambda xp: lambda w, a, b: where(a > b, functools.partial(_scaled, xp, w), lambda a, b: 0.0 * a, a, b),
    "operand": lambda xp: (
        lambda w, a, b: where(a > b, lambda a, b, w: w * xp.log(a - b), lambda a, *_: 0.0 * a, a, b, w)
    ),
    "the other side": lambda xp: lambda w, a, b: where(a <= b, lambda a, _: a, lambda a, b: w / (a - b), a, b) * 0.0,
}


def _scaled(xp, w, a, b):
    return w * xp.log(a - b)


@pytest.mark.parametrize("how", NOWHERE)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_function_chosen_nowhere_is_constant(backend, how):
    a, b, w = backend.make([-1.0, -2.0]), backend.make([-0.5, -0.7]), backend.make(2.0)
    f = NOWHERE[how](backend.xp)
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Output seems independent")  # of autograd, which is right
        near(backend.derivative(lambda w: f(w, a, b).sum())(w), 0.0)
        near(grad(lambda w: f(w, a, b).sum())(w), 0.0)
        near(backend.tangent(lambda w: f(w, a, b), w, backend.make(1.0)), [0.0, 0.0])
        near(grad(lambda a: f(w, a, b).sum())(a), [0.0, 0.0])
        one = grad(lambda w: f(w, backend.make([-1.0, 2.0]), b).sum())(w)
        near(one, {"the other side": 0.0}.get(how, np.log(2.7)))


@pytest.mark.parametrize("how", NOWHERE)
@pytest.mark.parametrize("shape", [(2,), ()])
def test_a_function_chosen_nowhere_where_no_number_is_known(how, shape):
    a, b = np.full((2, *shape), [-1.0, 2.0] if shape else -1.0), np.full((2, *shape), -0.7)
    a[1] = -3.0
    jitted, batched = (NOWHERE[how](xp) for xp in (jnp, torch))
    total = lambda w, a, b: jitted(w, a, b).sum()
    w, rows = jnp.array(2.0), (jnp.array(a), jnp.array(b))
    want = [0.0 if how == "the other side" or not shape else np.log(2.7), 0.0]
    programs = [
        jax.vmap(jax.jit(jax.grad(total)), (None, 0, 0)),
        jax.jit(jax.vmap(jax.grad(total), (None, 0, 0))),
        jax.vmap(jax.grad(jax.checkpoint(total)), (None, 0, 0)),
        jax.vmap(jax.jacfwd(total), (None, 0, 0)),
        lambda w, *rows: jnp.stack([jax.jit(jax.grad(total))(w, *row) for row in zip(*rows, strict=True)]),
    ]
    with jax.debug_nans(False):  # it arises, and goes no further
        for program in programs:
            near(program(w, *rows), want)
    with torch.autograd.set_detect_anomaly(False):
        rows = torch.tensor(a), torch.tensor(b)
        one = torch.func.grad(lambda w, a, b: batched(w, a, b).sum())
        near(torch.vmap(one, (None, 0, 0))(torch.tensor(2.0), *rows), want)
        every = torch.func.grad(lambda w: torch.vmap(batched, (None, 0, 0))(w, *rows).sum())
        near(every(torch.tensor(2.0)), sum(want))


def test_a_function_without_closure_adds_nothing_to_a_program():
    f = root(jnp)
    factor = jnp.array(2.0)
    traced = lambda f: str(jax.make_jaxpr(f)(jnp.array(POINTS)))
    assert traced(lambda x: where(x > 0, lambda x: factor * jnp.sqrt(x), lambda x: 0.0, x)).count("select_n") == traced(
        f
    ).count("select_n")


def test_backward_does_not_depend_on_the_batch():
    w, x = torch.tensor(2.0, requires_grad=True), torch.tensor([-1.0, -2.0])
    where(x > 0, lambda x: w * torch.log(x), lambda _: 0.0, x).sum().backward()
    near(w.grad, 0.0)
    net, x = torch.nn.Linear(2, 1), x.requires_grad_()
    where((x > 0).all()[None, None], lambda x: 2.0 * net(x), lambda x: 1.0, x[None]).sum().backward()
    near(net.weight.grad, np.zeros((1, 2)))
    near(x.grad, [0.0, 0.0])
