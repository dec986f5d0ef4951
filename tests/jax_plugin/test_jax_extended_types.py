"""Values whose types JAX gives tangents, though they are no ordinary floating-point arrays, and those it gives none."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax_release import has_hijax

from adprotocol import NonDifferentiable, cond, explain, non_differentiable, within_gradient

if not has_hijax:
    pytest.skip(f"jax {jax.__version__} has no jax.experimental.hijax", allow_module_level=True)

from jax.experimental.hijax import HiPrimitive, HiType, ShapedArray, Zero, register_hitype

fm32 = pytest.importorskip("flax.linen.fp8_ops").fm32
X = jnp.float32(3.0)


@dataclass(frozen=True)
class BoxType(HiType):
    def lo_ty(self):
        return [ShapedArray((), jnp.dtype("float32"))]

    def lower_val(self, value):
        return [value.held]

    def raise_val(self, held):
        return Box(held)

    def to_tangent_aval(self):
        return BoxType()

    def vspace_zero(self):
        return Box(jnp.float32(0.0))

    def vspace_add(self, one, other):
        return box(unbox(one) + unbox(other))

    def str_short(self, *_args, **_kwargs):
        return "Box"


@dataclass(frozen=True)
class Box:
    held: object


register_hitype(Box, lambda _: BoxType())


class MakeBox(HiPrimitive):
    def abstract_eval(self, _aval):
        return BoxType(), set()

    def to_lojax(self, held):
        return Box(held)

    def jvp(self, primals, tangents):
        tangent = tangents[0]
        return box(primals[0]), Zero(BoxType()) if type(tangent) is Zero else box(tangent)

    def transpose(self, cotangent, _held):
        return [unbox(cotangent)]


class OpenBox(HiPrimitive):
    def abstract_eval(self, _aval):
        return ShapedArray((), jnp.dtype("float32")), set()

    def to_lojax(self, value):
        return value.held

    def jvp(self, primals, tangents):
        tangent = tangents[0]
        zero = Zero(ShapedArray((), jnp.dtype("float32")))
        return unbox(primals[0]), zero if type(tangent) is Zero else unbox(tangent)

    def transpose(self, cotangent, _value):
        return [box(cotangent)]


make_p, open_p = MakeBox("make_box"), OpenBox("open_box")
box, unbox = make_p.bind, open_p.bind


def to_scale(x):
    return lax.convert_element_type(x, fm32)


def from_scale(x):
    return lax.convert_element_type(x, jnp.float32)


KINDS = {"hijax": (box, unbox), "fp8 scale": (to_scale, from_scale)}
TRANSFORMS = {
    "grad": lambda f: jax.grad(f)(X),
    "grad(jit)": lambda f: jax.grad(jax.jit(f))(X),
    "jit(grad)": lambda f: jax.jit(jax.grad(f))(X),
    "jvp": lambda f: jax.jvp(f, (X,), (jnp.float32(1.0),))[1],
    "grad(checkpoint)": lambda f: jax.grad(jax.checkpoint(f))(X),
}


def transforms(kind):
    # The 8-bit scales are added by their own rule, which reverse mode reaches only with the framework's layers.
    names = TRANSFORMS if kind == "hijax" else ["jvp"]
    return [pytest.param(*KINDS[kind], TRANSFORMS[name], id=f"{kind}, {name}") for name in names]


# A staged cond over values of hijax is beyond JAX: without this library it fails as well.
BRANCHED = [case for case in transforms("hijax") if "(jit" not in case.id and "(checkpoint" not in case.id]
BRANCHED += transforms("fp8 scale")
CASES = [*transforms("hijax"), *transforms("fp8 scale")]


@pytest.mark.parametrize(("make", "back", "transform"), BRANCHED)
def test_the_answer_is_that_of_an_operation(make, back, transform):
    def f(x):
        y = make(x)
        return cond(within_gradient(y), lambda: 3.0 * back(y), lambda: 5.0 * back(y))

    assert f(X) == 15.0
    assert jax.jit(f)(X) == 15.0
    assert transform(f) == 3.0


@pytest.mark.parametrize(("make", "back", "transform"), BRANCHED)
def test_the_branch_for_false_sees_it_as_constant(make, back, transform):
    def f(x):
        y = make(x)
        return cond(
            within_gradient(y, x),
            lambda: 3.0 * back(y),
            lambda: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), back(y)),
        )

    assert transform(f) == 3.0
    assert jax.jit(f)(X) == pytest.approx(np.sin(3.0))


def test_a_staged_answer_about_a_high_level_value():
    asked = jax.jit(lambda x: within_gradient(box(x)))
    assert not asked(X)
    assert jax.jvp(lambda x: x * asked(x), (X,), (X,))[1] == 3.0
    assert jax.grad(lambda x: x * asked(x))(X) == 1.0
    assert jax.grad(jax.checkpoint(lambda x: x * within_gradient(box(x))))(X) == 1.0


@pytest.mark.parametrize(("make", "back", "transform"), CASES)
@pytest.mark.parametrize(
    "constant",
    [
        non_differentiable,
        lambda y: NonDifferentiable(y).value,
        lambda y: jax.tree.leaves(NonDifferentiable(y))[0],
        lambda y: jax.tree.leaves(NonDifferentiable([y]))[0],
    ],
)
def test_constants(make, back, transform, constant):
    def f(x):
        y = constant(make(x))
        return x * back(y) + cond(within_gradient(y), lambda: 100.0 * x, lambda: 0.0 * x)

    assert f(X) == 9.0
    assert transform(f) == 3.0


def test_constant_scales_at_every_level():
    def f(x):
        return from_scale(non_differentiable(to_scale(x))) * x

    assert jax.jvp(lambda x: jax.jvp(f, (x,), (1.0,))[1], (X,), (1.0,)) == (3.0, 0.0)
    assert jax.jvp(lambda xs: jax.vmap(f)(xs).sum(), (X[None],), (jnp.ones(1),))[1] == 3.0
    assert jax.vmap(lambda x: jax.jvp(f, (x,), (1.0,))[1])(X[None]) == 3.0


@pytest.mark.parametrize("make", [box, to_scale])
def test_explained(make):
    said = []
    jax.jvp(lambda x: said.append(explain(make(x))) or x, (X,), (X,))
    assert ": True (a tangent is being propagated" in said[0]
