"""What the conformance suite cannot see: variables, tapes and functions of TensorFlow itself."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import adprotocol
from adprotocol import cond, non_differentiable, prevent_gradient, within_gradient
from adprotocol.errors import GradientPreventedError, StructureError, UnclaimedTypeError, UndecidableError

ORDERS = ["plain first", "differentiated first"]


def layer(x, asked=None):
    """Return 3 x where it is differentiated, else 5 x."""
    return cond(within_gradient(x if asked is None else asked), lambda x: 3.0 * x, lambda x: 5.0 * x, x)


def grad(f, *, persistent=False):
    """Return value and gradient of a function of one tensor."""

    def differentiated(x):
        x = tf.identity(x)
        with tf.GradientTape(persistent=persistent) as tape:
            tape.watch(x)
            value = f(x)
        return value, tf.convert_to_tensor(tape.gradient(value, x, unconnected_gradients="zero"))

    return differentiated


def of_variable(f, variable, **options):
    """Return value and gradient of a function of nothing."""
    with tf.GradientTape(**options) as tape:
        value = f()
    return value, tape.gradient(value, variable)


def same(found, *wanted):
    """Compare tensors with numbers."""
    found = found if isinstance(found, tuple) else (found,)
    for one, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), want, rtol=1e-5)


def alternate(order, plain, differentiated):
    """Run two checks in either order, and the first again."""
    checks = [plain, differentiated] if order == ORDERS[0] else [differentiated, plain]
    for check in (*checks, checks[0], checks[1]):
        check()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("jit_compile", [False, True])
class TestClosures:
    """A traced function that closes over what is differentiated."""

    def test_variable(self, order, jit_compile):
        w = tf.Variable(2.0)
        f = tf.function(lambda: layer(w), jit_compile=jit_compile)
        alternate(order, lambda: same(f(), 10.0), lambda: same(of_variable(f, w), 6.0, 3.0))

    def test_variable_beside(self, order, jit_compile):
        """A tape that follows another variable alone does not change the answer."""
        w, v = tf.Variable(2.0), tf.Variable(3.0)
        f = tf.function(lambda: layer(w) * v, jit_compile=jit_compile)

        def beside():
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(v)
                value = f()
            same((value, tape.gradient(value, v)), 30.0, 10.0)

        alternate(order, beside, lambda: same(of_variable(f, w), 18.0, 9.0))

    def test_untrainable_variable(self, order, jit_compile):
        w = tf.Variable(2.0, trainable=False)
        f = tf.function(lambda: layer(w), jit_compile=jit_compile)

        def watched():
            with tf.GradientTape() as tape:
                tape.watch(w)
                value = f()
            same((value, tape.gradient(value, w)), 6.0, 3.0)

        def unwatched():
            with tf.GradientTape():
                same(f(), 10.0)

        alternate(order, unwatched, watched)

    def test_tensor(self, order, jit_compile):
        c = tf.constant(2.0)
        f = tf.function(lambda y: layer(c) * y, jit_compile=jit_compile)

        def differentiated():
            with tf.GradientTape() as tape:
                tape.watch(c)
                value = f(tf.constant(7.0))
            same((value, tape.gradient(value, c)), 42.0, 21.0)

        alternate(order, lambda: same(f(tf.constant(7.0)), 70.0), differentiated)

    def test_large_tensor(self, order, jit_compile):
        """Small tensors become constants of the program, large ones do not."""
        c = tf.ones([300])
        f = tf.function(lambda: tf.reduce_sum(layer(c)), jit_compile=jit_compile)

        def differentiated():
            with tf.GradientTape() as tape:
                tape.watch(c)
                value = f()
            same(tape.gradient(value, c), 3.0 * np.ones(300))

        alternate(order, lambda: same(f(), 1500.0), differentiated)

    def test_variable_as_argument(self, order, jit_compile):
        w = tf.Variable(2.0)
        f = tf.function(layer, jit_compile=jit_compile)
        alternate(order, lambda: same(f(w), 10.0), lambda: same(of_variable(lambda: f(w), w), 6.0, 3.0))

    def test_forward_mode(self, order, jit_compile):
        w = tf.Variable(2.0)
        f = tf.function(lambda: layer(w), jit_compile=jit_compile)

        def differentiated():
            with tf.autodiff.ForwardAccumulator(w, tf.constant(1.0)) as accumulator:
                value = f()
            same((value, accumulator.jvp(value)), 6.0, 3.0)

        alternate(order, lambda: same(f(), 10.0), differentiated)

    def test_two_calls_with_different_arguments(self, order, jit_compile):
        """Each call of a traced function inside of another has its own answer."""
        f = tf.function(layer)
        g = tf.function(lambda x, y: f(x) * f(y), jit_compile=jit_compile)
        y = tf.constant(7.0)
        alternate(
            order,
            lambda: same(g(tf.constant(2.0), y), 350.0),
            lambda: same(grad(lambda x: g(x, y))(tf.constant(2.0)), 210.0, 105.0),
        )

    def test_no_retracing(self, order, jit_compile):
        traces = []

        def f(x):
            traces.append(x)
            return layer(x)

        f = tf.function(f, jit_compile=jit_compile)
        alternate(order, lambda: same(f(tf.constant(2.0)), 10.0), lambda: same(grad(f)(tf.constant(2.0)), 6.0, 3.0))
        assert len(traces) == 1


@pytest.mark.parametrize("outer", [False, True])
class TestTapeInside:
    """A tape that is opened in the traced function, where something around it is differentiated too, or not."""

    def run(self, f, x, outer, want, slope):
        if outer:
            same(grad(f)(x), want, slope)
        same(f(x), want)

    def test_step(self, outer):
        w = tf.Variable(2.0)

        @tf.function
        def step(x):
            with tf.GradientTape() as tape:
                value = layer(w) * x
            return tape.gradient(value, w)

        self.run(step, tf.constant(7.0), outer, 21.0, 3.0)

    def test_closed_over_variable_traced_under_its_tape(self, outer):
        """The tape around follows the same variable, and is gone in the second call."""
        w = tf.Variable(2.0)

        @tf.function
        def f():
            value = layer(w)
            with tf.GradientTape() as tape:
                inner = layer(w) * 1.0
            return value, inner, tape.gradient(inner, w)

        if outer:
            with tf.GradientTape():
                same(f(), 6.0, 6.0, 3.0)
        same(f(), 10.0, 6.0, 3.0)

    def test_watched_inside(self, outer):
        c = tf.constant(2.0)

        @tf.function
        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(c)
                value = layer(c) * x
            return tape.gradient(value, c)

        self.run(f, tf.constant(7.0), outer, 21.0, 3.0)

    def test_loop_variable(self, outer):
        @tf.function
        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                (value,) = tf.while_loop(lambda v: v < 100.0, lambda v: (layer(v),), (x,))
            return tape.gradient(value, x)

        same(f(tf.constant(2.0)), 81.0)
        if outer:
            same(grad(f)(tf.constant(2.0)), 81.0, 0.0)

    def test_loop_variable_that_becomes_tracked(self, outer):
        @tf.function
        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                _, value = tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, layer(v) + x), (0, tf.constant(0.0)))
            return tape.gradient(value, x)

        self.run(f, tf.constant(2.0), outer, 4.0, 0.0)

    def test_accumulator(self, outer):
        @tf.function
        def f(x):
            with tf.autodiff.ForwardAccumulator(x, tf.ones_like(x)) as accumulator:
                value = layer(x) * x
            return accumulator.jvp(value)

        same(f(tf.constant(2.0)), 12.0)
        if outer:
            same(grad(f, persistent=True)(tf.constant(2.0)), 12.0, 6.0)

    def test_stopped_in_a_branch(self, outer):
        """A tape that is opened around the function is stopped, and goes on, while a branch is traced."""
        x = tf.constant(2.0)
        with tf.GradientTape() as tape:
            tape.watch(x)

            def stopping(x):
                with tape.stop_recording() if outer else tf.name_scope("none"):
                    return layer(x)

            f = tf.function(lambda x: cond(within_gradient(x), stopping, stopping, x))
            value = f(x) * x
        same((value, tape.gradient(value, x)), 12.0, 12.0)
        same(f(x), 10.0)

    def test_stop_recording(self, outer):
        @tf.function
        def f(x):
            with tf.GradientTape() as tape:
                tape.watch(x)
                with tape.stop_recording():
                    stopped = layer(x)
                value = layer(x)
            return stopped, tape.gradient(value, x)

        same(f(tf.constant(2.0)), 10.0, 3.0)
        if outer:
            x = tf.constant(2.0)
            with tf.GradientTape() as tape:
                tape.watch(x)
                stopped, slope = f(x)
            same((stopped, slope, tape.gradient(stopped, x)), 6.0, 3.0, 3.0)


@pytest.mark.parametrize("order", ORDERS)
class TestLoops:
    """Loops of a traced program, which is differentiated from outside."""

    def check(self, order, f, plain, value, slope):
        x = tf.constant(2.0)
        f = tf.function(f)
        alternate(order, lambda: same(f(x), plain), lambda: same(grad(f)(x), value, slope))

    def test_while(self, order):
        self.check(
            order,
            lambda x: tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, layer(v)), (0, x))[1],
            50.0,
            18.0,
            9.0,
        )

    def test_becomes_tracked(self, order):
        self.check(
            order,
            lambda x: tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, layer(v) + x), (0, tf.constant(0.0)))[1],
            12.0,
            8.0,
            4.0,
        )

    def test_never_tracked(self, order):
        self.check(
            order,
            lambda x: tf.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, layer(v)), (0, tf.constant(1.0)))[1] * x,
            50.0,
            50.0,
            25.0,
        )

    def test_nested(self, order):
        def body(i, v):
            return i + 1, tf.while_loop(lambda j, u: j < 1, lambda j, u: (j + 1, layer(u)), (0, v))[1]

        self.check(order, lambda x: tf.while_loop(lambda i, v: i < 2, body, (0, x))[1], 50.0, 18.0, 9.0)

    def test_scan(self, order):
        self.check(order, lambda x: tf.scan(lambda v, _: layer(v), tf.zeros(2), x)[-1], 50.0, 18.0, 9.0)

    def test_map(self, order):
        self.check(order, lambda x: tf.reduce_sum(tf.map_fn(layer, tf.stack([x, x]))), 20.0, 12.0, 6.0)

    def test_autograph(self, order):
        def f(x):
            for _ in tf.range(2):
                x = layer(x)
            return x

        self.check(order, f, 50.0, 18.0, 9.0)

    def test_if(self, order):
        """AutoGraph makes a branch of an if."""

        def f(x):
            if within_gradient(x):  # noqa: SIM108  (AutoGraph)
                y = 3.0 * x
            else:
                y = 5.0 * x
            return y

        self.check(order, f, 10.0, 6.0, 3.0)

    def test_accumulated(self, order):
        """A tensor array carries derivatives."""

        def f(x):
            array = tf.TensorArray(tf.float32, 2)
            array = tf.while_loop(lambda i, a: i < 2, lambda i, a: (i + 1, a.write(i, x * x)), (0, array))[1]
            return layer(array.stack()[1])

        self.check(order, f, 20.0, 12.0, 12.0)


class TestSymbolicGradients:
    """`tf.gradients`, which differentiates a program that is there."""

    def test_argument(self):
        @tf.function
        def f(x):
            y = layer(x)
            return y, tf.gradients(y, x)[0]

        same(f(tf.constant(2.0)), 6.0, 3.0)

    def test_before_and_beside(self):
        @tf.function
        def f(x, c):
            y = layer(x) * layer(c)
            slope = tf.gradients(y, x)[0]
            return y, slope, layer(x)

        same(f(tf.constant(2.0), tf.constant(7.0)), 210.0, 105.0, 10.0)

    def test_constant_of_the_program(self):
        @tf.function
        def f():
            x = tf.constant(2.0)
            y = layer(x)
            return y, tf.gradients(y, x)[0]

        same(f(), 6.0, 3.0)

    def test_variable(self):
        w = tf.Variable(2.0)

        @tf.function
        def f():
            y = layer(w)
            return y, tf.gradients(y, w)[0]

        same(f(), 6.0, 3.0)

    def test_called_function(self):
        g = tf.function(layer)

        @tf.function
        def f(x):
            y = g(x)
            return y, tf.gradients(y, x)[0]

        same(g(tf.constant(2.0)), 10.0)
        same(f(tf.constant(2.0)), 6.0, 3.0)

    def test_graph_of_tensorflow_1(self):
        with tf.Graph().as_default(), pytest.raises(UndecidableError, match="TensorFlow 1"):
            within_gradient(tf.constant(2.0))


class TestConstants:
    """What is made constant."""

    def test_variable_is_read(self):
        w = tf.Variable(2.0)
        constant = non_differentiable(w)
        assert not isinstance(constant, tf.Variable)
        w.assign(3.0)
        same(constant, 2.0)
        same(of_variable(lambda: non_differentiable(w) * w, w), 9.0, 3.0)
        same(of_variable(tf.function(lambda: non_differentiable(w) * w), w), 9.0, 3.0)

    def test_result_of_a_traced_function(self):
        f = tf.function(lambda x: (non_differentiable(x), x * x))

        def ask(x):
            constant, square = f(x)
            return layer(constant) + layer(square)

        same(grad(ask)(tf.constant(2.0)), 22.0, 12.0)
        same(grad(tf.function(ask))(tf.constant(2.0)), 22.0, 12.0)
        x = tf.constant(2.0)
        with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)):
            assert within_gradient(f(x)[0]) is False

    def test_decorated_function_as_argument(self):
        """`tf.function` looks through __wrapped__."""
        square = non_differentiable(lambda x: x * x)
        f = tf.function(lambda square, x: square(x) * x)
        same(grad(lambda x: f(square, x))(tf.constant(2.0)), 8.0, 4.0)
        same(grad(tf.function(lambda x: square(x) * x))(tf.constant(2.0)), 8.0, 4.0)

    def test_integer_variable(self):
        n = tf.Variable(2)
        constant = non_differentiable(n)
        n.assign(3)
        same(constant, 2)
        with tf.GradientTape():
            assert within_gradient(n) is False

    def test_ragged(self):
        ragged = tf.ragged.constant([[1.0], [2.0, 3.0]])
        with tf.GradientTape() as tape:
            tape.watch(ragged.flat_values)
            assert within_gradient(ragged) is True
            assert within_gradient(non_differentiable(ragged)) is False
            assert within_gradient(tf.cast(ragged, tf.int32)) is False


class TestGuards:
    """`prevent_gradient` in traced functions."""

    @pytest.mark.parametrize("order", ORDERS)
    def test_variable(self, order):
        w = tf.Variable(2.0)
        f = tf.function(lambda: prevent_gradient(w, "fixed") * 1.0)

        def differentiated():
            with pytest.raises(GradientPreventedError, match="fixed"):
                of_variable(f, w)

        alternate(order, lambda: same(f(), 2.0), differentiated)

    def test_other_argument(self):
        f = tf.function(lambda x, y: prevent_gradient(x, "fixed") * y)
        same(grad(lambda y: f(tf.constant(3.0), y))(tf.constant(2.0)), 6.0, 3.0)

    def test_nested_functions(self):
        f = tf.function(lambda x: prevent_gradient(x, "fixed") * 2.0)
        g = tf.function(lambda x: 1.0 * f(x))
        same(g(tf.constant(2.0)), 4.0)
        with pytest.raises(GradientPreventedError):
            grad(g)(tf.constant(2.0))
        same(g(tf.constant(2.0)), 4.0)

    def test_branch_not_taken(self):
        g = tf.function(lambda x: cond(within_gradient(x), lambda x: 3.0 * x, lambda x: prevent_gradient(x, "no"), x))
        h = tf.function(lambda x: 1.0 * g(x))
        for f in (g, h):
            same(grad(f)(tf.constant(2.0)), 6.0, 3.0)
            same(f(tf.constant(2.0)), 2.0)

    def test_vectorized(self):
        f = tf.function(lambda x: tf.reduce_sum(tf.vectorized_map(lambda a: prevent_gradient(a, "no") * 2.0, x)))
        same(f(tf.constant([1.0, 2.0])), 6.0)
        with pytest.raises(GradientPreventedError):
            grad(f)(tf.constant([1.0, 2.0]))


class TestRules:
    """Functions with derivative rules of their own."""

    @pytest.mark.parametrize("jit", [False, True])
    def test_custom_gradient(self, jit):
        @tf.custom_gradient
        def f(x):
            return layer(x), lambda upstream: 7.0 * upstream

        f = tf.function(f) if jit else f
        same(grad(f)(tf.constant(2.0)), 10.0, 7.0)
        same(f(tf.constant(2.0)), 10.0)

    @pytest.mark.parametrize("jit", [False, True])
    def test_gradient_inside_of_a_rule(self, jit):
        @tf.custom_gradient
        def f(x):
            return grad(layer)(x)[1], lambda upstream: 7.0 * upstream

        f = tf.function(f) if jit else f
        same(grad(f)(tf.constant(2.0)), 3.0, 7.0)
        same(f(tf.constant(2.0)), 3.0)

    @pytest.mark.parametrize("jit", [False, True])
    def test_recompute(self, jit):
        """Both runs of a recomputed function answer alike."""
        w = tf.Variable(2.0)
        f = tf.recompute_grad(lambda x: layer(w) * layer(x))
        f = tf.function(f) if jit else f
        with tf.GradientTape() as tape:
            tape.watch(x := tf.constant(7.0))
            value = f(x)
        same((value, *tape.gradient(value, [w, x])), 126.0, 63.0, 18.0)
        same(f(tf.constant(7.0)), 350.0)

    def test_recompute_of_traced(self):
        f = tf.recompute_grad(tf.function(lambda x: layer(x * x)))
        same(grad(f)(tf.constant(2.0)), 12.0, 12.0)
        same(f(tf.constant(2.0)), 20.0)

    def test_recompute_of_what_is_not_known(self):
        f = tf.recompute_grad(lambda x: layer(x * x))
        same(f(tf.constant(2.0)), 20.0)
        with pytest.raises(UndecidableError, match="recompute_grad"):
            grad(f)(tf.constant(2.0))

    def test_second_argument_of_recompute(self):
        """The second run follows all arguments, so the first says so too."""
        for wrap in (lambda f: f, tf.function):
            f = wrap(tf.recompute_grad(lambda x, y: layer(x) * layer(y)))
            same(grad(lambda x, f=f: f(x, tf.constant(7.0)))(tf.constant(2.0)), 126.0, 63.0)

    def test_python_in_a_program(self):
        """`tf.py_function` follows its arguments always, once somebody has differentiated the program."""
        python = layer

        @tf.function
        def f(x):
            return tf.py_function(python, [x], tf.float32)

        same(f(tf.constant(2.0)), 10.0)
        for differentiates in (True, False):
            with pytest.raises(Exception, match="py_function"):
                grad(f)(tf.constant(2.0)) if differentiates else f(tf.constant(2.0))


class TestHigherOrder:
    """Derivatives of derivatives."""

    @pytest.mark.parametrize("order", ORDERS)
    def test_twice(self, order):
        f = tf.function(lambda x: layer(x) * x * x)
        x = tf.constant(2.0)

        def second():
            same(grad(lambda x: grad(f)(x)[1])(x), 36.0, 36.0)

        alternate(order, lambda: same(f(x), 40.0), second)

    def test_jacobian(self):
        f = tf.function(lambda x: layer(x) * x)
        x = tf.constant([1.0, 2.0])
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = f(x)
        same(tape.jacobian(y, x), [[6.0, 0.0], [0.0, 12.0]])

    def test_nan_in_closure(self):
        """The branch not taken reads a variable where its derivative is infinite."""
        w = tf.Variable(0.0)
        f = tf.function(lambda: cond(w > 0.0, lambda: tf.sqrt(w), lambda: 2.0 * w))
        same(of_variable(f, w), 0.0, 2.0)
        c = tf.constant([0.0, 4.0])
        mapped = tf.function(
            lambda c: tf.reduce_sum(tf.vectorized_map(lambda a: cond(a > 0.0, lambda: tf.sqrt(a), lambda: 2.0 * a), c))
        )
        same(grad(mapped)(c)[1], [2.0, 0.25])


class TestValueAndGrad:
    """`adprotocol.grad` over variables."""

    def test_flags(self):
        model = {"a": tf.Variable(2.0), "b": tf.Variable(3.0, trainable=False), "n": tf.Variable(4)}
        value, slope = adprotocol.value_and_grad(lambda m: m["a"] * m["b"])(model)
        same((value, slope["a"]), 6.0, 3.0)
        assert slope["b"] is None
        assert slope["n"] is None
        assert adprotocol.grad(lambda m: m["a"] * m["b"], where="b")(model)["a"] is None

    def test_frozen_variable_answers_false(self):
        model = {"a": tf.Variable(2.0), "b": tf.Variable(3.0)}
        value, slope = adprotocol.value_and_grad(lambda m: layer(m["a"]) * layer(m["b"]), where="a")(model)
        same((value, slope["a"]), 90.0, 45.0)

    def test_one_leaf_at_two_places(self):
        w = tf.Variable(2.0)
        slope = adprotocol.grad(lambda m: m["a"] * m["b"])({"a": w, "b": w})
        same(slope["a"], 4.0)

    def test_sparse_gradient(self):
        w = tf.Variable([1.0, 2.0, 3.0])
        slope = adprotocol.grad(lambda w: tf.reduce_sum(tf.gather(w, [0, 0])))(w)
        same(slope, [2.0, 0.0, 0.0])

    def test_unused_variable(self):
        model = {"a": tf.Variable(2.0), "b": tf.Variable([3.0, 4.0])}
        slope = adprotocol.grad(lambda m: m["a"] * 1.0)(model)
        same((slope["a"], slope["b"]), 1.0, [0.0, 0.0])

    @pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32, tf.float64])
    def test_dtypes(self, dtype):
        x = tf.constant(2.0, dtype)
        value, slope = adprotocol.value_and_grad(lambda m: layer(m["x"]) * 1.0)({"x": x})
        same((tf.cast(value, tf.float32), tf.cast(slope["x"], tf.float32)), 6.0, 3.0)
        assert slope["x"].dtype == dtype

    def test_inside_of_a_traced_function(self):
        w = tf.Variable(2.0)
        f = tf.function(lambda: adprotocol.grad(lambda w: layer(w) * w)(w))
        same(f(), 12.0)
        same(of_variable(f, w), 12.0, 6.0)


class TestModules:
    """`tf.Module`, whose variables are its leaves."""

    def model(self):
        model = tf.Module()
        model.encoder = tf.Variable(3.0, trainable=False)
        model.layers = [{"w": tf.Variable(2.0)}, tf.Variable(1)]
        return model

    def test_query(self):
        model = self.model()
        assert within_gradient(model) is False
        with tf.GradientTape():
            assert within_gradient(model) is True
            assert within_gradient(model.encoder) is False

    @pytest.mark.parametrize("wrap", [lambda f: f, tf.function])
    def test_gradient(self, wrap):
        model = self.model()
        f = wrap(lambda model: layer(model.layers[0]["w"]) * layer(model.encoder))
        value, slope = adprotocol.value_and_grad(f)(model)
        same((value, slope["layers.0.w"]), 90.0, 45.0)
        assert slope["encoder"] is None
        same(adprotocol.grad(f, where="encoder")(model)["encoder"], 30.0)

    def test_what_a_class_leaves_out_in_a_list(self):
        class Model(tf.Module):
            __trainable__ = ("head",)

        model = Model()
        model.head, model.layers = tf.Variable(2.0), [{"w": tf.Variable(3.0)}]
        slope = adprotocol.grad(lambda m: m.head * m.layers[0]["w"])(model)
        same(slope["head"], 3.0)
        assert slope["layers.0.w"] is None

    def test_a_variable_under_two_names(self):
        model = tf.Module()
        model.a = model.b = tf.Variable(3.0)
        slope = adprotocol.grad(lambda m: m.a * m.b)(model)
        assert list(slope) == ["a"]
        same(slope["a"], 6.0)


class TestThreads:
    """Tapes belong to threads."""

    def test_other_thread(self):
        w = tf.Variable(2.0)
        f = tf.function(lambda: layer(w))
        found = []
        with tf.GradientTape():
            thread = threading.Thread(target=lambda: found.append(float(f())))
            thread.start()
            thread.join()
        assert found == [10.0]

    def test_many(self):
        f = tf.function(layer)
        failures = []

        def work(differentiates):
            for _ in range(30):
                found = float(grad(f)(tf.constant(2.0))[0]) if differentiates else float(f(tf.constant(2.0)))
                if found != (6.0 if differentiates else 10.0):
                    failures.append(found)

        threads = [threading.Thread(target=work, args=(i % 2 == 0,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures


class TestElsewhere:
    """Programs that are run without the call."""

    def test_data(self):
        data = tf.data.Dataset.from_tensor_slices([1.0, 2.0]).map(layer)
        with tf.GradientTape():
            same(tf.stack(list(data)), [5.0, 10.0])

    def test_saved(self, tmp_path):
        module = tf.Module()
        module.w = tf.Variable(2.0)
        module.f = tf.function(lambda x: layer(module.w) * layer(x), input_signature=[tf.TensorSpec((), tf.float32)])
        same(grad(module.f)(tf.constant(7.0)), 126.0, 18.0)
        tf.saved_model.save(module, str(tmp_path))
        loaded = tf.saved_model.load(str(tmp_path))
        same(loaded.f(tf.constant(7.0)), 350.0)

    def test_keras_variable(self):
        keras = pytest.importorskip("keras")
        if keras.backend.backend() != "tensorflow":
            pytest.skip("Keras runs on another backend here")
        w = keras.Variable(2.0)
        with pytest.raises(UnclaimedTypeError, match="Variable, an array whose type no plugin claims"):
            within_gradient(w)
        f = tf.function(lambda: layer(w.value))
        for _ in range(2):
            same(f(), 10.0)
            same(of_variable(f, w.value), 6.0, 3.0)


@pytest.mark.parametrize(
    "made",
    [
        lambda x: tf.SparseTensor([[0], [2]], x, [4]),
        lambda x: tf.RaggedTensor.from_row_lengths(x, [0, 2]),
        lambda x: tf.IndexedSlices(x, tf.constant([0, 2])),
    ],
    ids=["sparse", "ragged", "slices"],
)
@pytest.mark.parametrize("traced", [False, True])
def test_tensors_made_of_tensors(made, traced):
    """Where one holds integers beside its values, these decide."""

    def f(x):
        return layer(x, asked=made(x)) * layer(x, asked=made(tf.constant([1.0, 2.0])))

    f, x = tf.function(f) if traced else f, tf.constant([1.0, 2.0])
    same(f(x)[1], 100.0)
    same(grad(lambda x: f(x)[1])(x)[0], 60.0)


def test_guard_of_what_is_differentiated_inside_in_a_branch_not_taken():
    """What a tape in the function follows in each of its calls is guarded in the branch that is taken alone."""

    def inner(a, x):
        return cond(within_gradient(a), lambda x: prevent_gradient(x, "not this") * 2.0, lambda x: x * 3.0, x)

    f = tf.function(lambda a, x: grad(lambda x: inner(a, x))(x)[1] * a)
    a, x = tf.constant(2.0), tf.constant(1.0)
    same(f(a, x), 6.0)
    with pytest.raises(GradientPreventedError, match="not this"):
        grad(lambda a: f(a, x))(a)


def test_guard_in_the_branch_not_taken_of_rows():
    """In tf.vectorized_map a branch is traced by itself, and its guards stand where the question has the answer."""

    def row(x):
        return cond(within_gradient(x), lambda x: 3.0 * x, lambda x: 5.0 * prevent_gradient(x, "no"), x)

    f, x = tf.function(lambda x: tf.reduce_sum(tf.vectorized_map(row, x))), tf.constant([1.0, 2.0])
    for _ in range(2):
        same(f(x), 15.0)
        same(grad(f)(x), 9.0, [3.0, 3.0])


def test_fields_that_hold_one_tensor():
    """A dataclass with the methods of tf.nest has two fields also where they hold the same."""

    @dataclasses.dataclass
    class Pair:
        first: Any
        second: Any

        def __tf_flatten__(self):
            return None, (self.first, self.second)

        @classmethod
        def __tf_unflatten__(cls, _, children):
            return cls(*children)

    x = tf.constant(3.0)
    found = adprotocol.grad(lambda p: p.first * p.second**2, where="second")(Pair(x, x))
    assert found.first is None
    same(found.second, 18.0)


def test_subclass_that_is_not_registered():
    """It has the methods of its base, which would make an instance of that."""

    @dataclasses.dataclass
    class Base:
        first: Any

    @dataclasses.dataclass
    class Sub(Base):
        second: Any

    adprotocol.register_structure(Base)
    with pytest.raises(StructureError, match="Sub is not registered"):
        tf.nest.map_structure(lambda x: x, Sub(tf.constant(1.0), tf.constant(2.0)))


def test_recompute_grad_of_complex_numbers():
    """The answer for a complex argument is that for a real one."""
    z = tf.constant(1.0 + 2.0j)
    value, gradient = grad(lambda z: tf.math.real(tf.recompute_grad(layer)(z)))(z)
    same((value, gradient), 3.0, 3.0)


LOADED_IN_A_TRACE = """
import subprocess
import sys
import threading
import tensorflow as tf
import adprotocol

variable, x = tf.Variable(2.0), tf.constant(2.0)

def layer(x):
    return adprotocol.cond(adprotocol.within_gradient(x), lambda x: 3.0 * x, lambda x: 5.0 * x, x)

{program}
"""


@pytest.mark.parametrize(
    "program",
    [
        """
with tf.GradientTape() as tape:
    value = layer(variable)
print(float(value), float(tape.gradient(value, variable)), float(layer(variable)))
""",
        """
f = tf.function(lambda: layer(variable))
with tf.GradientTape() as tape:
    value = f()
print(float(value), float(tape.gradient(value, variable)), float(f()))
""",
        """
@tf.function
def f(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = layer(x)
    return value, tape.gradient(value, x)
with tf.GradientTape() as outer:
    outer.watch(x)
    f(x)
print(*map(float, f(x)), float(layer(variable)))
""",
        """
@tf.function
def f(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.while_loop(lambda i, _: i < 1, lambda i, y: (i + 1, layer(y)), (0, x))[1]
    return value, tape.gradient(value, x)
print(*map(float, f(x)), float(layer(variable)))
""",
        """
@tf.function
def f(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = tf.function(layer)(x)
    return value, tape.gradient(value, x)
print(*map(float, f(x)), float(layer(variable)))
""",
        """
def elsewhere():
    with tf.GradientTape():
        ready.set()
        done.wait()
ready, done = threading.Event(), threading.Event()
thread = threading.Thread(target=elsewhere)
thread.start()
ready.wait()
plain = float(layer(variable))
with tf.GradientTape() as tape:
    value = tf.function(layer)(variable)
done.set()
thread.join()
print(float(value), float(tape.gradient(value, variable)), plain)
""",
    ],
    ids=["eager", "trace", "tape inside", "tape around a loop", "tape around a call", "other thread"],
)
def test_loaded_by_the_first_question(program):
    """Tapes that were opened before the plugin was loaded count as well."""
    run = first_question(program)
    assert run.stdout.split() == ["6.0", "3.0", "10.0"], run.stderr[-2000:]


def first_question(program):
    """Run a program in a process of its own."""
    code = LOADED_IN_A_TRACE.format(program=program)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300)


def test_loaded_under_a_hidden_tape():
    """Inside or outside of the trace? That cannot be told."""
    program = """
tapes = []
def opened():
    tapes.append(tf.GradientTape())
    return tapes[0]
with opened():
    tf.function(lambda: layer(variable))()
"""
    assert "import adprotocol_tensorflow first" in first_question(program).stderr


VECTORS = [tf.TensorSpec([None], tf.float32)] * 2


def test_vectors_of_a_size_that_is_not_traced():
    """What the trace knows is compared at once, and the rest when the program runs."""
    v, ct = tf.constant([1.0, 2.0, 3.0]), tf.constant([1.0, 10.0, 100.0])
    choose = lambda v: adprotocol.where(v > 1.5, lambda v: 1.0 / (v - 1.0), lambda v: 2.0 * v, v)
    slopes = tf.function(
        lambda v, ct: adprotocol.grad(lambda v: tf.reduce_sum(choose(v)))(v), input_signature=VECTORS, autograph=False
    )
    assert slopes(v, ct).numpy().tolist() == [2.0, -1.0, -0.25]
    assert slopes(v[:2], ct).numpy().tolist() == [2.0, -1.0]
    pull = tf.function(
        lambda v, ct: adprotocol.vjp(lambda v: v**3, v)[1](ct)[0], input_signature=VECTORS, autograph=False
    )
    assert pull(v, ct).numpy().tolist() == [3.0, 120.0, 2700.0]
    with pytest.raises(tf.errors.InvalidArgumentError):
        pull(v, ct[:2])
    with pytest.raises(UndecidableError, match="one row for each element"):
        tf.function(lambda v, ct: adprotocol.jacobian(lambda v: v * v)(v), input_signature=VECTORS, autograph=False)(
            v, ct
        )


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "compiled"])
def test_a_derivative_is_no_zero_where_recording_has_stopped(wrap):
    def slope(x):
        return adprotocol.grad(lambda x: x * x)(x)

    with pytest.raises(UndecidableError, match="stopped all recording"):
        tf.recompute_grad(wrap(slope))(tf.constant(3.0))
