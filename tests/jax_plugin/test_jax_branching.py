"""cond on JAX."""

import contextvars

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from adprotocol import cond, within_gradient
from adprotocol.errors import BranchMismatchError, PredicateError, UndecidableError


def test_what_stands_for_an_array_or_a_program_is_no_predicate():
    program = jax.jit(lambda: True)
    for pred in (jax.ShapeDtypeStruct((), bool), program.lower().compile(), jax.make_jaxpr(program)()):
        with pytest.raises(PredicateError, match=f"{type(pred).__name__} as predicate, which is no array"):
            cond(pred, lambda: 1.0, lambda: 2.0)


def test_staged_cond_leaks_no_tracer():
    with jax.checking_leaks():
        assert jax.jit(lambda x: cond(x > 0, lambda: 3.0 * x, lambda: 5.0 * x))(2.0) == 6.0


@pytest.mark.skipif(not hasattr(lax, "pcast"), reason=f"jax {jax.__version__} has no jax.lax.pcast")
def test_branches_that_vary_along_different_axes_are_refused_with_the_remedy():
    # Cast behind the user's back, the derivative in what is equal on all devices would be summed over them.
    mesh, spec = Mesh(np.array(jax.devices()[:1]), ("i",)), PartitionSpec("i")

    def run(true_fun):
        def f(x, w):
            return cond(w > 2.0, lambda: true_fun(w), lambda: x[0] * w)[None]

        return jax.shard_map(f, mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec)

    x, w = jnp.array([5.0]), jnp.array(3.0)
    with pytest.raises(BranchMismatchError, match=r'vary .* with jax.lax.pcast\(result, axes, to="varying"'):
        run(lambda w: 2.0 * w)(x, w)
    with pytest.raises(BranchMismatchError, match="Make them equal"):
        run(lambda w: None)(x, w)
    mended = run(lambda w: jax.lax.pcast(2.0 * w, ("i",), to="varying"))
    assert mended(x, w) == 6.0
    assert jax.grad(lambda w: mended(x, w).sum())(w) == 2.0


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit, jax.vmap], ids=["eager", "jit", "vmap"])
def test_a_predicate_that_differs_from_device_to_device_is_refused(wrap):
    mesh, spec = Mesh(np.array(jax.devices()[:2]), ("i",)), PartitionSpec(None, "i")

    def run(flag):
        def body(x):
            whole = flag(x)
            return wrap(lambda x: cond(whole.sum() > 3.5, lambda: 2.0 * x, lambda: x))(x)

        return jax.shard_map(body, mesh=mesh, in_specs=spec, out_specs=spec)(jnp.array([[1.0, 2.0], [1.0, 2.0]]))

    with pytest.raises(UndecidableError, match=r"differs along 'i', .* equal on all devices with jax\.lax\.psum"):
        run(lambda x: x)
    assert run(lambda x: lax.psum(x, "i")).tolist() == [[2.0, 4.0], [2.0, 4.0]]


SETTING = contextvars.ContextVar("factor", default=1.0)
PARAMETERS = {"w": 1.0}


def scaled(x):
    return SETTING.get() * PARAMETERS["w"] * x


@pytest.mark.parametrize("around", [jax.jit, jax.vmap, jax.grad, lambda f: jax.jit(jax.grad(f))])
def test_a_branch_reads_settings_and_parameters_anew_in_each_call(around):
    for factor, weight in ((1.0, 1.0), (5.0, 1.0), (5.0, 3.0)):
        token = SETTING.set(factor)
        PARAMETERS["w"] = weight
        try:
            x = jnp.ones(2) if around is jax.vmap else 1.0
            assert np.all(around(lambda x: cond(x > 0.0, scaled, doubled, x))(x) == factor * weight)
        finally:
            SETTING.reset(token)


def doubled(x):
    return 2.0 * x


def called(x):
    """Call the host, which has no derivative."""
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), jnp.float32), x)


def test_a_branch_sees_constants_where_the_answer_is_false():
    f = lambda x: cond(within_gradient(x), doubled, called, x)
    assert np.allclose(jax.jit(f)(1.0), np.sin(1.0))
    assert jax.grad(jax.jit(f))(1.0) == 2.0
    assert jax.jit(jax.grad(f))(1.0) == 2.0
    # Where another predicate chooses, the callback is differentiated.
    with pytest.raises(ValueError, match="Pure callbacks do not support JVP"):
        jax.grad(jax.jit(lambda flag, x: cond(flag, doubled, called, x)), argnums=1)(True, 1.0)
