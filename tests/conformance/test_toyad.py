"""toyad, the AD system of the tutorial, against closed forms: each transformation, and each inside of each other."""

import itertools
import operator
import threading

import numpy as np
import pytest
import toyad
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.polynomial import Polynomial

X = 1.5
AT = toyad.array(X)


# Each takes a function of a scalar to another. The first two differentiate; the rest do not change it.
DERIVATIVES = {
    "grad": toyad.grad,
    "jvp": lambda fun: lambda x: toyad.jvp(fun, x, 1.0)[1],
}
TRANSPARENT = {
    "jit": toyad.jit,
    "compile": toyad.compile,
    "checkpoint": toyad.checkpoint,
    "vmap": lambda fun: lambda x: toyad.vmap(fun)(toyad.stack([x + 1.0, x]))[1],
    "vmap-closed-over": lambda fun: (
        lambda x: toyad.sum(toyad.vmap(lambda weight: weight * fun(x))(toyad.array([0.75, 0.25])))
    ),
    "scan": lambda fun: (
        lambda x: toyad.scan(lambda carry, step: (carry + step * fun(x), None), 0.0, np.ones(2))[0] * 0.5
    ),
    "scan-carry": lambda fun: lambda x: toyad.scan(lambda carry, step: (x, fun(carry) * step), x, np.ones(2))[1][1],
    "custom-rule-around": lambda fun: toyad.custom_rule(fun, toyad.grad(fun)),
}
TRANSFORMS = DERIVATIVES | TRANSPARENT
STACKS = [names for n in (0, 1, 2, 3) for names in itertools.product(TRANSFORMS, repeat=n)]
# A custom rule runs its function on plain values: what is inside it is not differentiated.
OPEN_STACKS = [names for names in STACKS if "custom-rule-around" not in names]


def under(names, fun):
    """The function under transformations, the outermost named first."""
    for name in reversed(names):
        fun = TRANSFORMS[name](fun)
    return fun


def order(names):
    return sum(name in DERIVATIVES for name in names)


def derivative(power, n, x=X):
    """The n-th derivative of x**power."""
    return Polynomial([0.0] * power + [1.0]).deriv(n)(x) if n else x**power


def number(value):
    """The NumPy value of an array that belongs to no transformation."""
    assert type(value) is toyad.Array
    return value.value


class TestNesting:
    def test_the_derivatives_of_a_power(self):
        for names in STACKS:
            assert number(under(names, lambda x: x**5)(AT)) == pytest.approx(derivative(5, order(names))), names

    def test_the_derivatives_of_a_function_with_itself_inside(self):
        for names in STACKS:
            assert number(under(names, toyad.exp)(AT)) == pytest.approx(np.exp(X)), names

    def test_without_recording_tapes_see_a_constant_and_forward_mode_does_not(self):
        def quiet_factor(x):
            with toyad.no_grad():
                factor = x**3
            return x**2 * factor

        for names in OPEN_STACKS:
            # x**2 * y**3, where grad differentiates with respect to x, and jvp with respect to both.
            forward, reverse = names.count("jvp"), names.count("grad")
            want = sum(
                _choose(forward, k) * derivative(2, reverse + forward - k) * derivative(3, k)
                for k in range(forward + 1)
            )
            assert number(under(names, quiet_factor)(AT)) == pytest.approx(want), names

    def test_a_rule_of_its_own_is_used_at_every_level(self):
        fake = toyad.custom_rule(lambda x: x**5, lambda x: 7.0 * x**4)
        for names in STACKS:
            n = order(names)
            want = 7.0 * derivative(4, n - 1) if n else X**5
            if "custom-rule-around" not in names:
                assert number(under(names, fake)(AT)) == pytest.approx(want), names

    def test_derivatives_with_respect_to_different_variables(self):
        # The mixed derivatives of x**3 * y**4, each with one transformation between.
        for outer, inner in itertools.product(DERIVATIVES, repeat=2):
            for between in itertools.product(TRANSPARENT, repeat=2):

                def of_y(y, inner=inner, between=between):
                    fun = TRANSPARENT[between[1]](lambda x: x**3 * y**4)
                    return TRANSPARENT[between[0]](DERIVATIVES[inner](fun))(X)

                if "custom-rule-around" in between:
                    continue
                got = number(DERIVATIVES[outer](of_y)(2.0))
                assert got == pytest.approx(derivative(3, 1) * derivative(4, 1, 2.0)), (outer, inner, between)

    @pytest.mark.parametrize("outer", DERIVATIVES)
    @pytest.mark.parametrize("inner", DERIVATIVES)
    def test_no_perturbation_confusion(self, outer, inner):
        def product(x):
            return x * DERIVATIVES[inner](lambda y: x + y)(1.0)

        assert number(DERIVATIVES[outer](product)(1.0)) == 1.0


def _choose(n, k):
    return len(list(itertools.combinations(range(n), k)))


class TestAgainstPolynomials:
    @staticmethod
    def expressions():
        """Functions of x together with the polynomials that they are."""
        leaf = st.one_of(
            st.just((lambda x: x, Polynomial([0.0, 1.0]))),
            st.integers(-2, 2).map(lambda c: (lambda x: float(c), Polynomial([float(c)]))),
        )

        def binary(children):
            return st.tuples(st.sampled_from("+-*"), children, children).map(join)

        def join(parts):
            sign, (f, p), (g, q) = parts
            if sign == "+":
                return (lambda x: f(x) + g(x)), p + q
            if sign == "-":
                return (lambda x: f(x) - g(x)), p - q
            return (lambda x: f(x) * g(x)), p * q

        def wrapped(children):
            names = st.sampled_from([n for n in TRANSPARENT if n != "custom-rule-around"])
            return st.tuples(names, children).map(lambda part: (TRANSPARENT[part[0]](part[1][0]), part[1][1]))

        def branching(children):
            return st.tuples(children, children).map(branch)

        def branch(parts):
            (f, p), (g, _) = parts
            return (lambda x: toyad.cond(x > -9.0, lambda x: f(x) + 0.0 * x, lambda x: g(x) * toyad.log(-(x**2)), x)), p

        return st.recursive(leaf, lambda c: st.one_of(binary(c), wrapped(c), branching(c)), max_leaves=6)

    @settings(deadline=None, max_examples=150)
    @given(st.data(), st.lists(st.sampled_from([*DERIVATIVES, "jit", "compile", "checkpoint", "vmap"]), max_size=3))
    def test_random_programs_under_random_transformations(self, data, names):
        fun, polynomial = data.draw(self.expressions())
        got = number(under(names, lambda x: fun(x) + 0.0 * x)(AT))
        want = polynomial.deriv(order(names)) if order(names) else polynomial
        assert got == pytest.approx(want(X), abs=1e-9)


class TestArray:
    @pytest.mark.parametrize("value", ["text", None, object(), np.datetime64("2000-01-01")])
    def test_other_things_are_refused(self, value):
        with pytest.raises(TypeError, match="numbers and booleans"):
            toyad.array(value)
        with pytest.raises(TypeError):
            toyad.array(1.0) + value

    def test_cotangents_of_complex_numbers_are_not_conjugated(self):
        z, c = toyad.array(1.0 + 2.0j), toyad.array(2.0 + 1.0j)
        loss = lambda x: toyad.cast(c * z * x * z * x, float)
        assert toyad.grad(loss)(0.5).numpy() == pytest.approx(((2 + 1j) * (1 + 2j) ** 2).real)
        assert toyad.jvp(loss, 0.5, 1.0)[1].numpy() == pytest.approx(((2 + 1j) * (1 + 2j) ** 2).real)
        assert toyad.jit(loss)(0.5).numpy() == pytest.approx(((2 + 1j) * (1 + 2j) ** 2).real / 4)

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

    @pytest.mark.parametrize("transform", [toyad.jit, toyad.compile, toyad.checkpoint])
    def test_one_program_plain_differentiated_and_plain_again(self, transform):
        traces = []

        def fun(x):
            traces.append(1)
            return toyad.cond(toyad.is_differentiated(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        jitted = transform(fun)
        for _ in range(3):
            assert float(jitted(2.0)) == 10.0
            assert float(toyad.grad(jitted)(2.0)) == 3.0
            assert [float(v) for v in toyad.jvp(jitted, 2.0, 1.0)] == [6.0, 3.0]
            assert number(toyad.vmap(jitted)(np.ones(2))).tolist() == [5.0, 5.0]
        assert len(traces) == 1

    @pytest.mark.parametrize("transform", [toyad.jit, toyad.compile, toyad.checkpoint])
    def test_values_of_outer_levels_are_not_kept(self, transform):
        held = []
        by_held = transform(lambda x: x * held[-1])

        def outer(y):
            held.append(y)
            return by_held(3.0)

        assert [float(toyad.grad(outer)(y)) for y in (1.0, 2.0)] == [3.0, 3.0]
        assert [float(toyad.jvp(outer, y, 1.0)[0]) for y in (1.0, 2.0)] == [3.0, 6.0]

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

    @pytest.mark.parametrize("wrap", [lambda f: f, toyad.jit, toyad.checkpoint], ids=["plain", "jit", "checkpoint"])
    def test_a_batched_predicate_with_nan_on_the_other_side(self, wrap):
        def fun(x):
            return toyad.cond(x > 0, lambda x: toyad.sqrt(x) * toyad.log(x), lambda x: 1.0 / (x - 4.0) ** 2, x)

        xs = np.array([4.0, -1.0, 4.0])
        want = [np.log(4.0) / 4.0 + 0.5, 0.016, np.log(4.0) / 4.0 + 0.5]
        assert np.allclose(number(toyad.vmap(toyad.grad(wrap(fun)))(xs)), want)
        assert np.allclose(number(toyad.grad(lambda xs: toyad.sum(toyad.vmap(wrap(fun))(xs)))(xs)), want)
        assert np.allclose(number(toyad.jvp(toyad.vmap(wrap(fun)), xs, np.ones(3))[1]), want)
        second = toyad.vmap(toyad.grad(toyad.grad(wrap(fun))))(xs)
        assert np.allclose(number(second), [-np.log(4.0) / 32.0, 6.0 / 625.0, -np.log(4.0) / 32.0])

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


class TestLevels:
    @pytest.mark.parametrize("transform", TRANSFORMS)
    def test_an_exception_leaves_nothing_behind(self, transform):
        held = []

        def failing(x):
            held.append(x)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            under([transform], failing)(AT)
        assert toyad.STATE.stages == ()
        assert toyad.STATE.quiet == 0
        assert toyad.is_differentiated(toyad.array(2.0)) is False
        assert float(toyad.grad(lambda x: x**2)(3.0)) == 6.0
        if isinstance(held[0], toyad.Array):
            return
        with pytest.raises(RuntimeError, match="escaped"):
            held[0] + 1.0

    def test_threads_at_once_do_not_disturb_each_other(self):
        wrong = []

        def work(n):
            for i in range(50):
                x = float(n + i)
                got = float(toyad.grad(toyad.jit(toyad.grad(lambda x: x**3)))(x))
                if abs(got - 6.0 * x) > 1e-9:
                    wrong.append((x, got))

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


class TestParameterGrad:
    @pytest.mark.parametrize("way", [toyad.jit, toyad.compile, toyad.checkpoint])
    def test_a_program_takes_it_as_an_operand_at_each_call(self, way):
        p = toyad.Parameter(3.0)
        program = way(lambda x: toyad.cond(toyad.is_differentiated(p), lambda: 3.0 * p * x, lambda: 5.0 * p * x))
        two = toyad.array(2.0)
        for _ in range(2):
            assert float(program(two)) == 30.0
            assert float(toyad.parameter_grad(lambda: program(two), p)) == 6.0
        inside = way(lambda x: toyad.parameter_grad(lambda: p * p * x, p))
        assert float(inside(two)) == 12.0

    def test_one_that_is_not_trained_is_refused(self):
        with pytest.raises(TypeError, match="not to be trained"):
            toyad.parameter_grad(lambda: 1.0, toyad.Parameter(3.0, trains=False))
