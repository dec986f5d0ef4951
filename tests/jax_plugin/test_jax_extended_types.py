"""Types of JAX's own: the scales of 8-bit floats have tangents; those of hijax, which are no arrays, are refused."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from adprotocol import NonDifferentiable, cond, explain, non_differentiable, prevent_gradient, within_gradient
from adprotocol.errors import GradientPreventedError, UndecidableError

X = jnp.float32(3.0)


@pytest.fixture
def fm32():
    return pytest.importorskip("flax.linen.fp8_ops").fm32


def jvp(f, x):
    return jax.jvp(f, (x,), (jnp.ones_like(x),))


def from_scale(x):
    return lax.convert_element_type(x, jnp.float32)


def test_the_answer_is_that_of_an_operation(fm32):
    def f(x):
        y = lax.convert_element_type(x, fm32)
        return cond(within_gradient(y), lambda: 3.0 * from_scale(y), lambda: 5.0 * from_scale(y))

    for g in (f, jax.jit(f)):
        assert g(X) == 15.0
        assert jvp(g, X) == (9.0, 3.0)
    said = []
    jvp(lambda x: said.append(explain(lax.convert_element_type(x, fm32))) or x, X)
    assert ": True (a tangent is being propagated" in said[0]


@pytest.mark.parametrize(
    "constant",
    [
        non_differentiable,
        lambda y: NonDifferentiable(y).value,
        lambda y: jax.tree.leaves(NonDifferentiable(y))[0],
        lambda y: jax.tree.leaves(NonDifferentiable([y]))[0],
    ],
)
def test_constants(fm32, constant):
    def f(x):
        y = constant(lax.convert_element_type(x, fm32))
        return x * from_scale(y) + cond(within_gradient(y), lambda: 100.0 * x, lambda: 0.0 * x)

    assert f(X) == 9.0
    assert jvp(f, X)[1] == 3.0
    assert jvp(lambda x: jvp(f, x)[1], X) == (3.0, 0.0)
    assert jvp(lambda xs: jax.vmap(f)(xs).sum(), X[None])[1] == 3.0
    assert jax.vmap(lambda x: jvp(f, x)[1])(X[None]) == 3.0


def test_a_guarded_scale(fm32):
    def f(x):
        return from_scale(prevent_gradient(lax.convert_element_type(x, fm32), "no derivative"))

    assert jax.jit(f)(X) == 3.0
    assert jax.jit(jax.vmap(f))(X[None])[0] == 3.0
    for derivative in (jax.grad(f), jax.grad(jax.jit(f))):
        with pytest.raises(GradientPreventedError, match="no derivative"):
            derivative(X)


def test_a_value_of_a_high_level_type_is_refused():
    hijax = pytest.importorskip("jax.experimental.hijax")

    @dataclass(frozen=True)
    class BoxType(hijax.HiType):
        def str_short(self, *_args, **_kwargs):
            return "Box"

        def lo_ty(self):
            return [hijax.ShapedArray((), jnp.dtype("float32"))]

    if hasattr(hijax, "HiPrimitive"):

        class MakeBox(hijax.HiPrimitive):
            def abstract_eval(self, _aval):
                return BoxType(), set()

        make = MakeBox("make_box").bind
    else:  # JAX 0.11

        class Make(hijax.HiPrim):
            in_avals, out_aval, params = (hijax.ShapedArray((), jnp.dtype("float32")),), BoxType(), {}

        make = Make()

    def f(x):
        y = make(x)
        for hook in (within_gradient, non_differentiable, lambda y: prevent_gradient(y, "no")):
            with pytest.raises(UndecidableError, match=r"value of JAX that is no array \(.*Box.*Pass the arrays in it"):
                hook(y)
        return x

    jax.make_jaxpr(f)(X)
