"""non_differentiable and the label on JAX."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from adprotocol import NonDifferentiable, non_differentiable

XS = jnp.array([1.0, 2.0])


@dataclasses.dataclass(frozen=True)
class Kernel:
    variance: object
    lengthscale: object
    degree: int = 2


jax.tree_util.register_dataclass(Kernel, ["variance", "lengthscale"], ["degree"])


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


def test_label_lets_no_derivative_out_through_the_tree_either():
    params = {"a": NonDifferentiable(2.0), "b": 3.0}
    for transform in (lambda f: f, jax.jit):
        gradient = jax.grad(transform(lambda p: sum(leaf**2 for leaf in jax.tree.leaves(p))))(params)
        assert gradient["a"].held == 0.0
        assert gradient["b"] == 6.0
    assert jax.jvp(lambda x: NonDifferentiable(x), (2.0,), (1.0,))[1].held == 0.0  # noqa: PLW0108


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


@dataclasses.dataclass(frozen=True)
class WithStatic:
    weight: object
    shape_only: object


jax.tree_util.register_dataclass(WithStatic, ["weight"], ["shape_only"])
