"""Custom rules, solvers and loops that JAX differentiates by another run: the remedies that are declared for them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.ode import odeint

from adprotocol import cond, within_gradient
from adprotocol.errors import UndecidableError

ONE = jnp.float32(1.0)


def layer(x, tracked):
    return cond(tracked, lambda: 3.0 * x, lambda: 5.0 * x)


def check(f, value, slope, plain):
    """Compare value, gradient and plain value, with the compiled function called plainly before and after."""
    for jitted in (f, jax.jit(f)):
        for _ in range(2):
            assert jitted(ONE) == pytest.approx(plain, rel=1e-3)
            assert jax.value_and_grad(jitted)(ONE) == (pytest.approx(value, rel=1e-3), pytest.approx(slope, rel=1e-3))
    assert jax.jit(jax.value_and_grad(f))(ONE) == (pytest.approx(value, rel=1e-3), pytest.approx(slope, rel=1e-3))


@jax.custom_vjp
def reverse(x, tracked):
    return layer(x, tracked)


reverse.defvjp(
    lambda x, tracked: (layer(x, tracked), tracked), lambda tracked, cotangent: (layer(cotangent, tracked), None)
)


@jax.custom_jvp
def forward(x, tracked):
    return layer(x, tracked)


@forward.defjvp
def _forward(primals, tangents):
    return layer(*primals), layer(tangents[0], primals[1])


@pytest.mark.parametrize("rule", [reverse, forward])
def test_an_answer_passed_in_is_right(rule):
    check(lambda x: rule(x, within_gradient(x)), 3.0, 3.0, 5.0)


def test_an_answer_closed_over_by_an_equation():
    def linear(k):
        tracked = within_gradient(k)

        def solve(matvec, b):
            return b / matvec(ONE)

        return lax.custom_linear_solve(
            lambda v: v * k * cond(tracked, lambda: 1.0, lambda: 2.0), ONE, solve, solve, symmetric=True
        )

    def root(k):
        tracked = within_gradient(k)
        return lax.custom_root(
            lambda y: y - k * cond(tracked, lambda: 1.0, lambda: 2.0),
            jnp.float32(0.0),
            lambda f, y: y - f(y),
            lambda f, y: y / f(ONE),
        )

    check(linear, 1.0, -1.0, 0.5)
    check(root, 1.0, 1.0, 2.0)


def test_an_answer_in_the_condition_of_a_while_loop():
    def f(x):
        def more(carry):
            return carry[0] < cond(carry[2], lambda: 3, lambda: 5)

        start = (0, x, jnp.asarray(within_gradient(x)))
        return lax.while_loop(more, lambda c: (c[0] + 1, 2.0 * c[1], c[2]), start)[1]

    for g in (f, jax.jit(f)):
        assert g(ONE) == 32.0
        assert jax.jvp(g, (ONE,), (ONE,)) == (8.0, 8.0)


def test_an_array_closed_over_is_asked_about_with_an_argument():
    w = jnp.float32(2.0)

    def model(t):
        return cond(within_gradient(w, t), lambda: 3.0 * w * t, lambda: 5.0 * w * t)

    closed = jax.make_jaxpr(model)(ONE)

    def opened(const):
        return jax.core.eval_jaxpr(closed.jaxpr, [const], ONE)[0]

    assert opened(w) == 10.0
    assert jax.value_and_grad(opened)(w) == (6.0, 3.0)
    assert jax.value_and_grad(jax.jit(model))(ONE) == (6.0, 6.0)
    assert jax.jit(model)(ONE) == 10.0
    assert jax.vmap(model)(jnp.ones(2)).tolist() == [10.0, 10.0]


def test_the_answer_about_a_concrete_array_is_a_bool_in_a_trace():
    w = jnp.float32(2.0)
    assert jax.jit(lambda x: x if within_gradient(w) else 2.0 * x)(ONE) == 2.0
    assert jax.jit(lambda x: x if within_gradient([w, 1.0, {"n": 3}]) else 2.0 * x)(ONE) == 2.0


def branch(k):
    return cond(within_gradient(k), lambda: 3.0 * k, lambda: 5.0 * k)


def converging(y, k):
    return 0.5 * (y + branch(k))


INSIDE = {
    "odeint": lambda k: odeint(lambda y, t, k: -branch(k) * y, ONE, jnp.array([0.0, 1.0]), k)[-1],
    "custom_root": lambda k: lax.custom_root(
        lambda y: y - branch(k), ONE, lambda f, y: y - f(y), lambda f, y: y / f(ONE)
    ),
    "cg": lambda k: jax.scipy.sparse.linalg.cg(lambda v: branch(k) * v, jnp.ones(1))[0].sum(),
    "linear_call": lambda k: jax.custom_derivatives.linear_call(lambda _, k: branch(k), lambda _, k: 3.0 * k, ONE, k),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_question_inside_a_solver_is_refused(name):
    for f in (jax.grad(INSIDE[name]), jax.jit(INSIDE[name]), jax.grad(jax.jit(INSIDE[name]))):
        with pytest.raises(UndecidableError, match=r"runs for the value and again.*Ask outside"):
            f(ONE)


def diffrax_with(adjoint):
    def f(k):
        diffrax = pytest.importorskip("diffrax")
        term, chosen = diffrax.ODETerm(lambda t, y, k: -branch(k) * y), getattr(diffrax, adjoint)()
        return diffrax.diffeqsolve(term, diffrax.Euler(), 0.0, 1.0, 0.5, ONE, args=k, adjoint=chosen).ys[-1]

    return f


def optimistix_with(call, solver, fun):
    def f(k):
        optimistix = pytest.importorskip("optimistix")
        return getattr(optimistix, call)(fun, getattr(optimistix, solver)(1e-6, 1e-6), ONE, args=k).value

    return f


def jaxopt_with(solver, fun, **options):
    return lambda k: getattr(pytest.importorskip("jaxopt"), solver)(fun, maxiter=60, **options).run(ONE, k).params


def lineax_cg(k):
    lineax = pytest.importorskip("lineax")
    shape = jax.ShapeDtypeStruct((1,), jnp.float32)
    operator = lineax.FunctionLinearOperator(lambda v: branch(k) * v, shape, lineax.positive_semidefinite_tag)
    return lineax.linear_solve(operator, jnp.ones(1), lineax.CG(1e-6, 1e-6)).value.sum()


def square(y, k):
    return (y - branch(k)) ** 2


OF_LIBRARIES = {
    "diffrax": diffrax_with("RecursiveCheckpointAdjoint"),
    "diffrax backsolve": diffrax_with("BacksolveAdjoint"),
    "diffrax implicit": diffrax_with("ImplicitAdjoint"),
    "fixed_point": optimistix_with("fixed_point", "FixedPointIteration", converging),
    "minimise": optimistix_with("minimise", "BFGS", square),
    "least_squares": optimistix_with("least_squares", "LevenbergMarquardt", lambda y, k: y - branch(k)),
    "root_find": optimistix_with("root_find", "Dogleg", lambda y, k: y - branch(k)),
    "lineax": lineax_cg,
    "jaxopt": jaxopt_with("GradientDescent", square),
    "jaxopt fixed point": jaxopt_with("FixedPointIteration", converging),
}


@pytest.mark.parametrize("name", OF_LIBRARIES)
def test_a_question_inside_a_solver_of_a_library_is_refused(name):
    for f in (jax.jit(OF_LIBRARIES[name]), jax.grad(OF_LIBRARIES[name])):
        with pytest.raises(UndecidableError, match=r"runs for the value and again.*Ask outside"):
            f(ONE)


@pytest.mark.parametrize("name", [name for name in (*INSIDE, *OF_LIBRARIES) if name != "linear_call"])
def test_a_question_that_was_compiled_before_is_refused_where_a_solver_differentiates_it(name, monkeypatch):
    compiled = jax.jit(lambda k, branch=branch: branch(k))
    assert compiled(ONE) == 5.0
    monkeypatch.setitem(globals(), "branch", compiled)
    f = (INSIDE | OF_LIBRARIES)[name]
    f(ONE)
    for g in (jax.grad(f), jax.grad(jax.jit(f))):
        with pytest.raises(UndecidableError, match=r"runs for the value and again.*Ask outside"):
            g(ONE)


def test_a_solver_of_what_is_itself_a_derivative_may_ask():
    loss = jax.jit(lambda y, k: (branch(y) - k) ** 2)
    loss(ONE, ONE)

    def f(k):
        return lax.custom_root(
            lambda y: jax.grad(loss)(y, k),
            ONE,
            lambda f, y: lax.fori_loop(0, 20, lambda _, y: y - f(y) / 18.0, y),
            lambda f, y: y / f(ONE),
        )

    assert f(ONE) == pytest.approx(1.0 / 3.0)
    assert jax.grad(f)(ONE) == pytest.approx(1.0 / 3.0)


@pytest.mark.parametrize(
    "f",
    [diffrax_with("DirectAdjoint"), jaxopt_with("GradientDescent", square, implicit_diff=False)],
    ids=["diffrax", "jaxopt"],
)
def test_a_solver_that_differentiates_what_it_has_run_is_right(f):
    value, slope = jax.value_and_grad(f)(ONE)
    if value < 1:
        assert (value, slope) == (0.25, 1.5)  # (1 - 3 k / 2) ** 2
    else:
        assert np.allclose((value, slope), (3.0, 3.0), atol=1e-3)
