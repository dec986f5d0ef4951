"""within_gradient on JAX: staged until it can be right."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

import adprotocol
from adprotocol import cond, within_gradient
from adprotocol.errors import UndecidableError

X = 2.0
XS = jnp.array([1.0, 2.0])


def test_staged_answer_is_a_boolean_scalar_without_a_batch_dimension():
    answers = jax.vmap(jax.jit(lambda x: (x, within_gradient(x))), out_axes=(0, None))(XS)[1]
    assert answers.shape == ()
    assert answers.dtype == bool


def test_abstract_evaluation_is_no_differentiation(layer):
    assert jax.eval_shape(layer, jax.ShapeDtypeStruct((), jnp.float32)).shape == ()
    assert "adprotocol_within_gradient" in str(jax.make_jaxpr(layer)(X))
    assert "adprotocol_within_gradient" not in str(jax.make_jaxpr(jax.grad(layer))(X))


def test_an_exported_program_is_that_of_evaluation_and_has_no_derivative(layer):
    pytest.importorskip("flatbuffers")
    exported = jax.export.export(jax.jit(layer), platforms=["cpu"])(jax.ShapeDtypeStruct((), jnp.float32))
    restored = jax.export.deserialize(exported.serialize())
    assert restored.call(X) == 5.0 * X
    # JAX would take the value from that program, and the gradient from another.
    with pytest.raises(UndecidableError, match="Export jax"):
        exported.serialize(vjp_order=1)
    with pytest.raises(UndecidableError, match="Export jax"):
        jax.grad(exported.call)(X)


def test_a_question_that_is_answered_inside_an_exported_program(layer):
    pytest.importorskip("flatbuffers")
    inner = jax.jit(lambda x: x * jax.grad(layer)(x))
    exported = jax.export.export(inner, platforms=["cpu"])(jax.ShapeDtypeStruct((), jnp.float32))
    restored = jax.export.deserialize(exported.serialize(vjp_order=1))
    assert jax.value_and_grad(restored.call)(X) == (3.0 * X, 3.0)


def test_shard_map_and_pmap(layer):
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    spec = PartitionSpec("i")
    sharded = jax.shard_map(layer, mesh=mesh, in_specs=spec, out_specs=spec)
    for f in (sharded, jax.jit(sharded), jax.pmap(layer), jax.jit(jax.vmap(layer))):
        assert np.allclose(f(XS), 5.0 * XS)
        assert np.allclose(jax.grad(lambda x, f=f: f(x).sum())(XS), 3.0)


def test_containers_and_several_values_stage_one_operation():
    params = {"w": XS, "n": 3, "name": "layer", "none": None, "b": [XS, (XS,)]}
    program = str(jax.make_jaxpr(lambda p: within_gradient(p, 1.0, "x"))({"w": XS, "b": [XS, (XS,)]}))
    assert program.count("adprotocol_within_gradient") == 1
    assert within_gradient(params) is False

    def loss(w):
        return cond(within_gradient({**params, "w": w}), lambda: w.sum() * 3.0, lambda: w.sum() * 5.0)

    assert loss(XS) == 15.0
    assert np.allclose(jax.grad(loss)(XS), 3.0)
    assert np.allclose(jax.grad(jax.jit(loss))(XS), 3.0)


def test_bool_of_a_staged_answer_raises():
    with pytest.raises(jax.errors.TracerBoolConversionError):
        jax.jit(lambda x: x if within_gradient(x) else -x)(X)


def test_mutable_reference_is_refused_with_the_remedy():
    ref = jax.new_ref(jnp.ones(()))
    with pytest.raises(adprotocol.ADProtocolError, match=r"ref\[\.\.\.\]"):
        within_gradient(ref)
    with pytest.raises(adprotocol.ADProtocolError, match=r"ref\[\.\.\.\]"):
        jax.jit(within_gradient)(ref)
    assert within_gradient(ref[...]) is False
