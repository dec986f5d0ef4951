"""The leaf of a label on JAX, and functions that a registered node wraps."""

import jax
import jax.numpy as jnp
import numpy as np

from adprotocol import NonDifferentiable, non_differentiable

XS = jnp.array([1.0, 2.0])


def _leaves_of_a_label(x):
    """Return the product of a value and its label, whose leaf is the same object each time it is flattened."""
    label = NonDifferentiable(x)
    (leaf,) = jax.tree.leaves(label)
    mapped = jax.tree.map(lambda value: value, label)
    assert all(one is leaf for one in (*jax.tree.leaves(label), *jax.tree.leaves(mapped), label.value, mapped.value))

    def step(total, _):
        (inside,) = jax.tree.leaves(label)
        assert jax.tree.leaves(label)[0] is inside
        return total + jnp.sum(x * inside), None

    total, _ = jax.lax.scan(step, 0.0, None, length=2)
    assert jax.tree.leaves(label)[0] is leaf
    return total


def test_a_label_is_flattened_to_the_same_leaf_each_time():
    grad, jit = jax.grad, jax.jit
    for transformed in (grad(_leaves_of_a_label), jit(grad(_leaves_of_a_label)), grad(jit(_leaves_of_a_label))):
        with jax.checking_leaks():
            assert np.allclose(transformed(XS), 2.0 * XS)
    assert np.allclose(jax.vmap(grad(_leaves_of_a_label))(XS), 2.0 * XS)
    assert np.allclose(jax.hessian(_leaves_of_a_label)(XS), 0.0)


def test_function_wrapped_in_a_registered_node_is_decorated():
    @jax.tree_util.register_pytree_node_class
    class Jitted:
        def __init__(self, function):
            self.__wrapped__ = function

        def __call__(self, x):
            return self.__wrapped__(x)

        def tree_flatten(self):
            return (), self.__wrapped__

        @classmethod
        def tree_unflatten(cls, function, _children):
            return cls(function)

    assert jax.grad(lambda x: x * non_differentiable(Jitted(lambda y: y * y))(x))(3.0) == 9.0
