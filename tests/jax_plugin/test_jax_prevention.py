"""`prevent_gradient` under JAX: what is traced raises when a derivative is taken of it later, and costs nothing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from adprotocol import prevent_gradient
from adprotocol.errors import GradientPreventedError, UndecidableError

MESSAGE = "no derivative of the table"
prevented = partial(pytest.raises, GradientPreventedError, match=MESSAGE)


def guard(value):
    return prevent_gradient(value, MESSAGE)


def layer(x):
    return 2.0 * guard(x)


def rule(x):
    """Run the layer in a derivative rule, so that the rule is differentiated in the second derivative."""
    f = jax.custom_jvp(lambda x: x * x)
    f.defjvp(lambda primals, tangents: (primals[0] ** 2, layer(primals[0]) * tangents[0]))
    return f(x)


def sharded(x):
    mesh = Mesh(np.array(jax.devices()[:1]), ("i",))
    spec = PartitionSpec()
    return jax.shard_map(layer, mesh=mesh, in_specs=spec, out_specs=spec)(x)


# Each transformation, and each pair of them, is a scenario of the suite.
BODIES = {
    "jit of checkpoint": jax.jit(jax.checkpoint(layer)),
    "scan carry": lambda x: lax.scan(lambda carry, _: (layer(carry), None), x, None, length=1)[0],
    "fori_loop": lambda x: lax.fori_loop(0, 1, lambda _, carry: layer(carry), x),
    "cond": lambda x: lax.cond(x > 0.0, layer, lambda x: x, x),
    "switch": lambda x: lax.switch(0, [layer, lambda x: x], x),
    "shard_map": sharded,
    "jit of shard_map": jax.jit(sharded),
    "the result is dropped": jax.jit(lambda x: (guard(x), 2.0 * x)[1]),
    "custom_vjp's forward rule": lambda x: _vjp_rule(1.0 * x),
}

_vjp_rule = jax.custom_vjp(lambda x: 2.0 * x)
_vjp_rule.defvjp(lambda x: (layer(x), None), lambda _, g: (2.0 * g,))

DERIVATIVES = {
    "grad": jax.grad,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (x,))[1],
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](1.0),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, x]))[0],
}
BY_A_RULE = ("custom_vjp's forward rule",)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_it_runs_while_nobody_differentiates(body):
    for run in (body, jax.jit(body), lambda x: jax.vmap(body)(jnp.stack([x, x]))[0]):
        assert float(run(jnp.float32(3.0))) == pytest.approx(6.0)
    assert jax.eval_shape(body, jnp.float32(3.0)).shape == ()


@pytest.mark.parametrize("derivative", DERIVATIVES.values(), ids=DERIVATIVES)
@pytest.mark.parametrize("body", [f for name, f in BODIES.items() if name not in BY_A_RULE], ids=lambda _: "")
def test_every_derivative_raises(body, derivative):
    if body is BODIES["fori_loop"] and derivative is not DERIVATIVES["grad"]:
        body = jax.jit(body)
    with prevented():
        derivative(body)(jnp.float32(3.0))
    assert float(body(jnp.float32(3.0))) == pytest.approx(6.0)


def test_a_rule_of_ones_own_decides():
    assert float(jax.grad(_vjp_rule)(3.0)) == 2.0
    assert float(jax.grad(jax.jit(_vjp_rule))(3.0)) == 2.0
    assert float(jax.grad(rule)(3.0)) == 6.0
    for second in (jax.grad(jax.grad(rule)), jax.grad(jax.grad(jax.jit(rule)))):
        with prevented():
            second(3.0)


def test_the_transpose_of_a_linear_function_raises():
    assert float(layer(3.0)) == 6.0
    with prevented():
        jax.linear_transpose(layer, 3.0)(1.0)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.vmap, jax.checkpoint], ids=["jit", "vmap", "checkpoint"])
def test_the_lowered_program_is_that_without_it(wrap):
    x = jnp.ones(4)

    def text(f):
        return jax.jit(wrap(f)).lower(x).as_text()

    assert text(lambda x: 2.0 * guard(x)) == text(lambda x: 2.0 * x)


def test_a_mutable_reference_is_refused():
    with pytest.raises(UndecidableError, match="mutable JAX reference"):
        guard(jax.new_ref(jnp.float32(1.0)))
