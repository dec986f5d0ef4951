"""non_differentiable and the label on JAX."""

import copy
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from adprotocol import NonDifferentiable, non_differentiable, within_gradient

XS = jnp.array([1.0, 2.0])


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.checkpoint])
def test_every_derivative_is_zero(transform):
    f = transform(lambda x: x**2 * non_differentiable(x) ** 3)
    assert f(2.0) == 32.0
    assert jax.grad(f)(2.0) == 32.0
    assert jax.grad(jax.grad(f))(2.0) == 16.0
    assert jax.grad(jax.grad(jax.grad(f)))(2.0) == 0.0
    assert jax.jvp(f, (2.0,), (1.0,))[1] == 32.0
    assert jax.hessian(f)(2.0) == 16.0


def test_constant_is_false_at_all_levels():
    def f(x):
        c = non_differentiable(x)
        return jax.grad(lambda y: jnp.where(within_gradient(c), 100.0, 1.0) * y * c)(x)

    assert jax.grad(f)(2.0) == 0.0
    assert f(2.0) == 2.0
    assert jax.grad(jax.jit(f))(2.0) == 0.0


def test_straight_through_estimator():
    f = jax.jit(lambda x: x + non_differentiable(jnp.round(x) - x))
    assert f(1.7) == 2.0
    assert jax.grad(f)(1.7) == 1.0


def test_concrete_values_and_other_leaves_come_back_identical():
    assert non_differentiable(XS) is XS
    marker, function = object(), lambda: None
    tree = {"x": XS, "i": 3, "s": "s", "n": None, "o": marker, "f": function}
    result = jax.jit(lambda x: x)(XS) is not None and non_differentiable(tree)
    assert all(result[key] is tree[key] for key in tree)


def test_decorator_holds_for_positional_keyword_and_closed_over_values():
    def loss(x):
        @non_differentiable
        def product(a, *, b):
            return {"p": a * b * x * jnp.where(within_gradient(a, b), 100.0, 1.0)}

        return product(x, b=x)["p"] + x

    for f in (loss, jax.jit(loss)):
        value, gradient = jax.value_and_grad(f)(2.0)
        assert (value, gradient) == (10.0, 1.0)


def test_decorator_of_a_jitted_function_and_of_a_method():
    square = non_differentiable(jax.jit(lambda x: x * x))
    assert jax.grad(lambda x: x * square(x))(3.0) == 9.0

    class Layer:
        @non_differentiable
        def scale(self, x):
            """Doc."""
            return x * 2.0

    assert Layer.scale.__doc__ == "Doc."
    assert jax.grad(lambda x: x * Layer().scale(x))(3.0) == 6.0


@dataclasses.dataclass(frozen=True)
class Kernel:
    variance: object
    lengthscale: object
    degree: int = 2


jax.tree_util.register_dataclass(Kernel, ["variance", "lengthscale"], ["degree"])


def test_label_in_a_structure_that_jax_itself_differentiates():
    kernel = Kernel(NonDifferentiable(2.0), 3.0)
    loss = lambda k: k.variance * k.lengthscale**2
    gradient = jax.grad(loss)(kernel)
    assert isinstance(gradient.variance, NonDifferentiable)
    assert gradient.variance.held == 0.0
    assert gradient.lengthscale == 12.0
    assert jax.grad(jax.jit(loss))(kernel).lengthscale == 12.0


def test_label_is_traced_and_not_static():
    traces = []

    @jax.jit
    def f(label, x):
        traces.append(1)
        assert within_gradient(label) is False
        return label * x

    assert f(NonDifferentiable(2.0), 3.0) == 6.0
    assert f(NonDifferentiable(5.0), 3.0) == 15.0
    assert len(traces) == 1


def test_label_maps_flattens_pickles_and_copies():
    label = NonDifferentiable(XS)
    assert np.allclose(jax.vmap(lambda b, x: b + x)(label, XS), 2 * XS)
    leaves, treedef = jax.tree.flatten({"a": label})
    assert isinstance(jax.tree.unflatten(treedef, leaves)["a"], NonDifferentiable)
    for twin in (copy.copy(label), copy.deepcopy(label), pickle.loads(pickle.dumps(label))):  # noqa: S301
        assert np.allclose(twin.value, XS)
    assert "value" in str(jax.tree_util.tree_flatten_with_path(label)[0][0][0])


def test_label_in_arithmetic_indexing_and_functions_gives_plain_arrays():
    label = NonDifferentiable(XS)

    def f(x):
        inside = NonDifferentiable(x)
        values = [
            inside + x,
            x + inside,
            inside * 2.0,
            2.0 - inside,
            -inside,
            inside @ x,
            inside[0] * x,
            jnp.sin(inside),
        ]
        values += [jnp.add(inside, x), inside**2, inside.sum() * x, inside > 0, label * x, jnp.dot(inside, x)]
        assert not any(isinstance(value, NonDifferentiable) for value in values)
        return sum(jnp.sum(value) for value in values)

    def plain(x):
        c = jax.lax.stop_gradient(x)
        values = [c + x, x + c, c * 2.0, 2.0 - c, -c, c @ x, c[0] * x, jnp.sin(c)]
        values += [jnp.add(c, x), c**2, c.sum() * x, c > 0, XS * x, jnp.dot(c, x)]
        return sum(jnp.sum(value) for value in values)

    assert np.allclose(jax.grad(f)(XS), jax.grad(plain)(XS))
    assert np.allclose(jax.grad(jax.jit(f))(XS), jax.grad(plain)(XS))
    assert np.allclose(f(XS), plain(XS))


def test_label_leaks_no_tracer():
    with jax.checking_leaks():
        assert jax.jit(jax.grad(lambda x, b: x * b))(2.0, NonDifferentiable(3.0)) == 3.0


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


def test_static_fields_are_left_alone():
    static = Kernel(1.0, 2.0)
    tree = {"m": WithStatic(2.0, static)}
    assert non_differentiable(tree)["m"].shape_only is static
    assert jax.grad(lambda w: w * non_differentiable(WithStatic(w, static)).weight)(3.0) == 3.0


def test_abstract_values_are_constants():
    assert within_gradient(jax.ShapeDtypeStruct((), jnp.float32)) is False
