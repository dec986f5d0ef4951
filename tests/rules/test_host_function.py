"""host_function: NumPy arrays in, NumPy arrays out, whichever framework calls."""

import gc
import weakref
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from ad_backends import AUTOGRAD, JAX, WITH_RULES, close, with_rules

from adprotocol import custom_derivative, host_function
from adprotocol.errors import GradientPreventedError, RuleError

# With autograd the arrays are NumPy's, on which a host function is the function itself.
beyond_numpy = pytest.mark.parametrize("ad", [ad for ad in WITH_RULES if ad is not AUTOGRAD], ids=lambda ad: ad.name)

A = 3.0 * np.eye(3) + np.arange(9.0).reshape(3, 3)
B = np.array([1.0, 2.0, 3.0])


@beyond_numpy
@pytest.mark.parametrize(
    ("fun", "like", "message"),
    [
        (lambda x: x[:1], lambda x: x, r"returned an array of shape \(1,\).*but its like one of shape \(2,\)"),
        (lambda x: x * 1j, lambda x: x, "dtype complex.*but its like"),
        (lambda x: np.array([1, 2**40]), lambda x: np.zeros(2, np.int32), "integers of dtype int64 that int32 cannot"),
        (lambda x: np.ma.array(x, mask=[True, False]), lambda x: x, "returned a MaskedArray"),
        (lambda x: (x, x), lambda x: x, r"another structure than its like: 2 array\(s\), not 1"),
        (lambda x: None, lambda x: x, "returned a NoneType"),
        (lambda x: "text", lambda x: x, "returned a str"),
        (lambda x: (i for i in x), lambda x: x, "returned a generator"),
        (
            lambda x: x,
            lambda x: "text",
            r"like .* dtype <U4",
        ),
        (
            lambda x: x,
            lambda x: None,
            r"like .* dtype object",
        ),
    ],
    ids=["shape", "dtype", "integer", "masked", "count", "None", "text", "generator", "like text", "like None"],
)
def test_a_result_that_is_not_like_it_should_be(ad, fun, like, message):
    with pytest.raises(RuleError, match=message):
        host_function(fun, like=like)(ad.make([1.0, 2.0]))


@beyond_numpy
@pytest.mark.parametrize("like", [None, lambda x: x])
def test_a_result_of_any_strides(ad, like):
    found = host_function(lambda x: x[::-1], like=like)(ad.make([[1.0, 2.0], [3.0, 4.0]]))
    assert close(found, [[3.0, 4.0], [1.0, 2.0]])


@pytest.mark.parametrize("misuse", [lambda: host_function(3.0), lambda: host_function(len, like=3.0)])
def test_misuse_is_told_at_once(misuse):
    with pytest.raises(RuleError, match="was given a float"):
        misuse()


@pytest.mark.parametrize("method", ["defvjp", "defjvp"])
def test_a_host_function_takes_no_rule_itself(method):
    with pytest.raises(RuleError, match="put @custom_derivative above @host_function"):
        getattr(host_function(np.sin), method)(lambda cotangent, returned, x: cotangent * np.cos(x))


def test_like_sees_arrays_without_memory():
    import jax.numpy as jnp

    seen = []

    def like(x):
        seen.append(x)
        return x

    host_function(lambda x: x, like=like)(jnp.ones((1000, 1000)))
    (blank,) = seen
    assert (blank.shape, blank.dtype, blank.strides) == ((1000, 1000), np.float32, (0, 0))
    assert blank.base.nbytes == 4
    assert not blank.flags.writeable


def test_methods_are_host_functions_too():
    class Scaled:
        scale = 3.0

        @host_function
        def times(self, x):
            return self.scale * x

    assert Scaled().times(2.0) == 6.0
    assert repr(Scaled.times) == "<host function times>"


@beyond_numpy
@pytest.mark.parametrize("like", [lambda a: (a[0], a), lambda a: np.linalg.eigh(np.eye(2))], ids=["plain", "named"])
@pytest.mark.parametrize("fun", [np.linalg.eigh, lambda a: tuple(np.linalg.eigh(a))], ids=["named", "plain"])
def test_a_named_tuple_of_numpy_is_a_tuple(ad, fun, like):
    values, vectors = host_function(fun, like=like)(ad.make(np.diag([1.0, 2.0])))
    assert close(values, [1.0, 2.0])
    assert close(abs(vectors), np.eye(2))


class Factorisation:
    """Something of a solver, of which no framework knows."""

    def __init__(self, a):
        self.inverse = np.linalg.inv(a)


@with_rules
@pytest.mark.parametrize("like", [None, lambda a, b: (b, None)], ids=["unknown", "like"])
def test_residuals_of_a_host_function_are_anything_in_eager_code(ad, like):
    @custom_derivative(has_residuals=True)
    @host_function(like=like)
    def factorised(a, b):
        held = Factorisation(a)
        return held.inverse @ b, held

    @factorised.defvjp
    def factorised_vjp(cotangent, returned, a, b):
        x, held = returned
        adjoint = host_function(lambda ct: held.inverse.T @ ct)(cotangent)
        return lambda: -adjoint[:, None] * x, adjoint

    a, b = ad.make(A), ad.make(B)
    assert close(factorised(a, b), np.linalg.solve(A, B))
    assert close(ad.derivative(lambda b: factorised(a, b).sum())(b), np.linalg.solve(A.T, np.ones(3)))
    if ad is JAX:
        with pytest.raises(RuleError, match="like="):
            jax.jit(factorised)(a, b)


@beyond_numpy
def test_like_is_called_once_for_each_signature(ad):
    calls = []

    def like(x, size, setting=None):
        calls.append(x.shape)
        return np.zeros(size if setting is None else setting.size)

    f = host_function(lambda x, size, setting=None: np.ones(size if setting is None else setting.size), like=like)
    x, y = ad.make([1.0, 2.0]), ad.make([1.0, 2.0, 3.0])
    for _ in range(3):
        assert f(x, 2).shape == (2,)
        assert f(x, 3).shape == (3,)
        assert f(y, 2).shape == (2,)
    assert len(calls) == 3
    setting = SimpleNamespace(size=1)
    assert f(x, 2, setting).shape == (1,)
    setting.size = 4
    assert f(x, 2, setting).shape == (4,)
    assert len(calls) == 5
    for size in range(100):  # what is known does not grow without end
        assert f(x, size).shape == (size,)
    assert len(f.known) <= 32


def test_a_host_function_keeps_no_argument_alive():
    f = host_function(lambda x, solver: x, like=lambda x, solver: x)
    solver = lambda: None
    f(jax.numpy.ones(2), solver)
    ended = weakref.ref(solver)
    del solver
    gc.collect()
    assert ended() is None


@pytest.mark.parametrize("reads_result", [False, True])
def test_a_solver_whose_rule_ignores_the_result_does_not_run_in_a_compiled_gradient(reads_result):
    runs = []

    @custom_derivative
    @host_function(like=lambda x: x)
    def f(x):
        runs.append(x)
        return np.sin(x)

    if reads_result:
        f.defvjp(host_function(lambda ct, y, x: (ct * np.sqrt(1.0 - y * y),)))
    else:
        f.defvjp(host_function(lambda ct, _, x: (ct * np.cos(x),), like=lambda ct, _, x: (x,)))
    x = jax.numpy.array([0.3, 0.7])
    for transform in (jax.grad, lambda g: jax.vmap(jax.grad(g))):
        slope = jax.jit(transform(lambda x: f(x).sum()))
        runs.clear()
        assert close(slope(x), np.cos([0.3, 0.7]))
        assert (len(runs) > 0) == reads_result
    value, slope = jax.jit(jax.value_and_grad(lambda x: f(x).sum()))(x)
    assert close(value, np.sin([0.3, 0.7]).sum())
    assert close(slope, np.cos([0.3, 0.7]))
    with pytest.raises(GradientPreventedError, match="is a host function, so it is differentiated once only"):
        jax.jit(jax.grad(lambda x: jax.grad(lambda x: f(x).sum())(x).sum()))(x)


@beyond_numpy
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2,), (1,)])
def test_rows_of_arguments_of_different_rank_are_not_mixed(ad, shape, size):
    x, t = np.arange(1.0, 1.0 + size * shape[0]).reshape(size, *shape), np.arange(1.0, 1.0 + size)
    want = np.stack([row * factor for row, factor in zip(x, t, strict=True)])
    bad = host_function(lambda x, t: x * t, like=lambda x, t: x, batched=True)
    good = host_function(lambda x, t: x * t[..., None], like=lambda x, t: x, batched=True)
    assert close(ad.vmap(good)(ad.make(x), ad.make(t)), want)
    if size == 3 and shape == (2,):  # an axis of 3 meets one of 2
        with pytest.raises(ValueError, match="could not be broadcast"):
            ad.vmap(bad)(ad.make(x), ad.make(t))
    else:
        assert close(ad.vmap(bad)(ad.make(x), ad.make(t)), want)
    # Of all pairs of rows, in two leading axes.
    pairs = ad.vmap(lambda x: ad.vmap(lambda t: good(x, t))(ad.make(t)))(ad.make(x))
    assert close(pairs, x[:, None] * t[:, None])


@pytest.mark.parametrize("kind", ["csr_matrix", "coo_array"])
@pytest.mark.parametrize("like", [None, lambda matrix, x: np.zeros(matrix.shape[0])])
@beyond_numpy
def test_a_sparse_matrix_of_scipy_comes_as_it_is(ad, like, kind):
    matrix = getattr(pytest.importorskip("scipy.sparse"), kind)(np.arange(6.0).reshape(2, 3))
    assert close(host_function(lambda matrix, x: matrix @ x, like=like)(matrix, ad.make([1.0, 1.0, 1.0])), [3.0, 12.0])
    with pytest.raises(RuleError, match=r"returned a c.*return NumPy arrays"):
        host_function(lambda matrix, _x: matrix)(matrix, ad.make(1.0))
