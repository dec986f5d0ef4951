"""toyad's derivative rules and host functions, which a plugin's two hooks are written with."""

import numpy as np
import pytest
import toyad
import toyad_adprotocol
from ad_backends import close

from adprotocol import custom_derivative, host_function
from adprotocol.conformance import check_rule
from adprotocol.errors import RuleError
from adprotocol.plugins import register, unregister

X, Y = np.array([0.3, -0.7]), np.array([1.5, 0.5])


@pytest.fixture(autouse=True)
def plugin():
    record = register(toyad_adprotocol, "toyad")
    yield
    unregister(record.name)


def vjp(ct, returned, x, y):
    return 2.0 * ct * x * y, lambda: ct * x * x


def jvp(tangents, returned, x, y):
    return 2.0 * tangents[0] * x * y + tangents[1] * x * x


def product(x, y):
    return x * x * y


@pytest.mark.parametrize("rules", [(vjp, None), (None, jvp), (vjp, jvp)], ids=["vjp alone", "jvp alone", "both"])
@pytest.mark.parametrize(
    "fun",
    [product, host_function(product, like=lambda x, y: x), host_function(product, like=lambda x, y: x, batched=True)],
    ids=["toyad", "host", "host, batched"],
)
def test_rules_serve_every_transformation(fun, rules):
    f = custom_derivative(fun)
    if rules[0]:
        f.defvjp(rules[0])
    if rules[1]:
        f.defjvp(rules[1])
    assert "0 wrong" in str(check_rule(f, X, Y, backend="toyad"))


def test_residuals_that_may_hold_tracers_are_refused_where_toyad_traces():
    f = custom_derivative(has_residuals=True)(lambda x: (x * x, np.random.default_rng()))
    f.defvjp(lambda ct, returned, x: (2.0 * ct * x,))
    assert close(toyad.grad(f)(2.0).numpy(), 4.0)
    with pytest.raises(RuleError, match="Generator"):
        toyad.grad(toyad.jit(f))(2.0)


def test_what_a_staged_function_closes_over_is_an_error():
    def loss(x, y):
        f = custom_derivative(lambda x: x * y)
        f.defvjp(lambda ct, returned, x: (ct,))
        return f(x)

    with pytest.raises(RuleError, match="closes over"):
        toyad.jit(loss)(2.0, 3.0)
