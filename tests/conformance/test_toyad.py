"""toyad, the AD system of the tutorial: what it refuses and traces, and its primitives against differences.

That its transformations are right, each inside of each other, is what the suite on it says.
"""

import operator

import numpy as np
import pytest
import toyad

DERIVATIVES = {
    "grad": toyad.grad,
    "jvp": lambda fun: lambda x: toyad.jvp(fun, x, 1.0)[1],
}


def number(value):
    """The NumPy value of an array that belongs to no transformation."""
    assert type(value) is toyad.Array
    return value.value


class TestArray:
    @pytest.mark.parametrize("value", ["text", None, object(), np.datetime64("2000-01-01")])
    def test_other_things_are_refused(self, value):
        with pytest.raises(TypeError, match="numbers and booleans"):
            toyad.array(value)
        with pytest.raises(TypeError):
            toyad.array(1.0) + value

    @pytest.mark.parametrize(
        ("got", "want"),
        [
            (lambda x: x + 1, 4.0),
            (lambda x: 1 - x, -2.0),
            (lambda x: x / 0, np.inf),
            (lambda x: 6 / x, 2.0),
            (lambda x: 2**x, 8.0),
            (lambda x: -x, -3.0),
            (lambda x: np.float64(2.0) * x, 6.0),
            (lambda x: np.ones(2) * x, [3.0, 3.0]),
            (lambda x: x - np.ones(2), [2.0, 2.0]),
            (lambda x: x < 3, False),
            (lambda x: x <= 3, True),
            (lambda x: operator.lt(3, x), False),
            (lambda x: x >= 3, True),
            (lambda x: x == 3, True),
            (lambda x: x != 3, False),
            (lambda x: (x > 2) & (x < 2), False),
            (lambda x: (x > 2) | (x < 2), True),
            (lambda x: ~(x > 2), False),
        ],
    )
    def test_operators(self, got, want):
        result = got(toyad.array(3.0))
        assert np.array_equal(number(result), want)
        assert result.dtype == np.asarray(want).dtype

    def test_the_device_is_kept(self):
        x = toyad.array([1.0, 2.0], device="toy:1")
        devices = [(x * 2).device, (2 * x).device, x[0].device, toyad.jit(lambda x: toyad.sum(x) + 1)(x).device]
        toyad.grad(lambda x: devices.append(x.device) or toyad.sum(x))(x)
        assert devices == ["toy:1"] * 5
        assert toyad.grad(lambda x: 1.0)(x).device == "toy:1"
        assert toyad.grad(lambda x: x[0] + 0.0)(x).device == "toy:1"
        assert toyad.array(1.0).device == "cpu"

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

    @pytest.mark.parametrize("name", FUNCTIONS)
    def test_batched_is_one_by_one(self, name):
        fun = FUNCTIONS[name][0]
        xs = np.array([[0.7, 1.3, 2.1], [1.1, 0.2, 0.9]])
        one_by_one = [number(fun(toyad.array(x))) for x in xs]
        assert np.allclose(number(toyad.vmap(fun)(xs)), one_by_one)
        nested = toyad.vmap(toyad.vmap(fun))(np.stack([xs, 2 * xs]))
        assert np.allclose(number(nested)[0], one_by_one)
        closed = toyad.vmap(lambda weight: weight * fun(toyad.array(xs[0])))(np.ones(2))
        assert np.allclose(number(closed)[1], one_by_one[0])
        gradients = toyad.vmap(toyad.grad(lambda x: toyad.sum(fun(x))))(xs)
        assert np.allclose(number(gradients)[1], number(toyad.grad(lambda x: toyad.sum(fun(x)))(xs[1])))


class TestReverse:
    def test_the_gradient_of_a_structure_has_the_structure(self):
        def fun(model):
            return model["a"][0] ** 2 * model["b"].first

        gradient = toyad.grad(fun)({"b": toyad.Pair(toyad.array(3.0), None), "a": (toyad.array(2.0), 5.0)})
        assert float(gradient["a"][0]) == 12.0
        assert float(gradient["a"][1]) == 0.0
        assert float(gradient["b"].first) == 4.0
        assert gradient["b"].second is None

    @pytest.mark.parametrize("result", [lambda x: x > 0, lambda x: x * np.ones(2), lambda x: 3])
    def test_what_is_no_real_scalar_is_refused(self, result):
        with pytest.raises(TypeError, match="real scalars"):
            toyad.grad(result)(2.0)

    def test_a_long_chain_needs_no_recursion(self):
        def fun(x):
            for _ in range(5000):
                x = x * 1.0
            return x

        assert float(toyad.grad(fun)(1.0)) == 1.0


class TestJit:
    def test_it_traces_once_for_each_kind_of_argument(self):
        traces = []
        jitted = toyad.jit(lambda x, k: traces.append(1) or x * k)
        for x in (1.0, 2.0, np.ones(2), np.zeros(2)):
            assert np.allclose(number(jitted(x, k=3.0)), np.multiply(x, 3.0))
        assert len(traces) == 2
        jitted(1.0, k=3)
        assert len(traces) == 3
        jitted(1.0, 3.0)
        assert len(traces) == 4

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


class TestVmap:
    def test_all_arguments_are_batched(self):
        result = toyad.vmap(lambda x, pair: (x * pair["a"], 1.0, None))(np.arange(3.0), {"a": np.ones((3, 2))})
        assert number(result[0]).tolist() == [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
        assert number(result[1]).tolist() == [1.0] * 3
        assert result[2] is None

    @pytest.mark.parametrize("args", [(1.0,), (np.ones(2), np.ones(3)), ()])
    def test_other_axes_are_refused(self, args):
        with pytest.raises(ValueError, match="leading axis"):
            toyad.vmap(lambda *xs: xs[0])(*args)


class TestCond:
    @pytest.mark.parametrize("pred", [1, None, "yes", toyad.array(1), toyad.array([True]), np.ones(2) > 0])
    def test_other_predicates_are_refused(self, pred):
        with pytest.raises(TypeError, match="boolean scalar"):
            toyad.cond(pred, lambda: 1, lambda: 2)

    @pytest.mark.parametrize(
        ("other", "name"),
        [
            (lambda x: (x, x), r"\('float64\[\]', 'float64\[\]'\)"),
            (lambda x: x * np.ones(2), r"float64\[2\]"),
            (lambda x: x > 0, r"bool\[\]"),
            (lambda x: None, "None"),
        ],
    )
    def test_a_mismatch_names_both(self, other, name):
        for run in (toyad.jit, lambda fun: lambda x: toyad.vmap(fun)(x * np.ones(2))):
            with pytest.raises(toyad.BranchMismatch, match=name) as caught:
                run(lambda x: toyad.cond(x > 0, lambda x: x, other, x))(1.0)
            assert "true_fun returns float64[]" in str(caught.value)
            assert isinstance(caught.value, TypeError)


class TestCheckpoint:
    def test_a_tape_keeps_one_record(self):
        def fun(x):
            for _ in range(10):
                x = toyad.sin(x)
            return x

        with toyad.Tape() as tape:
            toyad.checkpoint(fun)(tape.root(toyad.array(1.0)))
            assert len(tape.records) == 1
        with toyad.Tape() as tape:
            fun(tape.root(toyad.array(1.0)))
            assert len(tape.records) == 10

    def test_it_keeps_one_record_under_vmap(self):
        with toyad.Tape() as tape:
            toyad.vmap(toyad.checkpoint(lambda x: toyad.sin(toyad.sin(x))))(tape.root(toyad.array([1.0, 2.0])))
            assert len(tape.records) == 1


class TestParameterGrad:
    def test_one_that_is_not_trained_is_refused(self):
        with pytest.raises(TypeError, match="not to be trained"):
            toyad.parameter_grad(lambda: 1.0, toyad.Parameter(3.0, trains=False))
