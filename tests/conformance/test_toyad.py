"""toyad, the AD system of the tutorial: what it traces, and its primitives against differences.

That its transformations are right, each inside of each other, is what the suite on it says.
"""

import numpy as np
import pytest
import toyad
from small import toy

from adprotocol import custom_derivative
from adprotocol.errors import RuleError

DERIVATIVES = {
    "grad": toyad.grad,
    "jvp": lambda fun: lambda x: toyad.jvp(fun, x, 1.0)[1],
}


def number(value):
    """The NumPy value of an array that belongs to no transformation."""
    assert type(value) is toyad.Array
    return value.value


class TestArray:
    @pytest.mark.parametrize("convert", [float, int, np.asarray])
    def test_a_value_with_a_derivative_is_no_number(self, convert):
        for transform in DERIVATIVES.values():
            with pytest.raises(TypeError, match="stop_gradient"):
                transform(lambda x: x * convert(x))(2.0)
            assert float(transform(lambda x: x * float(toyad.stop_gradient(x)))(2.0)) == 2.0

    def test_a_staged_and_a_batched_value_name_the_remedy(self):
        with pytest.raises(TypeError, match="not known while a program is traced; use cond"):
            toyad.jit(lambda x: x if x > 0 else -x)(1.0)
        with pytest.raises(TypeError, match="under vmap; use cond"):
            toyad.vmap(lambda x: x if x > 0 else -x)(np.ones(2))


FUNCTIONS = {
    "add": (lambda x: x + x + 1, lambda x: 2 * x + 1),
    "subtract": (lambda x: 1 - (x - 2 * x), None),
    "divide": (lambda x: 1 / x + x / (x + 1), None),
    "power of a number": (lambda x: x**2.5, None),
    "power of a whole number": (lambda x: x**-3 + x**0 + x**1, None),
    "number to the power": (lambda x: 2**x, None),
    "power to the power": (lambda x: x**x, None),
    "sin and cos": (lambda x: toyad.sin(x) * toyad.cos(2 * x), None),
    "exp and log": (lambda x: toyad.exp(x) * toyad.log(x), None),
    "sqrt": (toyad.sqrt, None),
    "where": (lambda x: toyad.where(x > 1, x**2, 1 / x), None),
    "outer": (lambda x: x[:, None] * x[None, :] / toyad.sum(x), None),
    "index": (lambda x: x[::-1] * x[1] + x[-1] ** 2, None),
    "matmul": (lambda x: (x[:, None] * x) @ x + x @ x, None),
    "sum": (lambda x: toyad.sum(x[:, None] * x, axis=0) * toyad.sum(x), None),
    "stack": (lambda x: toyad.stack([x, x**2])[1] * toyad.stack(list(x)), None),
}


class TestPrimitives:
    @pytest.mark.parametrize("name", FUNCTIONS)
    @pytest.mark.parametrize("wrap", [lambda f: f, toyad.jit, toyad.checkpoint], ids=["plain", "jit", "checkpoint"])
    def test_forward_and_reverse_agree_with_differences(self, name, wrap):
        fun = wrap(FUNCTIONS[name][0])
        x, t = np.array([0.7, 1.3, 2.1]), np.array([0.3, -1.0, 0.5])
        step = 1e-5
        differences = (number(fun(toyad.array(x + step * t))) - number(fun(toyad.array(x - step * t)))) / (2 * step)
        value, tangent = toyad.jvp(fun, x, t)
        assert np.allclose(number(value), number(fun(toyad.array(x))))
        assert np.allclose(number(tangent), differences, atol=1e-7)
        weights = np.arange(1.0, 1.0 + differences.size).reshape(differences.shape)
        gradient = number(toyad.grad(lambda x: toyad.sum(fun(x) * weights))(x))
        assert gradient.shape == (3,)
        assert np.allclose(gradient @ t, np.sum(differences * weights), atol=1e-6)


class TestJit:
    def test_compile_drops_queries_branches_and_what_is_not_used(self):
        def fun(x):
            _ = toyad.sin(x)
            return toyad.cond(toyad.is_differentiated(x), lambda x: toyad.exp(toyad.exp(x)), lambda x: x * 5.0, x)

        program, operands, _ = toyad._traced(fun, (1.0,), {}, {})
        assert [e.primitive for e in program.equations] == [toyad.sin, toyad.differentiated, toyad.branch]
        plain = toyad.optimise(program, operands, (False,))
        assert [e.primitive for e in plain.equations] == [toyad.multiply]
        trained = toyad.optimise(program, operands, (True,))
        assert [e.primitive for e in trained.equations] == [toyad.exp, toyad.exp]

    def test_a_staged_value_that_escapes_is_refused(self):
        held = []
        toyad.jit(lambda x: held.append(x) or x)(1.0)
        with pytest.raises(RuntimeError, match="escaped"):
            held[0] + 1.0


def test_residuals_that_may_hold_tracers_are_refused_where_it_traces():
    f = custom_derivative(has_residuals=True)(lambda x: (x * x, np.random.default_rng()))
    f.defvjp(lambda ct, returned, x: (2.0 * ct * x,))
    with toy():
        assert float(toyad.grad(f)(2.0)) == 4.0
        with pytest.raises(RuleError, match="Generator"):
            toyad.grad(toyad.jit(f))(2.0)
