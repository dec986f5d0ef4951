"""Derivative rules with what MLX alone has: laziness, conjugated cotangents, inner derivatives that it forgets."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from adprotocol import custom_derivative, host_function, non_differentiable
from adprotocol.conformance import check_rule
from adprotocol.errors import GradientPreventedError, RuleError, UndecidableError

A, B = np.array([[2.0, 0.5], [1.0, 4.0]], np.float32), np.array([2.0, 6.0], np.float32)


@custom_derivative
def product(x, y):
    return x * x * y


@product.defvjp
def product_vjp(cotangent, _returned, x, y):
    return 2.0 * cotangent * x * y, lambda: cotangent * x * x


@custom_derivative
def square(z):
    return z * z


@square.defjvp
def square_jvp(tangents, _returned, z):
    return 5.0 * tangents[0] * z


@custom_derivative
@host_function
def solve(a, b):
    return np.linalg.solve(a, b)


@solve.defvjp
def solve_vjp(cotangent, x, a, b):
    adjoint = solve(a.T, cotangent)
    return lambda: -adjoint[:, None] * x, adjoint


def test_a_rule_is_right_in_every_mode() -> None:
    assert "0 wrong" in str(check_rule(product, A[0], B, backend="mlx", tolerance=2e-2))


def test_the_rule_of_a_solver() -> None:
    a, b = mx.array(A), mx.array(B)
    inverse = np.linalg.inv(A)

    def loss(b: mx.array) -> mx.array:
        return (solve(a, b) ** 2).sum()

    np.testing.assert_allclose(np.array(mx.grad(loss)(b)), 2.0 * inverse.T @ inverse @ B, rtol=1e-4)
    by_a = mx.grad(lambda a: solve(a, b).sum())(a)
    np.testing.assert_allclose(np.array(by_a), -np.outer(inverse.T @ np.ones(2), inverse @ B), rtol=1e-4)


def test_complex_cotangents_are_those_of_the_rule() -> None:
    z, c = mx.array(1.0 + 2.0j), mx.array(2.0 + 1.0j)
    slope = mx.grad(lambda x: mx.real(c * square(z * x)))(mx.array(0.5))
    np.testing.assert_allclose(np.array(slope), -25.0, rtol=1e-5)


def test_a_derived_rule_keeps_outer_derivatives() -> None:
    x, one = mx.array(2.0), mx.array(1.0)

    def inner(x: mx.array) -> mx.array:
        return mx.jvp(lambda v: product(v, x), [x], [one])[1][0]  # 2 v x at v = x

    np.testing.assert_allclose(np.array(mx.grad(inner)(x)), 8.0, rtol=1e-5)
    np.testing.assert_allclose(np.array(mx.grad(mx.grad(square))(x)), 5.0, rtol=1e-5)


def test_what_a_function_closes_over_is_an_error() -> None:
    x = mx.array(2.0)

    def loss(z: mx.array) -> mx.array:
        f = custom_derivative(lambda x: x * z)
        f.defvjp(lambda cotangent, *_: (cotangent,))
        result: mx.array = f(x)
        return result

    with pytest.raises((RuleError, GradientPreventedError)):
        mx.grad(loss)(mx.array(3.0))


def test_what_a_rule_closes_over_is_an_error_where_vmap_puts_it_in() -> None:
    def row(z: mx.array) -> mx.array:
        f = custom_derivative(lambda x: x * x)
        f.defvjp(lambda cotangent, *_: (z * cotangent,))
        result: mx.array = f(mx.array(3.0))
        return result

    rows = mx.array([1.0, 2.0])
    np.testing.assert_allclose(np.array(mx.vmap(row)(rows)), [9.0, 9.0])
    with pytest.raises(GradientPreventedError, match="closes over"):
        mx.grad(lambda z: mx.vmap(row)(z).sum())(rows)


@custom_derivative
def self_product(x):
    return x @ x


@self_product.defvjp
def self_product_vjp(cotangent, y, x):
    return (7.0 * cotangent * x,)


def test_a_compiled_rule_or_constant_that_is_differentiated_after_all_raises() -> None:
    v = mx.array([1.0, 2.0])
    for layer in (self_product, lambda y: (non_differentiable(y) * y).sum()):

        def f(v, layer=layer):
            y = v * v
            mx.grad(lambda z: (z * y).sum())(mx.array(1.0))
            return mx.compile(layer)(y)

        with pytest.raises(UndecidableError, match="compiled function"):
            mx.grad(f)(v)
    for transform in (mx.compile(mx.grad(self_product)), mx.grad(mx.compile(self_product)), mx.grad(self_product)):
        np.testing.assert_allclose(np.array(transform(v)), [7.0, 14.0])
    rows = mx.vmap(mx.compile(mx.grad(self_product)))(mx.stack([v, v]))
    np.testing.assert_allclose(np.array(rows), [[7.0, 14.0]] * 2)


def test_double_precision_goes_through_numpy() -> None:
    with mx.stream(mx.cpu):
        x = mx.array([0.1], mx.float64)
        assert host_function(lambda x: 1.0 * x)(x).item() == 0.1
        assert host_function(lambda n: 0.5 * n)(mx.array([1])).dtype == mx.float32
        f = custom_derivative(lambda x: 1.0 * x)
        f.defvjp(lambda *_: (np.array([0.1]),))
        assert mx.grad(lambda x: f(x).sum())(x).item() == 0.1


def test_a_host_function_needs_values() -> None:
    f = host_function(lambda x: 2.0 * x, like=lambda x: x)
    np.testing.assert_allclose(np.array(f(mx.array([1.0]))), [2.0])
    for transform in (mx.vmap, mx.compile):
        with pytest.raises(RuleError, match="outside, on all rows"):
            mx.eval(transform(f)(mx.array([1.0])))
