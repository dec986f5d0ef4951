"""Derivative rules under JAX's transformations and compilers."""

import contextlib
import functools
from types import SimpleNamespace

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
import pytest
from closeness import close
from jax.experimental import io_callback
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from adprotocol import custom_derivative, host_function
from adprotocol.errors import GradientPreventedError, RuleError

HALF = 0.5


def product(*, vjp=True, jvp=True):
    """sin(x) y, whose derivative by x is half of what it should be."""

    @custom_derivative
    def f(x, y):
        return jnp.sin(x) * y

    if vjp:
        f.defvjp(lambda ct, returned, x, y: (HALF * ct * jnp.cos(x) * y, (ct * jnp.sin(x)).sum()))
    if jvp:
        f.defjvp(lambda ts, returned, x, y: HALF * ts[0] * jnp.cos(x) * y + ts[1] * jnp.sin(x))
    return f


@jax.custom_jvp
def _reference(x, y):
    return jnp.sin(x) * y


@_reference.defjvp
def _(primals, tangents):
    x, y = primals
    return _reference(x, y), HALF * tangents[0] * jnp.cos(x) * y + tangents[1] * jnp.sin(x)


either_rule = pytest.mark.parametrize(
    "rules", [{"jvp": False}, {"vjp": False}, {}], ids=["vjp alone", "jvp alone", "both"]
)


def scanned(f):
    return lambda x: jax.lax.scan(lambda carry, _: (carry, f(x)), x, None, length=2)[1].sum(0)


def around_custom_vjp(f):
    g = jax.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: jax.vjp(f, x)[1](ct))
    return g


TRANSFORMS = {
    "grad": lambda f: jax.grad(lambda x: f(x).sum()),
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1],
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](jnp.ones_like(x)),
    "jit": jax.jit,
    "vmap": lambda f: lambda x: jax.vmap(f)(jnp.stack([x, 2.0 * x])).sum(0),
    "vmap of a constant": lambda f: lambda x: jax.vmap(lambda z: f(x) * z)(jnp.arange(3.0)).sum(0),
    "checkpoint": jax.checkpoint,
    "scan": scanned,
    "cond": lambda f: lambda x: jax.lax.cond((x > -9.0).all(), f, lambda x: x, x),
    "while": lambda f: lambda x: jax.lax.fori_loop(0, 1, lambda _, carry: f(carry), x),
    "custom_vjp": around_custom_vjp,
}


# Pairs are scenarios of the suite, but for these.
NESTED = [
    ("jvp", "while"), ("grad", "cond"), ("grad", "custom_vjp"), ("linearize", "grad"), ("grad", "linearize"),
    ("jvp", "vmap of a constant"), ("grad", "scan", "grad"), ("grad", "jit", "checkpoint", "scan"),
    ("vmap", "grad", "jit", "grad"), ("jvp", "vmap", "jit", "grad"),
]  # fmt: skip


@either_rule
@pytest.mark.parametrize("names", NESTED, ids=" of ".join)
def test_a_nest_of_transformations_gives_what_jax_gives_for_a_rule_of_its_own(names, rules):
    f, reference = (functools.partial(_by_x, fun) for fun in (product(**rules), _reference))
    for name in reversed(names):
        f, reference = TRANSFORMS[name](f), TRANSFORMS[name](reference)
    x = jnp.array([0.3, 0.7])
    assert close(f(x), reference(x))


def _by_x(fun, x):
    return fun(x, 2.0)


@pytest.mark.parametrize(
    "program", [lambda f: f, jax.grad, lambda f: jax.grad(jax.jit(f)), lambda f: jax.vmap(jax.grad(f))]
)
def test_the_compiled_program_is_that_of_custom_vjp(program):
    raw = jax.custom_vjp(jnp.sin)
    raw.defvjp(lambda x: (jnp.sin(x), x), lambda x, ct: (HALF * ct * jnp.cos(x),))
    ours = custom_derivative(jnp.sin)
    ours.defvjp(lambda ct, returned, x: (HALF * ct * jnp.cos(x),))

    def operations(f):
        x = jnp.ones(4) if "vmap" in program.__code__.co_names else jnp.float32(1.0)
        lowered = jax.jit(program(f)).lower(x)
        return [
            sum(" = " in line for line in text.splitlines())
            for text in (lowered.as_text(), lowered.compile().as_text())
        ]

    assert operations(ours) == operations(raw)


def test_an_exported_program_has_the_derivative_of_the_rule():
    pytest.importorskip("flatbuffers")
    from jax import export

    f = product()
    x = jnp.array([0.3, 0.7])
    stored = export.export(jax.jit(lambda x: f(x, 2.0)))(x).serialize(vjp_order=1)
    found = jax.grad(lambda x: export.deserialize(stored).call(x).sum())(x)
    assert close(found, HALF * jnp.cos(x) * 2.0)


@either_rule
def test_devices_each_compute_their_part(rules):
    f = product(**rules)
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    x, y = jnp.arange(4.0), jnp.float32(2.0)

    def loss(fun):
        rows, whole = PartitionSpec("i"), PartitionSpec()
        mapped = jax.shard_map(fun, mesh=mesh, in_specs=(rows, whole), out_specs=rows)
        return lambda x, y: (mapped(x, y) ** 2).sum()

    got = jax.jit(jax.grad(loss(f), (0, 1)))(x, y)
    want = jax.grad(lambda x, y: (_reference(x, y) ** 2).sum(), (0, 1))(x, y)
    assert close(got[0], want[0])
    assert close(got[1], want[1])
    assert close(jax.jvp(jax.jit(loss(f)), (x, y), (x, y))[1], (x * want[0]).sum() + y * want[1])
    assert close(jax.pmap(jax.grad(lambda x: f(x, 2.0)))(x[:2]), HALF * jnp.cos(x[:2]) * 2.0)
    assert close(jax.grad(lambda x: jax.pmap(lambda x: f(x, 2.0))(x).sum())(x[:2]), HALF * jnp.cos(x[:2]) * 2.0)


@either_rule
def test_rows_with_equal_arguments_are_told_apart_by_the_axis_of_vmap(rules):
    f = custom_derivative(lambda x: x * jax.lax.axis_index("rows"))
    if rules.get("vjp", True):
        f.defvjp(lambda ct, returned, x: (HALF * ct * jax.lax.axis_index("rows"),))
    if rules.get("jvp", True):
        f.defjvp(lambda ts, returned, x: HALF * ts[0] * jax.lax.axis_index("rows"))
    y = jnp.array([1.0, 3.0, 5.0])
    for wrap in (lambda g: g, jax.jit):
        rows = jax.vmap(wrap(lambda y, x: f(x) * y), (0, None), axis_name="rows")
        assert close(rows(y, 2.0), [0.0, 6.0, 20.0])
        assert close(jax.grad(lambda x, rows=rows: rows(y, x).sum())(2.0), HALF * 13.0)
        assert close(jax.jvp(lambda x, rows=rows: rows(y, x), (2.0,), (1.0,))[1], [0.0, HALF * 3.0, HALF * 10.0])


def test_a_rule_may_close_over_a_tracer_as_long_as_its_trace():
    def loss(x, z):
        f = custom_derivative(lambda x: 2.0 * x)
        f.defvjp(lambda ct, returned, x: (7.0 * ct * z,))
        return f(x)

    x, z = jnp.float32(2.0), jnp.float32(3.0)
    rows = jnp.ones(2), jnp.array([3.0, 4.0])
    scanned = lambda x, zs: jax.lax.scan(lambda carry, z: (loss(carry, z), None), x, zs)[0]
    assert close(jax.jit(jax.grad(loss))(x, z), 21.0)
    assert close(jax.vmap(jax.grad(loss))(*rows), [21.0, 28.0])
    assert close(jax.jit(jax.vmap(jax.grad(loss)))(*rows), [21.0, 28.0])
    assert close(jax.jit(lambda x, z: jax.jit(lambda x: jax.grad(loss)(x, z))(x))(x, z), 21.0)
    assert close(jax.lax.scan(lambda carry, z: (carry, jax.grad(loss)(x, z)), x, rows[1])[1], [21.0, 28.0])
    over = (
        lambda: jax.grad(jax.jit(loss))(x, z),
        lambda: jax.jit(jax.grad(jax.jit(loss)))(x, z),
        lambda: jax.grad(scanned)(x, rows[1]),
        lambda: jax.jit(lambda x, z: jax.jvp(lambda x: loss(x, z), (x,), (x,)))(x, z),
        lambda: jax.grad(lambda x: jax.vmap(loss)(x, rows[1]).sum())(rows[0]),
    )
    for call in over:
        with pytest.raises(RuleError, match="when that trace is over"):
            call()


def test_a_constant_of_a_program_is_not_differentiated_later():
    scale = jnp.float32(3.0)
    f = custom_derivative(lambda x: x * scale)
    f.defvjp(lambda ct, returned, x: (7.0 * ct,))
    program = jax.make_jaxpr(f)(2.0)
    assert len(program.consts) == 1
    run = jax.extend.core.jaxpr_as_fun
    closed = lambda x, scale: run(jax.extend.core.ClosedJaxpr(program.jaxpr, [scale]))(x)[0]
    assert close(jax.grad(closed)(2.0, scale), 7.0)
    with pytest.raises(GradientPreventedError, match="no argument of it"):
        jax.grad(closed, 1)(2.0, scale)


class Factorisation:
    def __init__(self, value):
        self.value = value


def test_residuals_are_structures_of_arrays_where_jax_traces():
    f = custom_derivative(lambda x: (x * 2.0, Factorisation(3.0)), has_residuals=True)
    f.defvjp(lambda cotangent, returned, x: (10.0 * cotangent * returned[1].value,))
    for wrap in (jax.jit, lambda f: lambda x: jax.vmap(f)(x[None])[0]):
        with pytest.raises(RuleError, match="Factorisation"):
            jax.grad(wrap(f))(jnp.float32(2.0))


def test_arguments_are_not_kept_where_the_rule_does_without():
    @custom_derivative(has_residuals=True)
    def f(x, big):
        return x * big.sum(), big.sum()

    f.defvjp(lambda cotangent, returned: (cotangent * returned[1], None))
    big = jnp.ones(10_000)
    pulled = jax.eval_shape(lambda x, big: jax.vjp(jax.jit(f), x, big)[1], jnp.float32(2.0), big)
    assert all(leaf.size < 10 for leaf in jax.tree_util.tree_leaves(pulled))
    _, pull = jax.vjp(f, jnp.float32(2.0), big)
    assert all(leaf.size < 10 for leaf in jax.tree_util.tree_leaves(pull) if hasattr(leaf, "size"))
    assert close(pull(jnp.float32(1.0))[0], 10_000.0)


def test_what_numpy_cannot_hold_is_told():
    f = host_function(lambda x: x, like=lambda x: x)
    for wrap in (lambda g: g, jax.jit):
        with pytest.raises(RuleError, match=r"of shape \(\) and dtype key<fry>, for which NumPy has no array"):
            wrap(f)(jax.random.key(0))


def test_a_host_function_needs_a_shape_in_numbers():
    pytest.importorskip("flatbuffers")
    from jax import export

    shape = jax.ShapeDtypeStruct(export.symbolic_shape("n"), jnp.float32)
    with pytest.raises(RuleError, match=r"of shape \(n,\) and dtype float32, for which NumPy has no array"):
        export.export(jax.jit(host_function(lambda x: x, like=lambda x: x)))(shape)


@pytest.mark.parametrize("wrap", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_what_a_host_function_returns_differs_from_device_to_device_as_its_arguments_do(wrap):
    f = host_function(lambda x: x**2, like=lambda x: x)
    mesh = Mesh(np.array(jax.devices()[:2]), ("i",))
    spec = PartitionSpec("i")
    rows = jax.shard_map(lambda x, w: w * f(x), mesh=mesh, in_specs=(spec, PartitionSpec()), out_specs=spec)
    x = jnp.arange(4.0)
    assert close(wrap(jax.grad(lambda w: rows(x, w).sum()))(2.0), 14.0)
    for rules in ({"jvp": False}, {"vjp": False}, {}):
        g = custom_derivative(f)
        if rules.get("vjp", True):
            g.defvjp(host_function(lambda ct, returned, x: (2.0 * ct * x,)))
        if rules.get("jvp", True):
            g.defjvp(lambda ts, returned, x: 2.0 * ts[0] * x)
        total = jax.shard_map(
            lambda x, g=g: jax.lax.psum(g(x).sum(), "i"), mesh=mesh, in_specs=spec, out_specs=PartitionSpec()
        )
        assert close(wrap(jax.grad(total))(x), 2.0 * x)


@either_rule
def test_types_that_tell_how_an_array_is_sharded(rules):
    f = product(**rules)
    mesh, spec = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Explicit,)), PartitionSpec("i")
    with jax.set_mesh(mesh):
        x, tangent = (jax.device_put(jnp.array(values), spec) for values in ([0.3, 0.7], [1.0, 2.0]))
        slope = HALF * np.cos([0.3, 0.7]) * 2.0
        for g in (f, jax.jit(f)):
            gradient = jax.grad(lambda x, y, g=g: g(x, y).sum(), (0, 1))(x, 2.0)
            assert close(gradient[0], slope)
            assert gradient[0].sharding.spec == spec
            assert close(gradient[1], np.sin(x).sum())
            assert close(jax.jvp(lambda x, g=g: g(x, 2.0), (x,), (tangent,))[1], slope * np.array([1.0, 2.0]))
            assert close(jax.linearize(lambda x, g=g: g(x, 2.0), x)[1](tangent), slope * np.array([1.0, 2.0]))
            bent = jax.jvp(jax.grad(lambda x, g=g: g(x, 2.0).sum()), (x,), (tangent,))[1]
            assert bent.sharding.spec == spec


@pytest.mark.parametrize(
    "gradient", [lambda ct: None, lambda ct: jnp.full(2, 3.0), lambda ct: np.full(2, 3.0)], ids=["None", "JAX", "NumPy"]
)
def test_a_gradient_gets_the_sharding_of_its_argument(gradient):
    f = custom_derivative(lambda x, y: x * y)
    f.defvjp(lambda ct, returned, x, y: (gradient(ct), ct * x))
    mesh, spec = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Explicit,)), PartitionSpec("i")
    with jax.set_mesh(mesh):
        x = jax.device_put(jnp.array([1.0, 2.0]), spec)
        want = 0.0 if gradient(None) is None else 3.0
        for wrap in (lambda f: f, jax.jit):
            assert close(wrap(jax.grad(lambda x: f(2.0 * x, x).sum()))(x), 2.0 * want + 2.0 * np.array([1.0, 2.0]))


def test_eager_code_calls_a_host_function_without_a_callback(monkeypatch):
    monkeypatch.setattr(jax, "pure_callback", None)
    x = jnp.float32(0.3)
    ran = []
    f = custom_derivative(host_function(lambda x: ran.append(1) or np.sin(x), like=lambda x: x))
    f.defvjp(lambda ct, returned, x: (ct * jnp.cos(x),))
    assert close(jax.grad(f)(x), jnp.cos(x))
    assert ran == [1]


@pytest.mark.parametrize("batched", [True, False])
def test_eager_vmap_calls_a_host_function_without_a_callback(monkeypatch, batched):
    monkeypatch.setattr(jax, "pure_callback", None)
    shapes = []
    f = host_function(
        lambda x, y, n: shapes.append(np.shape(x)) or n * x * y[..., :1], like=lambda x, y, n: x, batched=batched
    )
    g = custom_derivative(jnp.sin)
    g.defvjp(host_function(lambda ct, returned, x: (ct * np.cos(x),), batched=batched))
    x, y = jnp.arange(6.0).reshape(2, 3), jnp.array([2.0, 5.0])
    assert close(jax.vmap(lambda x: f(x, y, 3), in_axes=1)(x), 6.0 * x.T)
    assert shapes == ([(3, 2)] if batched else 3 * [(2,)])
    assert close(jax.vmap(jax.vmap(lambda x, y: f(x[None], y[None], 1)[0]), in_axes=(0, None))(x, x[1]), x * x[1])
    assert close(jax.vmap(jax.grad(g))(x[0]), jnp.cos(x[0]))
    assert jax.vmap(lambda x: f(x, y, 3))(jnp.zeros((0, 4))).shape == (0, 4)


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_batched_host_function_that_loses_leading_axes_is_refused(wrap):
    total = host_function(lambda x: x.sum(), like=lambda x: x[0], batched=True)
    with pytest.raises((RuleError, jax.errors.JaxRuntimeError), match=r"of shape \(\), not \(2,\), under jax.vmap"):
        jax.block_until_ready(wrap(jax.vmap(total))(jnp.ones((2, 3))))


def test_the_result_of_a_host_function_is_committed_as_its_arguments_are():
    f = host_function(lambda x, y: x + y, like=lambda x, y: x)
    free, (first, second) = jnp.ones(4), jax.devices()[:2]
    fixed = jax.device_put(free, second)
    for g in (f, jax.vmap(f)):
        assert not g(free, free).committed
        assert g(free, fixed).devices() == (g(free, free) + fixed).devices() == {second}
        with pytest.raises(ValueError, match="incompatible devices"):
            g(fixed, free) + jax.device_put(free, first)


@pytest.mark.parametrize("in_mesh", [True, False])
@pytest.mark.parametrize("spec", [PartitionSpec("i"), PartitionSpec()], ids=str)
@pytest.mark.parametrize("rule", [lambda t, y, x: t[0] * jnp.cos(x), host_function(lambda t, y, x: t[0] * np.cos(x))])
def test_a_host_function_under_explicit_sharding(rule, spec, in_mesh):
    f = custom_derivative(host_function(lambda x: 1.0 * np.sin(x), like=lambda x: x))
    f.defjvp(rule)
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Explicit,))
    x = jax.device_put(jnp.array([0.3, 0.7]), NamedSharding(mesh, spec))
    with jax.set_mesh(mesh) if in_mesh else contextlib.nullcontext():
        assert f(x).devices() == x.devices()
        assert close(f(x) + x, np.sin([0.3, 0.7]) + x)
        for wrap in (lambda g: g, jax.jit):
            assert close(wrap(lambda x: jax.jvp(f, (x,), (x,))[1])(x), x * np.cos([0.3, 0.7]))
        if not isinstance(rule, type(host_function(len))):
            assert close(jax.jit(jax.grad(lambda x: f(x).sum()))(x), np.cos([0.3, 0.7]))


_MATRIX = jnp.array([[4.0, 1.0], [1.5, 3.0]])


def linear(kind):
    """The product with a matrix, as a function with a rule."""
    if kind == "residuals":
        f = custom_derivative(lambda v: (_MATRIX @ v, _MATRIX.T), has_residuals=True)
        f.defvjp(lambda ct, returned, v: (returned[1] @ ct,))
        return f
    f = custom_derivative(lambda a, v: a @ v)
    if kind == "vjp":
        f.defvjp(lambda ct, y, a, v: (jnp.outer(ct, v), a.T @ ct))
    else:
        f.defjvp(lambda ts, y, a, v: ts[0] @ v + a @ ts[1])
    return lambda v: f(_MATRIX, v)


@pytest.mark.parametrize("kind", ["vjp", "jvp", "residuals"])
def test_a_linear_function_with_a_rule_is_transposed(kind):
    f, v, ct = linear(kind), jnp.ones(2), jnp.array([1.0, 2.0])
    want = _MATRIX.T @ ct
    for g in (f, jax.jit(f)):
        transposed = jax.linear_transpose(g, v)
        assert close(transposed(ct)[0], want)
        assert close(jax.jit(transposed)(ct)[0], want)
        assert close(jax.vmap(transposed)(jnp.stack([ct, ct]))[0], [want, want])
        assert close(jax.jvp(lambda ct, t=transposed: t(ct)[0], (ct,), (ct,))[1], want)
    rows = jax.linear_transpose(jax.vmap(f), jnp.stack([v, v]))
    assert close(rows(jnp.stack([ct, ct]))[0], [want, want])
    inverse = jnp.linalg.inv(_MATRIX)

    def solve(b):
        return jax.lax.custom_linear_solve(f, b, lambda _, b: inverse @ b, lambda _, b: inverse.T @ b)

    for wrap in (lambda g: g, jax.jit):
        assert close(wrap(jax.grad(lambda b: (solve(b) ** 2).sum()))(ct), 2.0 * inverse.T @ inverse @ ct)
        assert close(wrap(lambda b: jax.jvp(solve, (b,), (b,))[1])(ct), inverse @ ct)


@either_rule
def test_a_function_whose_rule_depends_on_the_point_is_not_transposed(rules):
    with pytest.raises(RuleError, match=r"jax.linear_transpose reaches .*f, whose derivative rule uses the arguments"):
        jax.linear_transpose(lambda x: product(**rules)(x, 2.0), jnp.float32(0.3))(jnp.float32(1.0))


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("is_print", [True, False], ids=["debug.callback", "io_callback"])
def test_an_effect_in_a_jvp_rule(is_print, ordered):
    seen = []
    f = custom_derivative(jnp.sin)

    @f.defjvp
    def _(tangents, y, x):
        if is_print:
            jax.debug.callback(lambda t: seen.append(float(t)), tangents[0], ordered=ordered)
        else:
            io_callback(lambda t: seen.append(float(t)), None, tangents[0], ordered=ordered)
        return 2.0 * tangents[0]

    def loop(x):
        return jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]

    one = jnp.float32(1.0)
    for g, want in ((f, [1.0]), (loop, [1.0, 2.0])):
        for wrap in (lambda h: h, jax.jit):
            seen.clear()
            assert close(wrap(lambda t, g=g: jax.jvp(g, (one,), (t,))[1])(one), 2.0 * want[-1])
            jax.effects_barrier()
            assert sorted(seen) == want


@pytest.mark.parametrize("like", [None, lambda x: np.zeros(2, np.int64)])
def test_integers_of_a_host_function_that_32_bits_cannot_hold_are_refused(like):
    x = jnp.zeros(2)
    large = host_function(lambda x: np.array([1, 2**40]), like=like)
    small = host_function(lambda x: np.array([1, -(2**31)]), like=like)
    with jax.enable_x64(False):
        assert small(x).tolist() == [1, -(2**31)]
        with pytest.raises(RuleError, match=r'int64 that int32 cannot hold; enable 64 bits, .*"jax_enable_x64", True'):
            large(x)
        if like is not None:
            with pytest.raises(jax.errors.JaxRuntimeError, match="int64 that int32 cannot hold"):
                jax.block_until_ready(jax.jit(large)(x))
    with jax.enable_x64(True):
        assert large(x).tolist() == [1, 2**40]


@pytest.mark.parametrize("transform", [jax.jit, lambda f: jax.grad(jax.jit(f)), jax.vmap])
@pytest.mark.parametrize("is_rule", [False, True])
def test_a_host_function_that_closes_over_a_traced_value(is_rule, transform):
    def run(x, n):
        times = host_function(lambda y, *_: (np.asarray(y) * np.asarray(n),), like=lambda y, *_: (y,))
        if not is_rule:
            return x * times(n)[0]
        f = custom_derivative(lambda x: 2.0 * x)
        f.defvjp(times)
        return jax.vjp(f, x)[1](jnp.ones_like(x))[0]

    x, n = (jnp.ones(2), jnp.full(2, 3)) if transform is jax.vmap else (1.0, 3)
    with pytest.raises(RuleError, match=r"a host function uses a value that JAX traces.*pass the value as an argument"):
        transform(run)(x, n)


def test_what_a_host_function_may_close_over():
    size = host_function(lambda y, k: np.asarray(y)[:k], like=lambda y, k: y[:k])
    assert jax.jit(lambda x, n: size(x, len(n)).sum())(jnp.ones(3), jnp.ones(2)) == 2.0

    def by_type(x, n):
        return host_function(lambda y: np.asarray(y) * 2.0, like=lambda _: n)(x)

    assert jax.jit(by_type)(jnp.float32(1.0), jnp.float32(3.0)) == 2.0
    # An eager call has numbers, also in an object; a staged one tells the remedy when it runs.
    scaled = lambda x, h: host_function(lambda y: np.asarray(y) * np.asarray(h.value), like=lambda y: y)(x)
    assert scaled(jnp.ones(2), SimpleNamespace(value=jnp.float32(3.0))).tolist() == [3.0, 3.0]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"RuleError: .*JAX traces.*pass the value as an argument"):
        jax.block_until_ready(jax.jit(lambda x, n: scaled(x, SimpleNamespace(value=n)))(jnp.ones(2), 3.0))


@pytest.mark.parametrize("returns", [lambda ct, n: ct * n, lambda ct, n: n])
def test_a_rule_that_finds_a_traced_value_in_an_object(returns):
    def run(x, n):
        held = SimpleNamespace(value=n)
        f = custom_derivative(lambda x: x * held.value)
        f.defvjp(lambda ct, y, x: (returns(ct, held.value),))
        return f(x)

    assert jax.jit(jax.grad(run))(2.0, 3.0) == jax.grad(run)(2.0, 3.0) == 3.0
    with pytest.raises(RuleError, match="when that trace is over; pass the value as a positional argument"):
        jax.grad(jax.jit(run))(2.0, 3.0)
