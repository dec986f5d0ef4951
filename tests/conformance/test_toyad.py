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

    def test_the_query_is_true_under_any_derivative_and_false_without(self):
        def doubled_in_training(x):
            return toyad.cond(toyad.is_differentiated(x), lambda x: 2.0 * x**5, lambda x: x**5, x)

        for names in OPEN_STACKS:
            factor = 2.0 if order(names) else 1.0
            got = number(under(names, doubled_in_training)(AT))
            assert got == pytest.approx(factor * derivative(5, order(names))), names

    def test_the_query_of_what_a_branch_closes_over(self):
        def doubled_in_training(x):
            y = x * 1.0
            return toyad.cond(toyad.is_differentiated(y), lambda: 2.0 * y**5, lambda: y**5)

        for names in OPEN_STACKS:
            factor = 2.0 if order(names) else 1.0
            got = number(under(names, doubled_in_training)(AT))
            assert got == pytest.approx(factor * derivative(5, order(names))), names

    def test_what_is_stopped_is_a_constant_at_all_levels(self):
        for names in OPEN_STACKS:
            got = number(under(names, lambda x: x**2 * toyad.stop_gradient(x**3))(AT))
            assert got == pytest.approx(derivative(2, order(names)) * X**3), names

    def test_a_stopped_value_is_not_differentiated(self):
        def answer(x):
            return toyad.cond(toyad.is_differentiated(toyad.stop_gradient(x)), lambda x: 2.0 * x**5, lambda x: x**5, x)

        for names in OPEN_STACKS:
            assert number(under(names, answer)(AT)) == pytest.approx(derivative(5, order(names))), names

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

    def test_the_query_without_recording(self):
        def answer(x):
            with toyad.no_grad():
                asked = toyad.is_differentiated(x)
            return toyad.cond(asked, lambda x: 2.0 * x**5, lambda x: x**5, x)

        for names in OPEN_STACKS:
            factor = 2.0 if "jvp" in names else 1.0
            got = number(under(names, answer)(AT))
            assert got == pytest.approx(factor * derivative(5, order(names))), names

    def test_nan_in_the_branch_not_taken_stays_there(self):
        def guarded(x):
            return toyad.cond(x > 0, lambda x: x**5, lambda x: toyad.log(-(x**2)) / (x - x), x)

        for names in STACKS:
            assert number(under(names, guarded)(AT)) == pytest.approx(derivative(5, order(names))), names

    def test_nan_in_a_branch_that_closes_over_its_operand(self):
        def guarded(x):
            return toyad.cond(x < 0, lambda: toyad.sqrt(-x - 4.0 * x) / (x - x), lambda: x**5)

        for names in STACKS:
            assert number(under(names, guarded)(AT)) == pytest.approx(derivative(5, order(names))), names

    def test_cond_inside_of_cond(self):
        def guarded(x):
            return toyad.cond(
                x > 0,
                lambda x: toyad.cond(x > 9, lambda x: toyad.log(-x), lambda x: x**5, x),
                lambda x: toyad.sqrt(-x),
                x,
            )

        for names in STACKS:
            assert number(under(names, guarded)(AT)) == pytest.approx(derivative(5, order(names))), names

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

    def test_the_query_knows_the_levels_of_each_value(self):
        answers = []

        def inner(x, y):
            answers.append((toyad.is_differentiated(x), toyad.is_differentiated(y), toyad.is_differentiated(x * y)))
            return x * y

        toyad.grad(lambda x: x * toyad.grad(lambda y: inner(toyad.stop_gradient(x), y))(2.0))(3.0)
        toyad.grad(lambda x: toyad.stop_gradient(inner(x, toyad.array(2.0))) * x)(3.0)
        assert answers == [(False, True, True), (True, False, True)]


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
    def test_floats_of_python_are_float64_and_dtypes_stay(self):
        assert toyad.array(1.0).dtype == np.float64
        assert toyad.array(np.float32(1.0)).dtype == np.float32
        assert toyad.array([1, 2]).dtype == np.int64
        assert toyad.array(True).dtype == np.bool_
        assert toyad.array([1, 2]).shape == (2,)

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

    def test_it_is_a_copy(self):
        source = np.ones(2)
        array = toyad.array(source)
        source[0] = 5.0
        assert list(array.value) == [1.0, 1.0]

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

    def test_containers_protocols(self):
        x = toyad.array([[1.0, 2.0], [3.0, 4.0]])
        assert len(x) == 2
        assert [float(sum(row)) for row in x] == [3.0, 7.0]
        assert float(x[1, 0]) == 3.0
        assert x[..., None].shape == (2, 2, 1)
        assert x[:, ::-1].value.tolist() == [[2.0, 1.0], [4.0, 3.0]]
        assert x[toyad.array(1)].value.tolist() == [3.0, 4.0]
        with pytest.raises(TypeError):
            len(x[0, 0])
        with pytest.raises(TypeError):
            iter(x[0, 0])
        with pytest.raises(IndexError):
            x[2]

    def test_a_comparison_with_something_else_is_python_s(self):
        assert (toyad.array(1.0) == None) is False  # noqa: E711
        assert toyad.array(1.0) != "text"

    def test_arrays_are_hashable_by_identity(self):
        a, b = toyad.array(1.0), toyad.array(1.0)
        assert len({a, b, a}) == 2

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

    def test_the_truth_of_a_comparison_is_known_under_a_derivative(self):
        assert float(toyad.grad(lambda x: x**2 if x > 0 else x)(3.0)) == 6.0

    def test_a_staged_and_a_batched_value_name_the_remedy(self):
        with pytest.raises(TypeError, match="not known while a program is traced; use cond"):
            toyad.jit(lambda x: x if x > 0 else -x)(1.0)
        with pytest.raises(TypeError, match="under vmap; use cond"):
            toyad.vmap(lambda x: x if x > 0 else -x)(np.ones(2))

    def test_a_parameter_is_an_array_with_a_flag(self):
        parameter = toyad.Parameter([1.0, 2.0], trains=False)
        assert isinstance(parameter, toyad.Array)
        assert parameter.trains is False
        assert toyad.Parameter(1.0).trains is True
        assert number(parameter * 2).tolist() == [2.0, 4.0]


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

    def test_broadcasting_is_summed_in_reverse(self):
        gradient = toyad.grad(lambda x: toyad.sum(x * np.ones((2, 3))))
        assert number(gradient(2.0)) == 6.0
        assert number(gradient(np.ones(3))).tolist() == [2.0] * 3
        assert number(gradient(np.ones((2, 1)))).tolist() == [[3.0], [3.0]]

    def test_a_power_has_a_derivative_at_zero(self):
        assert [float(toyad.grad(lambda x, n=n: x**n)(0.0)) for n in (0, 1, 2)] == [0.0, 1.0, 0.0]
        assert float(toyad.grad(lambda y: toyad.array(0.0) ** y)(2.0)) == 0.0

    def test_where_keeps_what_is_not_chosen_out(self):
        for transform in DERIVATIVES.values():
            assert float(transform(lambda x: toyad.where(x > 0, x, toyad.log(-x * x)))(2.0)) == 1.0


class TestReverse:
    def test_value_and_gradient_with_further_arguments(self):
        value, gradient = toyad.value_and_grad(lambda x, y, scale=1.0: scale * x * y)(2.0, 3.0, scale=10.0)
        assert (float(value), float(gradient)) == (60.0, 30.0)

    def test_the_gradient_of_a_structure_has_the_structure(self):
        def fun(model):
            return model["a"][0] ** 2 * model["b"].first

        gradient = toyad.grad(fun)({"b": toyad.Pair(toyad.array(3.0), None), "a": (toyad.array(2.0), 5.0)})
        assert float(gradient["a"][0]) == 12.0
        assert float(gradient["a"][1]) == 0.0
        assert float(gradient["b"].first) == 4.0
        assert gradient["b"].second is None

    def test_all_leaves_are_roots_of_one_tape(self):
        def fun(leaves):
            return leaves[0] * leaves[1] ** 2, {"aux": leaves[0] + 1.0, "name": "n"}

        value, aux, grads = toyad.gradients(fun, [toyad.array(2.0), 3.0, np.ones(2)])
        assert float(value) == 18.0
        assert float(number(aux["aux"])) == 3.0
        assert aux["name"] == "n"
        assert [number(g).tolist() for g in grads] == [9.0, 12.0, [0.0, 0.0]]

    def test_aux_keeps_the_levels_outside(self):
        def outer(x):
            _, aux, _ = toyad.gradients(lambda leaves: (leaves[0] ** 2, leaves[0] * x), [toyad.array(5.0)])
            return aux

        assert float(toyad.grad(outer)(2.0)) == 5.0

    def test_an_integer_is_refused(self):
        with pytest.raises(TypeError, match="floats"):
            toyad.grad(lambda x: x * 1.0)(2)
        with pytest.raises(TypeError, match="floats"):
            toyad.jvp(lambda x: x * 1.0, 2, 1.0)

    @pytest.mark.parametrize("result", [lambda x: x > 0, lambda x: x * np.ones(2), lambda x: 3])
    def test_what_is_no_real_scalar_is_refused(self, result):
        with pytest.raises(TypeError, match="real scalars"):
            toyad.grad(result)(2.0)

    def test_a_constant_has_zero_gradient(self):
        assert number(toyad.grad(lambda x: 3.0)(np.ones(2))).tolist() == [0.0, 0.0]

    def test_a_value_used_often(self):
        def fun(x):
            for _ in range(40):
                x = x + x
            return x

        assert float(toyad.grad(fun)(1.0)) == 2.0**40

    def test_a_long_chain_needs_no_recursion(self):
        def fun(x):
            for _ in range(5000):
                x = x * 1.0
            return x

        assert float(toyad.grad(fun)(1.0)) == 1.0


class TestForward:
    def test_structures_in_and_out(self):
        (a, b), (ta, tb) = toyad.jvp(lambda d: (d["x"] * d["y"], 1.0), {"x": 2.0, "y": 3.0}, {"x": 1.0, "y": 10.0})
        assert [float(v) for v in (a, b, ta, tb)] == [6.0, 1.0, 23.0, 0.0]

    def test_a_tangent_of_another_structure_is_refused(self):
        with pytest.raises(TypeError, match="structure"):
            toyad.jvp(lambda x: x, 1.0, (1.0,))

    def test_a_tangent_of_another_shape_is_refused(self):
        with pytest.raises(ValueError, match="shape"):
            toyad.jvp(lambda x: x, np.ones(2), np.ones(3))
        with pytest.raises(ValueError, match="shape"):
            toyad.jvp(lambda x: x, np.ones(()), np.ones(3))


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

    @pytest.mark.parametrize("transform", [toyad.jit, toyad.compile, toyad.checkpoint])
    def test_answers_about_outer_levels_are_not_kept(self, transform):
        held = []

        @transform
        def by_held(x):
            return x * (2.0 if toyad.is_differentiated(held[-1]) else 1.0)

        def outer(y):
            held.append(y)
            return by_held(3.0) * y

        assert float(toyad.grad(outer)(1.0)) == 6.0
        held.append(toyad.array(1.0))
        assert float(by_held(3.0)) == 3.0

    def test_structures_in_and_out(self):
        def fun(pair, config):
            return {"second": toyad.Pair(pair.second * config["scale"], config["name"]), "none": None}

        result = toyad.jit(fun)(toyad.Pair(1.0, 2.0), {"scale": 4, "name": "n"})
        assert float(result["second"].first) == 8.0
        assert result["second"].second == "n"
        assert result["none"] is None

    def test_the_query_is_staged_for_an_operand_and_known_otherwise(self):
        answers = []

        def fun(x):
            answers.extend([toyad.is_differentiated(x), toyad.is_differentiated(toyad.array(1.0))])
            return x

        toyad.jit(fun)(1.0)
        assert isinstance(answers[0], toyad.Staged)
        assert (answers[0].dtype, answers[0].shape) == (np.dtype(bool), ())
        assert answers[1] is False

    def test_the_staged_answer_of_an_integer_is_known(self):
        answers = []
        toyad.jit(lambda n: answers.append(toyad.is_differentiated(n)) or n)(1)
        assert answers == [False]

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

    @pytest.mark.parametrize(("transform", "runs"), [(toyad.jit, 2), (toyad.compile, 0)])
    def test_compile_does_not_run_what_is_not_used(self, transform, runs):
        ran = []
        logged = toyad.custom_rule(lambda x: ran.append(1) or x, lambda x: 1.0)
        transformed = transform(lambda x: (logged(x), x * 2.0)[1])
        assert [float(transformed(x)) for x in (1.0, 2.0)] == [2.0, 4.0]
        assert len(ran) == runs

    def test_abstract_computes_nothing(self):
        count = toyad.counter()
        shape = toyad.abstract(lambda x: toyad.stack([count[0](x), x])[:, :2], np.ones((3, 4)))
        assert shape == (2, 2, 4)

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

    @pytest.mark.parametrize("wrap", [toyad.checkpoint, toyad.jit])
    def test_a_result_that_is_the_same_for_all(self, wrap):
        results = toyad.vmap(wrap(lambda x: (x, 2.0, np.ones(3))))(np.arange(2.0))
        assert [number(result).tolist() for result in results] == [[0.0, 1.0], [2.0, 2.0], [[1.0] * 3] * 2]

    @pytest.mark.parametrize("args", [(1.0,), (np.ones(2), np.ones(3)), ()])
    def test_other_axes_are_refused(self, args):
        with pytest.raises(ValueError, match="leading axis"):
            toyad.vmap(lambda *xs: xs[0])(*args)

    def test_the_answer_of_the_query_is_one_for_all(self):
        answers = []

        def fun(x):
            answers.append(toyad.is_differentiated(x))
            return x

        toyad.vmap(fun)(np.ones(2))
        toyad.grad(lambda x: toyad.sum(toyad.vmap(fun)(x)))(np.ones(2))
        toyad.vmap(toyad.grad(fun))(np.ones(2))
        toyad.vmap(lambda x: fun(x > 0))(np.ones(2))
        assert answers == [False, True, True, False]


class TestCond:
    def test_a_known_predicate_runs_one_branch_once(self):
        ran = []
        for pred in (True, np.True_, toyad.array(1.0) > 0):
            toyad.cond(pred, lambda: ran.append(True), lambda: ran.append(False))
        assert ran == [True] * 3

    @pytest.mark.parametrize("pred", [1, None, "yes", toyad.array(1), toyad.array([True]), np.ones(2) > 0])
    def test_other_predicates_are_refused(self, pred):
        with pytest.raises(TypeError, match="boolean scalar"):
            toyad.cond(pred, lambda: 1, lambda: 2)

    def test_one_program_takes_either_branch(self):
        jitted = toyad.jit(lambda x: toyad.cond(x > 0, lambda x: x**2, lambda x: x**3, x))
        assert [float(jitted(x)) for x in (2.0, -2.0, 3.0)] == [4.0, -8.0, 9.0]
        assert [float(toyad.grad(jitted)(x)) for x in (2.0, -2.0, 3.0)] == [4.0, 12.0, 6.0]
        assert [float(toyad.grad(toyad.grad(jitted))(x)) for x in (2.0, -2.0)] == [2.0, -12.0]

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

    def test_an_operand_of_one_branch_only_has_zeros(self):
        def fun(x, y):
            return toyad.cond(x > 0, lambda x, y: x**2, lambda x, y: x * toyad.log(-y * y), x, y)

        for wrap in (lambda f: f, toyad.jit):
            assert float(toyad.grad(lambda y, wrap=wrap: wrap(fun)(2.0, y))(3.0)) == 0.0
            assert float(toyad.grad(wrap(fun))(2.0, 3.0)) == 4.0

    def test_a_vector_operand_with_a_batched_predicate(self):
        xs = np.array([[1.0, 2.0], [-1.0, 2.0]])
        result = toyad.vmap(lambda x: toyad.cond(x[0] > 0, lambda x: x * 2, lambda x: x[0] * np.ones(2), x))(xs)
        assert number(result).tolist() == [[2.0, 4.0], [-1.0, -1.0]]

    def test_integers_and_booleans_with_a_batched_predicate(self):
        def fun(x, n, flag):
            return toyad.cond(flag, lambda x, n, flag: (n, flag, x), lambda x, n, flag: (n + 1, ~flag, -x), x, n, flag)

        n, flag, x = toyad.vmap(fun)(np.ones(2), np.array([1, 2]), np.array([True, False]))
        assert (number(n).tolist(), number(flag).tolist(), number(x).tolist()) == ([1, 3], [True, True], [1.0, -1.0])
        assert n.dtype == np.int64

    def test_numbers_containers_and_nothing(self):
        def fun(x):
            return toyad.cond(
                x > 0, lambda x: (x * 2, None, {"n": 1, "m": 0.5}), lambda x: (0, None, {"n": 2, "m": 1}), x
            )

        for sign, want in ((1.0, (2.0, 1, 0.5)), (-1.0, (0.0, 2, 1.0))):
            first, none, rest = toyad.jit(fun)(sign)
            assert none is None
            assert (float(first), int(rest["n"]), float(rest["m"])) == want
            assert first.dtype == np.float64
            assert rest["n"].dtype == np.int64
        assert float(toyad.grad(lambda x: toyad.jit(fun)(x)[0])(1.0)) == 2.0
        assert float(toyad.grad(lambda x: toyad.jit(fun)(x)[0])(-1.0)) == 0.0

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

    def test_a_result_that_no_branch_differentiates_is_constant(self):
        def fun(x):
            y = toyad.cond(x > 0, toyad.stop_gradient, lambda x: toyad.stop_gradient(-x), x)
            return x * y * toyad.where(toyad.is_differentiated(y), 100.0, 1.0)

        for transform in DERIVATIVES.values():
            for staged in (
                toyad.jit(transform(fun)),
                transform(toyad.jit(fun)),
                toyad.jit(transform(toyad.checkpoint(fun))),
            ):
                assert float(staged(2.0)) == 2.0


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

    def test_the_way_back_has_the_answers_of_the_way_there(self):
        def fun(x):
            return toyad.cond(toyad.is_differentiated(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)

        value, gradient = toyad.value_and_grad(toyad.checkpoint(toyad.checkpoint(fun)))(2.0)
        assert (float(value), float(gradient)) == (6.0, 3.0)

    def test_closed_over_values_have_gradients(self):
        assert float(toyad.grad(lambda w: toyad.checkpoint(lambda x: x * w**2)(3.0))(2.0)) == 12.0


class TestCustomRule:
    def test_the_function_runs_on_values_that_nobody_differentiates(self):
        answers = []

        def fun(x):
            answers.append(toyad.is_differentiated(x))
            return x * x

        rule = toyad.custom_rule(fun, lambda x: 100.0)
        for wrap in (lambda f: f, toyad.jit, toyad.checkpoint):
            for transform in DERIVATIVES.values():
                assert float(transform(wrap(rule))(2.0)) == 100.0
        assert answers
        assert not any(answers)

    def test_batched_with_a_constant_derivative(self):
        rule = toyad.custom_rule(lambda x: x * x, lambda x: 100.0)
        assert number(toyad.vmap(toyad.grad(rule))(np.ones(2))).tolist() == [100.0] * 2
        assert (
            number(toyad.grad(lambda x: toyad.sum(toyad.vmap(rule)(x)))(np.ones((2, 3))[:, 0])).tolist() == [100.0] * 2
        )

    def test_what_is_not_elementwise_is_refused(self):
        with pytest.raises(TypeError, match="elementwise"):
            toyad.custom_rule(toyad.sum, lambda x: 1.0)(np.ones(2))

    def test_closing_over_a_value_that_is_differentiated_is_refused(self):
        with pytest.raises(TypeError, match="close over"):
            toyad.grad(lambda x: toyad.custom_rule(lambda y: y * x, lambda y: y)(x))(2.0)
        with pytest.raises(RuntimeError, match="escaped"):
            toyad.grad(lambda x: toyad.custom_rule(lambda y: y * y, lambda y: x)(x))(2.0)
        with pytest.raises(TypeError, match="close over"):
            toyad.jvp(lambda x: toyad.custom_rule(lambda y: y * y, lambda y: x)(x), 2.0, 1.0)
        with pytest.raises(RuntimeError, match="escaped"):
            toyad.jit(lambda x: toyad.custom_rule(lambda y: y * x, lambda y: y)(x))(2.0)


class TestCounter:
    def test_it_counts_derivatives_and_not_values(self):
        identity, count = toyad.counter()
        identity(2.0)
        toyad.jit(identity)(2.0)
        toyad.abstract(toyad.grad(lambda x: identity(x) ** 2), 2.0)
        assert count() == 0
        assert float(toyad.grad(lambda x: identity(x) ** 2)(2.0)) == 4.0
        assert count() == 1
        assert float(toyad.jvp(lambda x: identity(x) ** 2, 2.0, 1.0)[1]) == 4.0
        assert count() == 2

    def test_a_program_counts_each_time_it_runs(self):
        identity, count = toyad.counter()
        jitted = toyad.jit(toyad.grad(lambda x: identity(x) ** 2))
        for _ in range(3):
            jitted(2.0)
        assert count() == 3

    def test_the_branch_not_taken_and_a_constant_are_not_counted(self):
        identity, count = toyad.counter()
        fun = toyad.jit(lambda x: toyad.cond(x > 0, lambda x: x, identity, x))
        toyad.grad(fun)(2.0)
        toyad.grad(lambda x: x * identity(toyad.stop_gradient(x)))(2.0)
        assert count() == 0
        toyad.grad(fun)(-2.0)
        assert count() == 1


class TestRecording:
    def test_a_tape_begun_inside_records(self):
        with toyad.no_grad():
            assert float(toyad.grad(lambda x: x**2)(3.0)) == 6.0
        assert float(toyad.grad(lambda x: x * _quiet_gradient(x))(3.0)) == 6.0

    def test_a_program_remembers_where_recording_was_off(self):
        def fun(x):
            with toyad.no_grad():
                y = x**2
            return x * y

        jitted = toyad.jit(fun)
        jitted(1.0)
        assert float(toyad.grad(jitted)(3.0)) == 9.0
        assert float(toyad.jvp(jitted, 3.0, 1.0)[1]) == 27.0
        first_called_inside = toyad.jit(lambda x: x**2)
        with toyad.no_grad():
            first_called_inside(1.0)
        assert float(toyad.grad(first_called_inside)(3.0)) == 6.0

    def test_recording_is_on_again_after_an_exception(self):
        with pytest.raises(ZeroDivisionError), toyad.no_grad():
            1 / 0  # noqa: B018
        assert float(toyad.grad(lambda x: x**2)(3.0)) == 6.0


def _quiet_gradient(x):
    with toyad.no_grad():
        return toyad.grad(lambda y: y**2)(x)


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

    def test_a_child_thread_follows_the_values_it_is_given(self):
        def in_thread(fun, *args):
            results = []
            thread = threading.Thread(target=lambda: results.append(fun(*args)))
            thread.start()
            thread.join()
            return results[0]

        def fun(x):
            assert in_thread(toyad.is_differentiated, x) is True
            assert in_thread(toyad.is_differentiated, toyad.array(1.0)) is False
            # The child begins levels of its own, which are inner to those of the value.
            return in_thread(lambda: x**2 * toyad.grad(lambda y: x * y**2)(3.0))

        assert float(toyad.grad(fun)(2.0)) == 72.0
        assert float(toyad.jvp(fun, 2.0, 1.0)[1]) == 72.0
        assert number(toyad.vmap(lambda x: in_thread(lambda: x**2))(np.arange(3.0))).tolist() == [0.0, 1.0, 4.0]

    def test_switches_are_of_one_thread(self):
        entered, asked = threading.Event(), threading.Event()

        def quiet():
            with toyad.no_grad():
                entered.set()
                asked.wait(5)

        thread = threading.Thread(target=quiet)

        def fun(x):
            thread.start()
            entered.wait(5)
            y = x**2
            asked.set()
            thread.join()
            return y

        assert float(toyad.grad(fun)(3.0)) == 6.0

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


class TestCast:
    def test_derivatives_have_the_dtype_of_the_primal(self):
        x = toyad.array(3.0)
        assert toyad.cast(x, "float32").dtype == np.float32
        found = toyad.grad(lambda x: toyad.cast(x, "float32") * x)(x)
        assert (float(found), found.dtype) == (6.0, np.float64)
        half = toyad.cast(x, "float32")
        found = toyad.grad(lambda y: y * x)(half)
        assert (float(found), found.dtype) == (3.0, np.float32)
        _, slope = toyad.jvp(lambda x: toyad.cast(x, "float32"), x, 2.0)
        assert (float(slope), slope.dtype) == (2.0, np.float32)

    def test_it_takes_floats_to_floats(self):
        with pytest.raises(TypeError, match="cast takes floats to floats; it was given int64"):
            toyad.cast(toyad.array(1), "float32")


class TestParameterGrad:
    def test_a_parameter_is_watched_wherever_it_is_read(self):
        p, q = toyad.Parameter(3.0), toyad.Parameter(5.0)
        assert float(toyad.parameter_grad(lambda: p * p * q, p)) == 30.0
        assert toyad.is_differentiated(p) is False
        assert toyad.parameter_grad(lambda: 1.0 * toyad.is_differentiated(p) * p, p).value == 1.0
        second = toyad.parameter_grad(lambda: toyad.parameter_grad(lambda: p * p * p, p), p)
        assert float(second) == 18.0

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
