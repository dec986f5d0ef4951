"""JAX for generated programs: what a program calls by name. Each transformation maps scalar to scalar."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from fuzz.structures import by_pull, by_push, by_rows, packed, unpacked  # noqa: F401  (what programs call)

_FORWARD = ("jvp", "linearize", "jacfwd", "hessian")
_REVERSE = ("grad", "with_value", "vjp", "jacrev", "hessian")
KINDS = {
    "grad": "reverse",
    "with_value": "forward",
    "vjp": "reverse",
    "jacrev": "reverse",
    "jvp": "forward",
    "linearize": "forward",
    "jacfwd": "tangent",
    "hessian": "tangent reverse",
    "jit": "plain",
    "vmap": "plain",
    "pmap": "plain",
    "shard_map": "plain",
    "checkpoint": "plain",
    "lax_map": "plain",
    "eval_shape": "plain",
    "make_jaxpr": "plain",
    "scan": "loop",
    "fori_loop": "loop",
    "while_loop": "loop",
    "branch": "either",
    "switch": "either",
    "custom_jvp": "custom",
    "custom_vjp": "custom",
}
OPERATIONS = ("backward_only",)
CONSTANTS = ("callback",)
# What JAX refuses inside a transformation.
REFUSED = {
    **dict.fromkeys(_REVERSE, ("while_loop",)),
    **dict.fromkeys(_FORWARD, ("custom_vjp", "backward_only")),
    "hessian": ("while_loop", "custom_vjp", "backward_only"),
    # One mesh at a time.
    "pmap": ("pmap", "shard_map"),
    "shard_map": ("pmap", "shard_map", "backward_only"),
    "engine": ("while_loop",),
}

grad, jacfwd, jacrev, jit, checkpoint = jax.grad, jax.jacfwd, jax.jacrev, jax.jit, jax.checkpoint
hessian = jax.hessian
sin, stop, native_value_and_grad = jnp.sin, jax.lax.stop_gradient, jax.value_and_grad


@contextlib.contextmanager
def precision():
    """Compute in float64; for all threads, as callbacks may run in others."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
        jax.effects_barrier()
    finally:
        jax.config.update("jax_enable_x64", before)


def const(number):
    return jnp.asarray(number, dtype=float)


def stacked(one, other):
    return jnp.stack([one, other])


def boxed(x):
    return jax.tree_util.Partial(jnp.sin, x)


def native_value_and_push(f):
    """In shard_map the tangent is that of one device, where a gradient is summed over them."""

    def pushed(x):
        try:
            return jax.jvp(f, (x,), (jnp.ones_like(x),))
        except TypeError:  # what is backward only
            return jax.value_and_grad(f)(x)

    return pushed


def callback(x):
    return jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), x.dtype), x, vmap_method="sequential")


@jax.custom_vjp
def backward_only(x):
    return jnp.sin(x)


backward_only.defvjp(lambda x: (jnp.sin(x), x), lambda x, cotangent: (jnp.cos(x) * cotangent,))


def vjp(f):
    def pulled(x):
        y, pull = jax.vjp(f, x)
        return pull(jnp.ones_like(y))[0] + 0.25 * y

    return pulled


def with_value(f):
    def both(x):
        y, gradient = jax.value_and_grad(f)(x)
        return gradient + 0.25 * y

    return both


def jvp(f):
    def pushed(x):
        y, tangent = jax.jvp(f, (x,), (jnp.ones_like(x),))
        return tangent + 0.25 * y

    return pushed


def linearize(f):
    def pushed(x):
        y, linear = jax.linearize(f, x)
        return linear(jnp.ones_like(x)) + 0.25 * y

    return pushed


def _two(x):
    return x * jnp.array([1.0, 0.5])


def vmap(f):
    return lambda x: jax.vmap(f)(_two(x)).sum()


def pmap(f):
    return lambda x: jax.pmap(f)(_two(x)).sum()


def shard_map(f):
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    one, spec = lambda x: f(x[0])[None], PartitionSpec("i")
    return lambda x: jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec)(_two(x)).sum()


def lax_map(f):
    return lambda x: jax.lax.map(f, _two(x)).sum()


def eval_shape(f):
    return lambda x: jnp.zeros(jax.eval_shape(f, x).shape) + f(x)


def make_jaxpr(f):
    def evaluated(x):
        jaxpr = jax.make_jaxpr(f)(x)
        return jax.core.eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, x)[0]

    return evaluated


def scan(f):
    return lambda x: jax.lax.scan(lambda carry, _: (f(carry), None), x, None, length=2)[0]


def fori_loop(f):
    return lambda x: jax.lax.fori_loop(0, 2, lambda _, carry: f(carry), x)


def while_loop(f):
    def is_open(state):
        return state[0] < 2

    return lambda x: jax.lax.while_loop(is_open, lambda state: (state[0] + 1, f(state[1])), (0, x))[1]


def branch(f):
    return lambda x: jax.lax.cond(x > -1e9, f, lambda x: 0.5 * x, x)


def switch(f):
    return lambda x: jax.lax.switch((x > -1e9) + 0, [lambda x: 0.5 * x, f, lambda x: x], x)


def custom_jvp(f):
    fun = jax.custom_jvp(f)

    @fun.defjvp
    def _rule(primals, tangents):
        return f(*primals), 0.5 * jnp.cos(*primals) * tangents[0]

    return fun


def custom_vjp(f):
    fun = jax.custom_vjp(f)
    fun.defvjp(lambda x: (f(x), x), lambda x, cotangent: (0.5 * jnp.cos(x) * cotangent,))
    return fun
