"""The hooks on HIPS autograd."""

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd import (
    checkpoint,
    elementwise_grad,
    grad,
    hessian,
    holomorphic_grad,
    jacobian,
    make_jvp,
    make_vjp,
    value_and_grad,
)
from autograd.extend import notrace_primitive, primitive

from adprotocol import cond, explain, non_differentiable, within_gradient
from adprotocol import grad as ours
from adprotocol.errors import PredicateError, PredicateShapeError, UndecidableError

A = np.array([1.0, 2.0])


def asked(x, answer=True):
    assert within_gradient(x) is answer
    return x


def test_every_operator_is_seen(layer):
    assert layer(2.0) == 10.0
    assert grad(layer)(2.0) == 3.0
    assert value_and_grad(layer)(2.0) == (6.0, 3.0)
    vjp, value = make_vjp(layer)(2.0)
    assert (value, vjp(1.0)) == (6.0, 3.0)
    assert make_jvp(layer)(2.0)(1.0) == (6.0, 3.0)
    assert np.array_equal(elementwise_grad(layer)(A), [3.0, 3.0])
    assert np.array_equal(jacobian(layer)(A), 3.0 * np.eye(2))
    assert np.array_equal(hessian(lambda x: anp.sum(layer(x) ** 2))(A), 18.0 * np.eye(2))
    assert holomorphic_grad(lambda z: layer(z) ** 2)(1.0 + 2.0j) == 18.0 * (1.0 + 2.0j)
    assert grad(grad(lambda x: layer(x) ** 3))(2.0) == 27.0 * 12.0
    assert make_jvp(grad(lambda x: layer(x) ** 3))(2.0)(1.0)[1] == 27.0 * 12.0
    assert layer(2.0) == 10.0


@pytest.mark.parametrize("argument", [(1.0, 2.0), [1.0, 2.0], {0: 1.0, 1: 2.0}], ids=["tuple", "list", "dict"])
def test_containers_that_autograd_boxes_itself(argument):
    def f(p):
        asked(p)
        asked([p])
        constant = non_differentiable(p)
        asked(constant, answer=False)
        return p[0] * p[1] * constant[0] * cond(within_gradient(p), lambda p: p[1], lambda p: 0.0, p)

    result = grad(f)(argument)
    assert [float(result[0]), float(result[1])] == [4.0, 4.0]
    assert type(result) is type(argument)


def test_a_list_that_holds_boxes_of_an_outer_level():
    def outer(x):
        def inner(p):
            asked(p)
            asked(non_differentiable(p), answer=False)
            return p[0] ** 2 * non_differentiable(p)[1]

        return grad(inner)([x, x])[0]

    assert outer(3.0) == 18.0
    assert grad(outer)(3.0) == 6.0


def test_object_array_that_is_differentiated_itself():
    x = np.array([1.0, 2.0], dtype=object)
    assert list(grad(lambda x: anp.sum(x * x))(x)) == [2.0, 4.0]
    grad(lambda x: anp.sum(asked(x) * x))(x)


def test_notrace_functions_and_primitives_see_plain_values():
    seen = []

    @notrace_primitive
    def note(x):
        seen.append(within_gradient(x))
        return x

    @primitive
    def custom(x):
        seen.append(within_gradient(x))
        return x * 2.0

    autograd.extend.defvjp(custom, lambda ans, x: lambda g: g * (2.0 if within_gradient(x) else 4.0))
    f = lambda x: x * note(x) + custom(x)
    assert grad(f)(3.0) == 3.0 + 4.0
    assert seen == [False, False]


def test_checkpoint_is_the_declared_divergence(layer):
    # Its first pass runs on plain numbers, which carry no mark, the second on boxes, where a question is refused.
    # Asked outside, the answer holds for both.
    seen = []
    f = checkpoint(lambda x: seen.append(within_gradient(x)) or x * x)
    for take in (grad(f), grad(lambda y: f(2.0 * y)), ours(f)):
        with pytest.raises(UndecidableError, match=r"autograd\.checkpoint.*Ask outside and close over the answer"):
            take(2.0)
    assert set(seen) == {False}
    assert f(2.0) == 4.0

    # What an outer trace tracks is tracked in both runs, and what a gradient inside tracks in neither's stead.
    seen.clear()
    assert grad(lambda k: grad(checkpoint(lambda x: seen.append(within_gradient(k)) or k * x))(2.0))(3.0) == 1.0
    assert set(seen) == {True}
    inside = checkpoint(lambda x: x * grad(lambda y: 3.0 * y if within_gradient(y) else 5.0 * y)(1.0))
    assert grad(inside)(2.0) == 3.0

    def outside(x):
        train = within_gradient(x)
        return checkpoint(lambda x: cond(train, lambda x: x * 3.0, lambda x: x * 5.0, x))(x)

    assert value_and_grad(outside)(2.0) == (6.0, 3.0)


def test_bad_predicates():
    def f(x):
        for pred in (x, anp.sum(x), x[0]):
            with pytest.raises(PredicateError, match="Box"):
                cond(pred, abs, abs, x)
        with pytest.raises(PredicateShapeError):
            cond(x > 0, abs, abs, x)
        return anp.sum(x)

    grad(f)(A)


def test_explain_counts_the_traces():
    texts = []
    grad(grad(lambda x: texts.append(explain(x)) or x**2))(2.0)
    assert texts == ["ArrayBox [plugin autograd]: True (boxed by 2 trace(s) of autograd)"]
    grad(lambda x: texts.append(explain(x)) or anp.sum(x * 1.0))(np.array([1, 2]))
    assert "False" in texts[1]
