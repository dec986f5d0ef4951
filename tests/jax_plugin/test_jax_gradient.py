"""value_and_grad on JAX: no work for the frozen, inside and around every transformation."""

import collections
import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec

import adprotocol
from adprotocol import NonDifferentiable, trainable, value_and_grad
from adprotocol.errors import SelectionError

eqx = pytest.importorskip("equinox")

# A network of ten layers, in three kinds of structure.

DEPTH, WIDTH, BATCH = 10, 3, 5
INPUT = jnp.linspace(-1.0, 1.0, BATCH * WIDTH).reshape(BATCH, WIDTH)


@dataclasses.dataclass
class Layer:
    w: object
    b: object


class Module(eqx.Module):
    w: object
    b: object
    name: str = eqx.field(static=True)


def weights(i):
    return jnp.full((WIDTH, WIDTH), 0.1 * (i + 1)), jnp.full(WIDTH, 0.01 * i)


def pairs(layers):
    """Weight and bias of each layer, of whichever kind it is."""
    return [(layer["w"], layer["b"]) if isinstance(layer, dict) else (layer.w, layer.b) for layer in layers]


def propagate(layers, x):
    for w, b in layers:
        x = jnp.tanh(x @ w + b)
    return jnp.sum(x**2)


def forward(layers, x):
    return propagate(pairs(layers), x)


def forward_jitted(layers, x):
    return jax.jit(propagate)(pairs(layers), x)


def network(kind, frozen, how):
    """The layers, with those at the positions `frozen` labelled or left out by a pattern, and the selection."""
    layers = []
    for i in range(DEPTH):
        stays = i in frozen
        w, b = map(NonDifferentiable, weights(i)) if how == "label" and stays else weights(i)
        if kind == "dict":
            layers.append({"w": w, "b": b})
        elif kind == "dataclass":
            layers.append(Layer(w, b))
        else:
            layers.append(Module(w, b, f"layer{i}"))
    return layers, [f"{i}.*" for i in range(DEPTH) if i not in frozen] if how == "pattern" else None


def by_hand(frozen, loss):
    """jax.grad for the other layers, the frozen ones closed over."""
    layers = [dict(zip("wb", weights(i), strict=True)) for i in range(DEPTH)]

    def gradient(x):
        def merged(free):
            following = iter(free)
            return loss([layer if i in frozen else next(following) for i, layer in enumerate(layers)], x)

        return jax.grad(merged)([layer for i, layer in enumerate(layers) if i not in frozen])

    return gradient


def stopping(frozen):
    def stopped(layers, x):
        return propagate([lax.stop_gradient(layer) if i in frozen else layer for i, layer in enumerate(layers)], x)

    return lambda layers, x: jax.jit(stopped)(pairs(layers), x)


def traced(function, *args):
    return jax.make_jaxpr(function)(*args).jaxpr


def inner_jaxprs(equation):
    for parameter in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda p: hasattr(p, "eqns")):
        inner = getattr(parameter, "jaxpr", parameter)
        if hasattr(inner, "eqns"):
            yield inner


def equations(jaxpr):
    """How often each primitive occurs with each type of result, in the jaxpr and all below."""
    found = collections.Counter()
    for equation in jaxpr.eqns:
        # Reading a label says stop_gradient to a tracer, which compiles to nothing.
        if equation.primitive.name != "stop_gradient":
            found[equation.primitive.name, *(v.aval.str_short() for v in equation.outvars)] += 1
        for inner in inner_jaxprs(equation):
            found += equations(inner)
    return found


def residuals(jaxpr):
    """What the forward half of a differentiated jit hands to the backward half: its results but the value."""
    first = next(equation for equation in jaxpr.eqns if equation.primitive.name in ("jit", "pjit"))
    return sorted(v.aval.str_short() for v in first.outvars)


def placed(count, place):
    start = {"front": 0, "middle": (DEPTH - count) // 2, "end": DEPTH - count}[place]
    return range(start, start + count)


PLACES = [(0, "front"), *((count, place) for count in (5, 9) for place in ("front", "middle", "end"))]


@pytest.mark.parametrize("kind", ["dict", "dataclass", "equinox"])
@pytest.mark.parametrize("how", ["pattern", "label"])
def test_frozen_layers_cost_no_equation_and_no_residual(kind, how):
    for count, place in PLACES:
        frozen = placed(count, place)
        layers, where = network(kind, frozen, how)
        for loss in (forward, forward_jitted):
            ours = traced(lambda x, w=where, m=layers, f=loss: pairs(adprotocol.grad(f, where=w)(m, x)), INPUT)
            # Inside of jit a label is what the like of it is by hand, stop_gradient: a weight through
            # which gradients pass is handed on by the forward half, until an outer jit joins the two.
            hand = stopping(frozen) if how == "label" and loss is forward_jitted else loss
            expected = traced(by_hand(frozen, hand), INPUT)
            assert equations(ours) == equations(expected), (count, place)
            if loss is forward_jitted:
                assert residuals(ours) == residuals(expected), (count, place)


def test_residuals_and_equations_grow_with_what_is_trained():
    # The comparison above is worth something only if what it compares tells the cases apart.
    counts = [
        (sum(equations(jaxpr).values()), len(residuals(jaxpr)))
        for count in (0, 5, 9)
        for jaxpr in [traced(by_hand(placed(count, "front"), forward_jitted), INPUT)]
    ]
    assert counts[0] > counts[1] > counts[2]
    assert all(first > second for (_, first), (_, second) in itertools.pairwise(counts))


@pytest.mark.parametrize("remat", [False, True])
def test_scans_over_frozen_layers_save_nothing(remat):
    stacked = tuple(map(jnp.stack, zip(*(weights(i) for i in range(4)), strict=True)))
    model = {"front": stacked, "back": stacked, "head": {"scale": jnp.float32(2.0)}}

    def loss(model, x):
        def step(x, layer):
            return jnp.tanh(x @ layer[0] + layer[1]), None

        if remat:
            step = jax.checkpoint(step)
        x = lax.scan(step, x, model["front"])[0]
        x = lax.scan(step, x, model["back"])[0]
        return jnp.sum(x) * model["head"]["scale"]

    def hand(free, rest, x):
        return jax.grad(lambda free: loss({**rest, **free}, x))(free)

    for names in (["back"], ["front"], ["head"], ["front", "head"]):
        free = {name: model[name] for name in names}
        rest = {name: model[name] for name in model if name not in names}
        ours = functools.partial(adprotocol.grad(loss, where=[f"{name}.*" for name in names]), model)
        assert equations(traced(ours, INPUT)) == equations(traced(lambda x, f=free, r=rest: hand(f, r, x), INPUT))


def test_compiled_program_is_the_one_written_by_hand():
    frozen = placed(9, "middle")
    layers, _ = network("equinox", frozen, "label")

    def compiled(function):
        program = jax.jit(function).lower(INPUT).compile()
        memory = program.memory_analysis()
        return program.cost_analysis()["flops"], memory.temp_size_in_bytes

    assert compiled(lambda x: pairs(adprotocol.grad(forward)(layers, x))) == compiled(by_hand(frozen, forward))


# Inside and around transformations. The model's gradient for w is 2 c x (w x + b), 140 at X; its
# derivative with respect to x is 110, and with respect to b 20.

X = jnp.float32(2.0)


def quadratic(model, x):
    return (model["w"] * x + model["b"]) ** 2 * model["c"]


def model_of(w=2.0, b=3.0, c=5.0):
    """w is trained in the tests; c is a label, and the rest takes no gradient."""
    return {
        "w": jnp.float32(w),
        "b": jnp.asarray(b, "float32"),
        "c": NonDifferentiable(jnp.asarray(c, "float32")),
        "n": 3,
        "s": "text",
        "f": jnp.tanh,
    }


def custom_jvp(f):
    wrapped = jax.custom_jvp(f)
    wrapped.defjvp(lambda primals, tangents: jax.jvp(f, primals, tangents))
    return wrapped


def custom_vjp(f):
    wrapped = jax.custom_vjp(f)
    wrapped.defvjp(lambda x: jax.vjp(f, x), lambda pullback, cotangent: pullback(cotangent))
    return wrapped


def sharded(f):
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("i",))
    spec = PartitionSpec("i")
    mapped = jax.shard_map(lambda xs: f(xs[0])[None], mesh=mesh, in_specs=spec, out_specs=spec)
    return lambda x: mapped(jnp.stack([x, x]))[1]


# Each gives a function of one number that is equal to the one given; others are scenarios of the suite.
WRAPPERS = {
    "scan": lambda f: lambda x: lax.scan(lambda carry, _: (f(carry), None), x, None, length=1)[0],
    "cond": lambda f: lambda x: lax.cond(x > -100.0, f, lambda x: x, x),
    "switch": lambda f: lambda x: lax.switch(0, [f, lambda x: x], x),
    "custom_jvp": custom_jvp,
    "custom_vjp": custom_vjp,
    "shard_map": sharded,
}


def gradient_for_w(x, model=None, where=None):
    return adprotocol.grad(quadratic, where=where)(model or model_of(), x)["w"]


@pytest.mark.parametrize("name", [*WRAPPERS, "pmap"])
def test_inside_a_transformation(name):
    # A pmap of one number for each device.
    wrap = WRAPPERS.get(name, lambda f: lambda x: jax.pmap(f)(jnp.stack([x, x]))[1])
    # Batched models, not only batched data.
    assert wrap(lambda w: gradient_for_w(X, model_of(w)))(jnp.float32(2.0)) == 140.0
    # With respect to what is the same on both devices, shard_map adds their gradients up, here as natively.
    factor = 2.0 if name == "shard_map" else 1.0
    assert wrap(lambda x: jax.grad(lambda w: quadratic({"w": w, "b": 3.0, "c": 5.0}, x))(2.0))(X) == factor * 140.0
    assert wrap(gradient_for_w)(X) == factor * 140.0
    assert wrap(functools.partial(gradient_for_w, where="w"))(X) == factor * 140.0


def test_a_custom_vjp_is_pushed_forward_by_its_transpose():
    cube = jax.custom_vjp(lambda x: x**3)
    cube.defvjp(lambda x: (x**3, x), lambda x, cotangent: (3.0 * cotangent * x**2,))
    assert adprotocol.jvp(cube, (X,), (2.0,)) == (8.0, 24.0)
    cached = lambda x, square: adprotocol.jvp(lambda x: square() * cube(x), (x,), (x,))
    assert jax.jit(lambda x, a: cached(x, functools.cache(lambda: a * a)))(X, 3.0) == (72.0, 216.0)
    assert adprotocol.jacobian(cube)(X) == adprotocol.jacobian(cube, mode="forward")(X) == 12.0


def test_shapes_jaxprs_exports_and_lowerings():
    pytest.importorskip("flatbuffers")
    function = jax.jit(lambda w, x: value_and_grad(quadratic)(model_of() | {"w": w}, x)[1])
    w = jnp.float32(2.0)
    shapes = jax.eval_shape(function, w, X)
    assert (shapes["w"].shape, shapes["w"].dtype, shapes["n"]) == ((), np.float32, None)
    assert [v.aval.str_short() for v in traced(function, w, X).outvars] == ["float32[]", "float32[]"]
    for platform in ("cpu", "cuda", "tpu"):
        assert function.trace(w, X).lower(lowering_platforms=(platform,)).as_text()
        assert jax.export.export(function, platforms=[platform])(w, X).platforms == (platform,)
    stored = jax.export.export(function)(w, X).serialize(vjp_order=1)
    loaded = jax.export.deserialize(stored).call
    assert loaded(w, X)["w"] == 140.0
    assert jax.grad(lambda x: loaded(w, x)["w"])(X) == 110.0


def test_gradients_of_an_exported_function():
    pytest.importorskip("flatbuffers")
    exported = jax.export.export(jax.jit(lambda w, c, x: quadratic({"w": w, "b": 3.0, "c": c}, x)))
    args = (jnp.float32(2.0), NonDifferentiable(jnp.float32(5.0)), X)
    loaded = jax.export.deserialize(exported(*args).serialize(vjp_order=1)).call
    gradient = adprotocol.grad(lambda m: loaded(m["w"], m["c"], X))({"w": args[0], "c": args[1]})
    assert gradient == {"w": 140.0, "c": None}


def test_no_tracer_leaks():
    with jax.checking_leaks():
        assert jax.jit(gradient_for_w)(X) == 140.0
        assert jax.jit(lambda c: gradient_for_w(X, model_of(c=c)))(jnp.float32(5.0)) == 140.0
        nested = adprotocol.grad(lambda m: jax.jit(adprotocol.grad(quadratic, where="w"))(m, X)["w"])
        assert nested({"w": X, "b": 3.0, "c": NonDifferentiable(X)})["b"] == 8.0
        modules = network("equinox", range(9), "label")[0]
        assert eqx.filter_jit(adprotocol.grad(forward))(modules, INPUT)[0].w is None
        assert eqx.filter_jit(adprotocol.grad(forward, where="9.w"))(modules, INPUT)[9].b is None


def test_leaves_without_a_derivative():
    model = {
        "x": X,
        "key": jax.random.key(0),
        "legacy": jax.random.PRNGKey(0),
        "int4": jnp.ones(2, jnp.int4),
        "bool": jnp.array([True]),
        "float0": np.zeros(2, jax.dtypes.float0),
        "numpy_int4": np.ones(2, ml_dtypes.int4),
    }
    expected = jax.random.normal(model["key"]) + jax.random.normal(model["legacy"])
    loss = lambda m: m["x"] * (jax.random.normal(m["key"]) + jax.random.normal(m["legacy"]))
    arrays = {name: leaf for name, leaf in model.items() if name != "float0"}  # which jit does not take
    for function in (adprotocol.grad(loss), jax.jit(adprotocol.grad(loss))):
        gradient = function(arrays)
        assert gradient.pop("x") == pytest.approx(float(expected))
        assert all(leaf is None for leaf in gradient.values())
    for name in set(model) - {"x"}:
        assert trainable(model)[name] is None
        with pytest.raises(SelectionError, match=name):
            trainable(model, where=["x", name])


def test_references_are_read_and_written_but_not_differentiated():
    reference = jax.new_ref(jnp.float32(3.0))

    def loss(m):
        m["count"][...] += 1.0
        return m["count"][...] * m["x"] ** 2

    model = {"x": X, "count": reference}
    assert adprotocol.grad(loss)(model) == {"x": 16.0, "count": None}
    assert jax.jit(adprotocol.grad(loss))(model) == {"x": 20.0, "count": None}
    assert reference[...] == 5.0
    assert trainable(model) == {"x": X, "count": None}
    with pytest.raises(SelectionError, match="count"):
        adprotocol.grad(loss, where="count")(model)


def test_cotangents_are_sharded_and_vary_as_the_outputs_do():
    ones, spread = np.ones(2, np.float32), PartitionSpec("i")

    def pulled(x):
        _, pull = adprotocol.vjp(lambda x: {"sum": (x**2).sum(), "all": x**2}, x)
        same = pull({"sum": 1.0, "all": None})[0], pull({"sum": None, "all": ones[: x.size]})[0]
        return jnp.stack(same)

    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    mapped = jax.shard_map(pulled, mesh=mesh, in_specs=spread, out_specs=PartitionSpec(None, "i"))
    assert np.array_equal(jax.jit(mapped)(jnp.arange(2.0)), [[0.0, 2.0]] * 2)
    with jax.set_mesh(jax.make_mesh((2,), ("i",), axis_types=(AxisType.Explicit,))):
        x = jax.device_put(jnp.arange(2.0), spread)
        for call in (pulled, jax.jit(pulled)):
            assert np.array_equal(call(x), [[0.0, 2.0]] * 2)
        for mode in ("reverse", "forward"):
            assert np.array_equal(adprotocol.jacobian(lambda x: x**2, mode=mode)(x), [[0.0, 0.0], [0.0, 2.0]])
