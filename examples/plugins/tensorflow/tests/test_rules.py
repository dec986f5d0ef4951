"""Derivative rules with what TensorFlow alone has: variables, persistent tapes, graphs, promotion of nothing."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from adprotocol import custom_derivative, host_function
from adprotocol.conformance import check_rule
from adprotocol.errors import GradientPreventedError, RuleError

A, B = np.array([[2.0, 0.5], [1.0, 4.0]], np.float32), np.array([2.0, 6.0], np.float32)


@custom_derivative
@host_function(like=lambda a, b: b)
def solve(a, b):
    return np.linalg.solve(a, b)


@solve.defvjp
def solve_vjp(cotangent, x, a, b):
    adjoint = solve(tf.transpose(a), cotangent)
    return lambda: -adjoint[:, None] * x, adjoint


@custom_derivative
def square(z):
    return z * z


@square.defvjp
def square_vjp(cotangent, _returned, z):
    return (5.0 * cotangent * z,)


def test_a_solver_is_right_in_every_mode_but_the_declared_ones():
    # tf.vectorized_map and XLA cannot call NumPy, which check_rule finds out.
    with pytest.raises(AssertionError) as found:
        check_rule(solve, A, B, backend="tensorflow", tolerance=1e-2)
    wrong = [
        line
        for line in str(found.value).splitlines()[1:]
        if not any(word in line for word in ("vmap", "compile", "checkpoint"))
    ]
    assert wrong == []


def test_variables_are_arguments():
    a, b = tf.Variable(A), tf.Variable(B)
    with tf.GradientTape(persistent=True) as tape:
        loss = tf.reduce_sum(solve(a, b))
    adjoint = np.linalg.solve(A.T, np.ones(2))
    np.testing.assert_allclose(tape.gradient(loss, b), adjoint, rtol=1e-5)
    np.testing.assert_allclose(tape.gradient(loss, a), -np.outer(adjoint, np.linalg.solve(A, B)), rtol=1e-5)


@pytest.mark.parametrize("wrap", [lambda f: f, tf.function], ids=["eager", "traced"])
def test_complex_cotangents_are_those_of_the_rule(wrap):
    z, c = tf.constant(1.0 + 2.0j, tf.complex64), tf.constant(2.0 + 1.0j, tf.complex64)
    x = tf.constant(0.5)

    @wrap
    def slope(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.math.real(c * square(z * tf.cast(x, tf.complex64)))
        return tape.gradient(loss, x)

    np.testing.assert_allclose(slope(x), -25.0, rtol=1e-5)


def test_a_rule_is_lost_in_no_vectorized_map():
    def gradient(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = square(x)
        return tape.gradient(y, x)

    rows = tf.constant([1.0, 2.0])
    np.testing.assert_allclose(tf.vectorized_map(square, rows), [1.0, 4.0])
    with pytest.raises(GradientPreventedError, match="vectorized_map loses the derivative rule of square"):
        tf.vectorized_map(gradient, rows)


def test_what_a_traced_function_closes_over_is_an_error():
    x = tf.constant(2.0)

    @tf.function
    def closing(z):
        f = custom_derivative(lambda x: x * z)
        f.defvjp(lambda cotangent, *_: (cotangent,))
        return f(x)

    np.testing.assert_allclose(closing(tf.constant(3.0)), 6.0)
    z = tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch(z)
        with pytest.raises(GradientPreventedError, match="closes over"):
            closing(z)


def test_a_program_needs_to_know_the_shapes():
    f = host_function(lambda x: 2.0 * x)
    np.testing.assert_allclose(f(tf.constant([1.0])), [2.0])
    with pytest.raises(RuleError, match="like="):
        tf.function(f)(tf.constant([1.0]))
