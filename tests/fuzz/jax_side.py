"""JAX for generated programs: what a program calls by name. Each transformation maps scalar to scalar."""

import jax
import jax.numpy as jnp

KINDS = {
    "grad": "reverse",
    "vjp": "reverse",
    "jacrev": "reverse",
    "jvp": "forward",
    "linearize": "forward",
    "jacfwd": "tangent",
    "jit": "plain",
    "vmap": "plain",
    "checkpoint": "plain",
    "scan": "loop",
    "while_loop": "loop",
    "branch": "either",
    "custom_jvp": "custom",
}
# What JAX refuses inside a transformation.
REFUSED = dict.fromkeys(("grad", "vjp", "jacrev"), ("while_loop",))

grad, jacfwd, jacrev, jit, checkpoint = jax.grad, jax.jacfwd, jax.jacrev, jax.jit, jax.checkpoint
sin, stop, native_value_and_grad = jnp.sin, jax.lax.stop_gradient, jax.value_and_grad


def precision():
    return jax.enable_x64(True)


def const(number):
    return jnp.asarray(number, dtype=float)


def vjp(f):
    def pulled(x):
        y, pull = jax.vjp(f, x)
        return pull(jnp.ones_like(y))[0] + 0.25 * y

    return pulled


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


def vmap(f):
    return lambda x: jax.vmap(f)(x * jnp.array([1.0, 0.5])).sum()


def scan(f):
    return lambda x: jax.lax.scan(lambda carry, _: (f(carry), None), x, None, length=2)[0]


def while_loop(f):
    return lambda x: jax.lax.while_loop(lambda state: state[0] < 2, lambda state: (state[0] + 1, f(state[1])), (0, x))[
        1
    ]


def branch(f):
    return lambda x: jax.lax.cond(x > -1e9, f, lambda x: 0.5 * x, x)


def custom_jvp(f):
    fun = jax.custom_jvp(f)

    @fun.defjvp
    def _rule(primals, tangents):
        return f(*primals), 0.5 * jnp.cos(*primals) * tangents[0]

    return fun
