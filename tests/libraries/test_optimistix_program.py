"""optimistix: a root that is differentiated implicitly, and a question that it refuses inside."""

import pytest

optimistix = pytest.importorskip("optimistix", reason="needs optimistix: make libraries")
import jax.numpy as jnp

import adprotocol
from adprotocol import cond, within_gradient
from adprotocol.errors import UndecidableError

MODEL = {"a": jnp.float32(2.0), "degree": 2}


def root(model, equation):
    args = (model["a"], jnp.asarray(within_gradient(model["a"])))
    solver = optimistix.Newton(rtol=1e-6, atol=1e-6)
    return optimistix.root_find(equation, solver, jnp.float32(1.0), args=args).value


def test_the_answer_is_passed_in():
    def equation(y, args):
        a, tracked = args
        return y**2 - cond(tracked, lambda: a, lambda: 4.0 * a)

    value, gradient = adprotocol.value_and_grad(lambda model: root(model, equation))(MODEL)
    assert jnp.allclose(value, jnp.sqrt(2.0))
    assert jnp.allclose(gradient["a"], 0.5 / jnp.sqrt(2.0))
    assert gradient["degree"] is None
    assert jnp.allclose(root(MODEL, equation), jnp.sqrt(8.0))


def test_a_question_inside_is_refused():
    def equation(y, args):
        return y**2 - cond(within_gradient(args[0]), lambda: args[0], lambda: 4.0 * args[0])

    with pytest.raises(UndecidableError, match="optimistix"):
        adprotocol.grad(lambda model: root(model, equation))(MODEL)
