"""Values beside the arrays that are differentiated: keys, integers, labels, references, literals and programs."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from adprotocol import NonDifferentiable, explain, grad, non_differentiable, within_gradient

X = jnp.float32(3.0)


def test_a_random_key_has_no_tangent():
    def f(x, key):
        assert within_gradient(key) is False
        said.append(explain(key))
        return x * jax.random.uniform(non_differentiable(key))

    said = []
    assert jax.jit(jax.grad(f))(X, jax.random.key(0)) == jax.random.uniform(jax.random.key(0))
    assert "no derivative" in said[0]


def test_integers_lose_their_tracer():
    seen = []

    @jax.custom_vjp
    def count(x):
        return x, jnp.int32(3)

    count.defvjp(lambda x: (count(x), None), lambda _, cotangents: (cotangents[0],))

    def f(x):
        y, n = count(x)
        seen.append(np.asarray(non_differentiable(n)))
        seen.append(np.asarray(non_differentiable({"flag": n > 2})["flag"]))
        return y * non_differentiable(n)

    assert jax.grad(f)(X) == 3.0
    assert seen == [3, True]


@pytest.mark.parametrize("container", [lambda v: v, lambda v: {"a": v}, lambda v: [v], lambda v: (v, {"b": [v]})])
def test_a_container_in_a_label_is_constant_by_its_leaves(container):
    def squares(model):
        return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(model))

    model = {"k": NonDifferentiable(container(2.0)), "w": 3.0}
    for transform in (lambda f: f, jax.jit, jax.checkpoint):
        gradient = jax.grad(transform(squares))(model)
        assert gradient["w"] == 6.0
        assert all(leaf == 0.0 for leaf in jax.tree.leaves(gradient["k"]))
    tangents = jax.tree.map(jnp.ones_like, model)
    assert jax.jvp(squares, (model,), (tangents,))[1] == 6.0
    assert jax.jvp(lambda x: NonDifferentiable(container(x)), (2.0,), (1.0,))[1].held == container(0.0)


def test_literals_belong_to_jax():
    # What was a Python float or a NumPy array for jax.grad is one again once it is stopped, of a class of JAX's own.
    def sine(y):
        return jnp.sum(jnp.sin(y))

    assert jax.grad(lambda x: x * grad(sine)(non_differentiable(x)))(1.0) == pytest.approx(np.cos(1.0))
    got = jax.grad(lambda x: (x * grad(sine)(non_differentiable(x))).sum())(np.ones(2))
    assert np.allclose(got, np.cos(1.0))
    model = {"w": 1.0, "l": NonDifferentiable(2.0)}
    assert jax.grad(lambda m: m["w"] * grad(sine)(m["l"].value))(model)["w"] == pytest.approx(np.cos(2.0))
    assert jax.grad(lambda x: x * within_gradient(non_differentiable(x)) + x)(1.0) == 1.0
    with_integer = jax.grad(lambda m: m["w"] * grad(lambda v: v[0] * v[1])([m["w"], 2])[0], allow_int=True)
    assert with_integer({"w": 1.0, "n": 3})["w"] == 2.0


def test_programs_in_a_structure():
    lowered = jax.jit(jnp.sin).lower(X)
    programs = [
        lowered, lowered.compile(), jax.jit(jnp.sin).trace(X), jax.make_jaxpr(jnp.sin)(X), jax.typeof(X),
        jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((), jnp.float32)),
    ]  # fmt: skip
    for program in programs:
        assert within_gradient(program, X) is False
        assert non_differentiable([program])[0] is program
        assert grad(lambda m: m["w"] ** 2)({"w": X, "f": program}) == {"w": 6.0, "f": None}
        assert ": False" in explain(program)
    assert grad(lambda m: m["w"] * m["f"](jnp.float32(0.0)) + m["w"])({"w": X, "f": programs[1]})["w"] == 1.0


def test_a_converted_closure_in_a_structure():
    eqx = pytest.importorskip("equinox")
    converted = eqx.filter_closure_convert(lambda t: 2.0 * t * X, X)
    gradient = grad(lambda c: c["w"] * c["f"](jnp.float32(1.0)))({"w": X, "f": converted})
    assert gradient["w"] == 6.0
