"""Derivative rules with autograd: containers, Jacobians, and what a function reaches beside its arguments."""

import autograd
import autograd.numpy as np
import pytest
from closeness import close

from adprotocol import custom_derivative


@custom_derivative
def product(values, factor):
    """The product of two entries, which has a wrong derivative by the factor."""
    return {"y": values["a"] * values["b"][0] * factor}


@product.defvjp
def _(cotangent, returned, values, factor):
    y = cotangent["y"]
    return {"a": y * values["b"][0] * factor, "b": [lambda: y * values["a"] * factor, None]}, 10.0 * y


def test_boxed_containers_arrive_as_containers():
    seen = []
    f = custom_derivative(lambda pair: seen.append(type(pair)) or pair[0] * pair[1])
    f.defvjp(lambda ct, returned, pair: (seen.append(type(pair)) or [ct * pair[1], ct * pair[0]],))
    found = autograd.grad(f)([2.0, 3.0])
    assert found == [3.0, 2.0]
    assert seen == [list, list]
    values = {"a": np.array([1.0, 2.0]), "b": [np.array([3.0, 4.0]), 7.0]}
    found = autograd.grad(lambda values: np.sum(product(values, 2.0)["y"]))(values)
    assert close(found["a"], [6.0, 8.0])
    assert close(found["b"][0], [2.0, 4.0])
    assert close(found["b"][1], 0.0)


def test_a_gradient_has_the_dtype_of_its_argument():
    f = custom_derivative(lambda x: 2.0 * x)
    given = []
    f.defvjp(lambda ct, returned, x: tuple(given))
    for gradient in (3, True, 3.0, np.int64(3), np.float32(3.0)):
        given[:] = [gradient]
        for x in (1.0, np.float64(1.0), np.float32(1.0), np.array(1.0), 1.0 + 0.0j):
            found = autograd.grad(lambda x: np.real(f(x)))(x)
            assert found == gradient
            assert np.asarray(found).dtype == np.asarray(x).dtype


@pytest.mark.parametrize("kind", ["vjp", "jvp"])
def test_a_rule_cannot_change_what_it_is_given(kind):
    def changed(value):
        value *= 3.0
        return value

    f, g = custom_derivative(lambda x: 3.0 * x), custom_derivative(lambda x: 3.0 * x)
    if kind == "vjp":
        f.defvjp(lambda ct, _y, _x: (changed(ct),))
        g.defvjp(lambda ct, _y, x: (ct, changed(x))[:1])
    else:
        f.defjvp(lambda tangents, _y, _x: changed(tangents[0]))
        g.defjvp(lambda tangents, _y, x: (tangents[0], changed(x))[0])
    for fun in (f, g):
        total = lambda x, fun=fun: np.sum(fun(x) + x)
        derivative = autograd.grad(total) if kind == "vjp" else lambda x, fun=total: autograd.make_jvp(fun)(x)(x)
        with pytest.raises(ValueError, match="read-only"):
            derivative(np.ones(2))
