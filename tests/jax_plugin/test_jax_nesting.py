"""Random nestings of JAX's transformations, to depth 4, against the oracle of the definition."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax

from adprotocol import cond, within_gradient

X = 0.7


def evaluate(x):
    return jnp.exp(1.3 * x)


def train(x):
    return 5.0 * jnp.exp(1.3 * x)


def layer(x):
    return cond(within_gradient(x), train, evaluate, x)


# A derivative is added to the value, so that neither is lost to what is outside.
TRANSFORMS = {
    "grad": lambda f: lambda x: sum(jax.value_and_grad(f)(x)),
    "jvp": lambda f: lambda x: sum(jax.jvp(f, (x,), (1.0,))),
    "linearize": lambda f: lambda x: sum((y := jax.linearize(f, x))[:1]) + y[1](1.0),
    "vjp": lambda f: lambda x: (y := jax.vjp(f, x))[0] + y[1](jnp.ones(()))[0],
    "grad of another": lambda f: lambda x: sum(jax.value_and_grad(lambda y: y * f(x))(2.0)),
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x])).sum(),
    "vmap of another": lambda f: lambda x: jax.vmap(lambda y: y * f(x))(jnp.ones(2)).sum(),
    "jit": jax.jit,
    "checkpoint": jax.checkpoint,
    "scan": lambda f: lambda x: lax.scan(lambda c, _: (c, f(c)), x, None, length=2)[1].sum(),
    "cond": lambda f: lambda x: lax.cond(x > -9.0, f, lambda x: x, x),
    "stop": lambda f: lambda x: f(lax.stop_gradient(x)),
}


def build(names, f):
    for name in reversed(names):
        f = TRANSFORMS[name](f)
    return f


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(sorted(TRANSFORMS)), min_size=1, max_size=4))
def test_any_nesting_agrees_with_the_oracle(names):
    x = jnp.asarray(X)
    trained = build(names, train)(x)
    is_differentiated = not np.allclose(trained, build([*names, "stop"], train)(x))
    wanted = trained if is_differentiated else build(names, evaluate)(x)
    assert np.allclose(build(names, layer)(x), wanted, rtol=1e-5), names
