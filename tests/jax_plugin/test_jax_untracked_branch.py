"""The branch for a False answer sees what was asked about as constant, so it may do what JAX cannot differentiate."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from adprotocol import cond, within_gradient
from adprotocol_jax import answer

X = jnp.float32(1.0)


def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(jnp.shape(x), jnp.float32), x, vmap_method="expand_dims")


def loop(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 1.5), (0, x))[1]


@jax.custom_jvp
def refusing(x):
    return 5.0 * x


@refusing.defjvp
def _refuse(primals, tangents):
    raise NotImplementedError("no derivative")


EVALUATIONS = [callback, loop, refusing]


def scanned(f):
    return lambda x: lax.scan(lambda carry, _: (f(carry), None), x, None, length=1)[0]


TRANSFORMS = {
    "grad(jit)": lambda f: jax.grad(jax.jit(f)),
    "jit(grad(checkpoint))": lambda f: jax.jit(jax.grad(jax.checkpoint(f))),
    "grad(checkpoint)": lambda f: jax.grad(jax.checkpoint(f)),
    "grad(scan)": lambda f: jax.grad(scanned(f)),
    "grad(jit(scan))": lambda f: jax.grad(jax.jit(scanned(f))),
    "jvp(jit)": lambda f: lambda x: jax.jvp(jax.jit(f), (x,), (jnp.float32(1.0),))[1],
    "linearize(jit)": lambda f: lambda x: jax.linearize(jax.jit(f), x)[1](jnp.float32(1.0)),
    "grad(jit(vmap))": lambda f: lambda x: jax.grad(jax.jit(lambda xs: jax.vmap(f)(xs).sum()))(x[None])[0],
    "vmap(grad(jit))": lambda f: lambda x: jax.vmap(jax.grad(jax.jit(f)))(x[None])[0],
    "grad(vmap(jit))": lambda f: lambda x: jax.grad(lambda xs: jax.vmap(jax.jit(f))(xs).sum())(x[None])[0],
    "jit(grad(jit))": lambda f: jax.jit(jax.grad(jax.jit(f))),
}


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_a_branch_without_derivative_is_never_differentiated(transform):
    def operand(x):
        return cond(within_gradient(x), lambda x: x**3, callback, x)

    def closure(x):
        return cond(within_gradient(x), lambda: x**3, lambda: callback(x))

    def container(x):
        return cond(within_gradient({"x": [x]}), lambda p: p["x"][0] ** 3, lambda p: callback(p["x"][0]), {"x": [x]})

    for f in (operand, closure, container):
        assert jax.jit(f)(X) == pytest.approx(float(callback(X)))
        assert transform(f)(X) == pytest.approx(3.0)


@pytest.mark.parametrize("evaluate", EVALUATIONS)
def test_every_order(evaluate):
    def f(x):
        return cond(within_gradient(x), lambda x: x**3, evaluate, x)

    assert jax.hessian(jax.jit(f))(2.0) == pytest.approx(12.0)
    assert jax.grad(jax.jit(jax.grad(jax.jit(f))))(2.0) == pytest.approx(12.0)
    assert jax.jacfwd(jax.jacfwd(jax.jit(f)))(2.0) == pytest.approx(12.0)


def test_each_level_asks_about_its_own_variable():
    # The inner level differentiates y alone; a question about x is the outer level's.
    def f(x, y):
        return cond(within_gradient(x), lambda: x**2 * y**3, lambda: callback(x) * y**3)

    def inner(x):
        return jax.grad(jax.jit(f), argnums=1)(x, jnp.float32(2.0))

    assert inner(jnp.float32(1.0)) == pytest.approx(12.0 * np.sin(1.0))
    assert jax.grad(inner)(jnp.float32(3.0)) == pytest.approx(2.0 * 3.0 * 12.0)
    assert jax.grad(jax.jit(inner))(jnp.float32(3.0)) == pytest.approx(2.0 * 3.0 * 12.0)


def test_what_depends_on_the_value_besides_is_not_stopped():
    # z was computed from x before; only x itself was asked about. Differentiated in x, the answer is True.
    def f(x, w):
        z = x * w
        return cond(within_gradient(x), lambda: 2.0 * z, lambda: x * z)

    assert jax.grad(jax.jit(f), argnums=1)(jnp.float32(2.0), jnp.float32(3.0)) == 4.0
    assert jax.grad(jax.jit(f))(jnp.float32(2.0), jnp.float32(3.0)) == 6.0


@pytest.mark.parametrize(
    "ask",
    [
        lambda x, y: within_gradient(x) | within_gradient(y),
        lambda x, y: within_gradient(x) | within_gradient(y) | (x > 100.0),
        lambda x, y: ~(~within_gradient(x) & ~within_gradient(y)),
        lambda x, y: jnp.logical_or(within_gradient(x), within_gradient(y)),
    ],
)
def test_answers_put_together(ask):
    def f(x, y):
        return cond(ask(x, y), lambda: x * y, lambda: callback(x + y))

    def negated(x, y):
        return cond(~ask(x, y), lambda: callback(x + y), lambda: x * y)

    for fun in (f, negated):
        jitted = jax.jit(fun)
        assert jitted(X, X) == pytest.approx(np.sin(2.0))
        assert jax.grad(jitted, argnums=(0, 1))(X, jnp.float32(2.0)) == (2.0, 1.0)
        assert jax.jit(jax.grad(jax.checkpoint(fun)))(X, jnp.float32(2.0)) == 2.0


@pytest.mark.parametrize("transform", [lambda f: jax.jit(jax.grad(f)), lambda f: jax.grad(jax.jit(f))])
def test_an_answer_known_at_once_joined_with_a_staged_flag(transform):
    # Under jit(grad) the answer is True, and the predicate is staged all the same.
    def f(x, flag):
        return cond(within_gradient(x) | flag, lambda: x**3, lambda: callback(x))

    def negated(x, flag):
        return cond(jnp.logical_not(within_gradient(x)) & flag, lambda: callback(x), lambda: x**3)

    for fun in (f, negated):
        assert transform(fun)(X, True) == 3.0
        assert transform(fun)(X, False) == 3.0
    assert jax.jit(f)(X, False) == pytest.approx(np.sin(1.0))
    assert jax.jit(f)(X, True) == 1.0
    assert jax.jit(negated)(X, False) == 1.0


@pytest.mark.parametrize("flag", [True, False])
def test_both_conditions_say_nothing_of_the_branch_for_false(flag):
    # False may come from the flag, while x is tracked.
    def f(x, flag):
        return cond(within_gradient(x) & flag, lambda: 3.0 * x, lambda: 5.0 * x)

    assert jax.grad(jax.jit(f))(X, flag) == (3.0 if flag else 5.0)
    assert jax.jit(f)(X, flag) == 5.0


def test_the_answer_decides_in_an_inner_trace_too():
    def f(x):
        asked = within_gradient(x)
        return scanned(lambda c: c * cond(asked, lambda: x, lambda: callback(x)))(x)

    assert jax.grad(jax.jit(f))(jnp.float32(3.0)) == 6.0
    assert jax.jit(f)(X) == pytest.approx(np.sin(1.0))


def test_nothing_outlives_its_trace():
    def f(x):
        asked = within_gradient(x) | within_gradient({"x": x, "y": 2.0 * x})
        return cond(asked, lambda: x**3, lambda: callback(x))

    gc.collect()
    before = len(answer._ANSWERS)
    with jax.checking_leaks():
        assert jax.jit(f)(X) == pytest.approx(np.sin(1.0))
        assert jax.grad(jax.jit(f))(X) == 3.0
        assert jax.jit(jax.grad(jax.checkpoint(f)))(X) == 3.0
        assert jax.grad(scanned(f))(X) == 3.0
    gc.collect()
    assert len(answer._ANSWERS) == before


# What is traced into a program may become its argument later, without the question.


def converted(f):
    g, consts = jax.closure_convert(f, X)
    return sum(jax.tree.leaves(jax.grad(lambda consts: g(X, *consts))(tuple(consts))))


def evaluated(f):
    closed = jax.make_jaxpr(f)(X)
    inexact = [i for i, const in enumerate(closed.consts) if jnp.issubdtype(const.dtype, jnp.inexact)]

    def run(given):
        consts = list(closed.consts)
        for i, const in zip(inexact, given, strict=True):
            consts[i] = const
        return jax.core.eval_jaxpr(closed.jaxpr, consts, X)[0]

    return sum(jax.grad(run)([closed.consts[i] for i in inexact]))


@pytest.mark.parametrize(
    "ask",
    [
        within_gradient,
        lambda x: jnp.logical_not(jnp.logical_not(within_gradient(x))),
        lambda x: within_gradient(x) | (x < -9),
    ],
)
@pytest.mark.parametrize("inside", [lambda f: f, jax.jit, jax.checkpoint, scanned])
@pytest.mark.parametrize("hoist", [converted, evaluated])
def test_a_value_that_becomes_an_argument_of_a_program_is_not_stopped(hoist, inside, ask):
    def sensitivity(x):
        pred = ask(x)

        def f(y):
            return inside(lambda y: cond(pred, lambda: 3.0 * x * y, lambda: 5.0 * x * y))(y)

        return hoist(f)

    assert jax.jit(sensitivity)(jnp.float32(2.0)) == 5.0
    assert jax.jit(jax.grad(lambda x: sensitivity(x) * x))(jnp.float32(2.0)) == 3.0
