"""What JAX checks on eight CPU devices: ``python jax_checks.py FILE``, in a process of its own, for XLA counts once.

The failures are written to the file, with the names of all that ran.
"""

import json
import re
import sys
import traceback
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

import adprotocol
from adprotocol import NonDifferentiable, cond, non_differentiable, within_gradient
from adprotocol.errors import UndecidableError

DEVICES = 8
SPREAD = PartitionSpec("i")
X = np.arange(1.0, 1.0 + DEVICES, dtype="float32")
AUTO = jax.make_mesh((DEVICES,), ("i",), axis_types=(AxisType.Auto,))
EXPLICIT = jax.make_mesh((DEVICES,), ("i",), axis_types=(AxisType.Explicit,))


def total(x):
    return jnp.broadcast_to(x.sum(), x.shape)


# Each function of one device's part of x, with what it is of the whole x: in training, and in evaluation.
NEIGHBOUR = [(i, (i + 1) % DEVICES) for i in range(DEVICES)]
FUNCTIONS = {
    "layer": (
        lambda x: cond(within_gradient(x), lambda x: 3 * x * x, lambda x: 5 * x, x),
        lambda x: 3 * x * x,
        lambda x: 5 * x,
    ),
    "psum": (
        lambda x: cond(within_gradient(x), lambda x: lax.psum(x**2, "i") * x, lambda x: 5 * lax.psum(x, "i") * x, x),
        lambda x: total(x**2) * x,
        lambda x: 5 * total(x) * x,
    ),
    "ppermute": (
        lambda x: cond(within_gradient(x), lambda x: lax.ppermute(x**2, "i", NEIGHBOUR), lambda x: 5 * x, x),
        lambda x: jnp.roll(x**2, 1),
        lambda x: 5 * x,
    ),
    "all_gather": (
        lambda x: cond(within_gradient(x), lambda x: lax.all_gather(x**2, "i").sum() * x, lambda x: 5 * x, x),
        lambda x: total(x**2) * x,
        lambda x: 5 * x,
    ),
    "predicate": (  # staged, and batched under vmap
        lambda x: cond(lax.psum(x, "i").sum() > 40, lambda x: lax.psum(x**2, "i") * x, lambda x: 1 / x, x),
        lambda x: jnp.where(total(x) > 40, total(x**2) * x, 1 / x),
        lambda x: jnp.where(total(x) > 40, total(x**2) * x, 1 / x),
    ),
    "constant": (
        lambda x: x * non_differentiable(lax.psum(x, "i")),
        lambda x: x * lax.stop_gradient(total(x)),
        lambda x: x * total(x),
    ),
    "loop": (
        lambda x: lax.scan(lambda c, _: (jax.checkpoint(FUNCTIONS["layer"][0])(c) / 10, None), x, None, length=2)[0],
        lambda x: 3 * (3 * x * x / 10) ** 2 / 10,
        lambda x: 5 * (5 * x / 10) / 10,
    ),
}


def close(found, wanted):
    np.testing.assert_allclose(np.asarray(found), np.asarray(wanted), rtol=1e-4)


def summed(fun):
    return lambda x: fun(x).sum()


def shards(function, *, check_vma=True):
    return jax.shard_map(function, mesh=AUTO, in_specs=SPREAD, out_specs=SPREAD, check_vma=check_vma)


def collectives(fun, *args):
    """Count the collectives of the compiled program."""
    text = jax.jit(fun).lower(*args).compile().as_text()
    return len(re.findall(r"= \S+ (?:all-reduce|all-gather|collective-permute|all-to-all|reduce-scatter)\(", text))


def check_shard_map(name, check_vma):
    function, trained, evaluated = FUNCTIONS[name]
    mapped = shards(function, check_vma=check_vma)
    gradient = jax.grad(summed(trained))(X)
    # Once compiled, it is evaluated, differentiated and evaluated again.
    compiled = jax.jit(mapped)
    close(compiled(X), evaluated(X))
    close(jax.grad(summed(compiled))(X), gradient)
    close(compiled(X), evaluated(X))
    close(jax.jit(adprotocol.grad(summed(mapped)))(X), gradient)
    if name == "layer":
        close(mapped(X), evaluated(X))
        close(jax.grad(summed(mapped))(X), gradient)
    two = jnp.stack([X, X / 10])
    close(jax.jit(jax.vmap(jax.grad(summed(jax.checkpoint(mapped)))))(two), jax.vmap(jax.grad(summed(trained)))(two))
    value, tangent = jax.jit(lambda x: jax.jvp(mapped, (x,), (x,)))(X)
    wanted, wanted_tangent = jax.jvp(trained, (X,), (X,))
    close(value, wanted)
    close(tangent, wanted_tangent)
    second = jax.grad(summed(jax.grad(summed(trained))))(X)
    close(jax.jit(jax.grad(summed(adprotocol.grad(summed(mapped)))))(X), second)


def check_grad_inside_shard_map():
    layer = summed(FUNCTIONS["layer"][0])
    for check_vma in (True, False):
        for grad in (jax.grad, adprotocol.grad):
            mapped = shards(grad(layer), check_vma=check_vma)
            close(jax.jit(mapped)(X), 6 * X)
            close(jax.jit(jax.vmap(mapped))(jnp.stack([X, X]))[1], 6 * X)


def check_predicate_that_differs_over_devices():
    """Right for operands, where ``jax.lax.cond`` itself is wrong; refused for collectives and what is closed over."""
    mapped = lambda f: jax.shard_map(f, mesh=AUTO, in_specs=(PartitionSpec(), SPREAD), out_specs=SPREAD)
    operand = mapped(lambda w, x: cond(x.sum() > 4, lambda w, x: w * x, lambda w, x: x / w, w, x))
    wanted = lambda w, x: jnp.where(x > 4, w * x, x / w)
    close(jax.jit(operand)(2.0, X), wanted(2.0, X))
    for order in (lambda f: jax.grad(f, (0, 1)), lambda f: jax.grad(jax.grad(f), (0, 1))):
        found = jax.jit(order(lambda w, x: operand(w, x).sum()))(2.0, X)
        for gradient, reference in zip(found, order(lambda w, x: wanted(w, x).sum())(2.0, X), strict=True):
            close(gradient, reference)
    by_row = jax.shard_map(
        lambda w, x: jax.vmap(lambda r: cond(r.sum() > 4, lambda w, r: w * r, lambda w, r: r / w, w, r))(x),
        mesh=AUTO,
        in_specs=(PartitionSpec(), PartitionSpec(None, "i")),
        out_specs=PartitionSpec(None, "i"),
    )
    rows = jnp.stack([X, X / 2])
    close(jax.jit(jax.grad(lambda w: by_row(w, rows).sum()))(2.0), jax.grad(lambda w: wanted(w, rows).sum())(2.0))
    # An answer joined with such a predicate keeps what it says of the branch for False.
    joined = mapped(
        lambda w, x: cond(within_gradient(x) | (x.sum() > 4), lambda w, x: w * x, lambda w, x: while_loop(x) / w, w, x)
    )
    close(jax.jit(joined)(2.0, X), wanted(2.0, X))
    close(jax.grad(jax.jit(lambda x: joined(2.0, x).sum()))(X), [2.0] * DEVICES)
    # Closed over: a value and a forward derivative have no sum in them.
    closed = mapped(lambda w, x: cond(x.sum() > 4, lambda x: w * x, lambda x: x / w, x))
    close(jax.jit(closed)(2.0, X), wanted(2.0, X))
    close(
        jax.jvp(jax.jit(lambda w: closed(w, X)), (2.0,), (1.0,))[1],
        jax.jvp(lambda w: wanted(w, X), (2.0,), (1.0,))[1],
    )
    close(jax.jit(jax.grad(lambda x: closed(2.0, x).sum()))(X), jnp.where(X > 4, 2.0, 0.5))
    refused(lambda: jax.jit(jax.grad(lambda w: closed(w, X).sum()))(2.0), "closes over", "as an operand")
    for name in ("psum", "all_gather"):
        along = getattr(lax, name)
        differs = mapped(
            lambda w, x, along=along: cond(x.sum() > 4, lambda x: along(x, "i").sum() + w * x, lambda x: x, x)
        )
        refused(lambda differs=differs: jax.jit(differs)(2.0, X), name, "out of the branches")
        nested = mapped(
            lambda w, x, along=along: cond(x.sum() > 4, jax.jit(lambda x: along(x, "i").sum() + x), lambda x: x, x)
        )
        refused(lambda nested=nested: jax.jit(nested)(2.0, X), name)


def while_loop(x):
    return lax.while_loop(lambda carry: carry[0] < 3, lambda carry: (carry[0] + 1, carry[1]), (0, x))[1]


def refused(function, *words):
    try:
        result = function()
    except UndecidableError as raised:
        message = str(raised)
        assert all(word in message for word in words), message
    else:
        msg = f"not refused: {result}"
        raise AssertionError(msg)


def check_pmap():
    for name in ("layer", "psum", "predicate"):
        function, trained, evaluated = FUNCTIONS[name]
        mapped = jax.pmap(function, axis_name="i")
        close(mapped(X), evaluated(X))
        close(jax.grad(summed(mapped))(X), jax.grad(summed(trained))(X))
    close(jax.pmap(adprotocol.grad(FUNCTIONS["layer"][0]))(X), 6 * X)


def check_sharded_jit(mesh):
    spread = NamedSharding(mesh, SPREAD)
    layer = FUNCTIONS["layer"][0]
    with jax.set_mesh(mesh):
        x = jax.device_put(X, spread)
        for fun, trained, evaluated in (FUNCTIONS["layer"], FUNCTIONS["loop"]):
            compiled = jax.jit(fun, in_shardings=spread, out_shardings=spread)
            close(compiled(x), evaluated(X))
            gradient = jax.jit(jax.grad(summed(compiled)))(x)
            close(gradient, jax.grad(summed(trained))(X))
            assert gradient.sharding == spread
            close(compiled(x), evaluated(X))
        gradient = adprotocol.grad(summed(layer))(x)
        close(gradient, 6 * X)
        assert gradient.sharding == spread
        close(jax.jit(lambda x: jax.jvp(layer, (x,), (x,))[1])(x), 6 * X * X)
        close(jax.jit(jax.vmap(jax.grad(summed(layer))))(jax.device_put(np.stack([X] * 8), spread)), [6 * X] * 8)
        staged = lambda x: cond(x.sum() > 0, lambda x: x * x, jnp.zeros_like, x).sum()
        close(jax.jit(jax.grad(staged))(x), 2 * X)
        label = jax.jit(jax.grad(lambda m: (m["a"] * m["b"]).sum()))({"a": x, "b": NonDifferentiable(x)})
        close(label["a"], X)
        assert label["a"].sharding == spread
        close(jax.jit(jax.grad(lambda x: (x * non_differentiable(x)).sum()))(x), X)
        if mesh is AUTO:
            constrain = lambda x: lax.with_sharding_constraint(layer(x), spread)
            close(jax.jit(constrain)(X), 5 * X)
            close(jax.jit(jax.grad(summed(constrain)))(X), 6 * X)
        check_frozen_part(mesh)


def check_frozen_part(mesh):
    """A frozen part is what a closed-over one is, for the compiler too."""
    spread = NamedSharding(mesh, SPREAD)
    whole = NamedSharding(mesh, PartitionSpec())
    batch = jax.device_put(np.ones((DEVICES, 3), "float32"), spread)
    # Data parallel: each parameter that takes a gradient costs an all-reduce.
    model = jax.device_put({"a": np.ones((3, 3), "float32"), "b": np.ones(3, "float32")}, whole)

    def loss(model, x):
        return ((x @ model["a"]) ** 2 * model["b"]).sum()

    def by_hand(model, x):
        return jax.grad(lambda b: loss({"a": model["a"], "b": b}, x))(model["b"])

    ours = lambda model, x: adprotocol.grad(loss, where="b")(model, x)["b"]
    assert collectives(ours, model, batch) == collectives(by_hand, model, batch) > 0
    assert collectives(adprotocol.grad(loss), model, batch) == collectives(jax.grad(loss), model, batch)
    value, gradient = jax.jit(adprotocol.value_and_grad(loss, where="b"))(model, batch)
    close(value, 8 * 27)
    assert gradient["a"] is None
    close(gradient["b"], [72.0] * 3)
    assert gradient["b"].sharding.is_equivalent_to(whole, 1)
    # A forward pass that needs none: nothing is communicated for the shard that is frozen.
    alone = jax.device_put({"a": X, "b": X}, spread)
    apart = adprotocol.grad(lambda m: (m["a"] * m["b"]).sum(), where="b")
    assert collectives(lambda m: apart(m)["b"], alone) == 0
    assert jax.jit(apart)(alone)["b"].sharding == spread
    # Asking and labelling are no operations of the compiled program.
    asking = lambda x: cond(within_gradient(x), lambda x: x.sum() * x, lambda x: 5 * non_differentiable(x), x)
    assert collectives(asking, alone["a"]) == 0


CHECKS = {
    **{
        f"shard_map, {name}, check_vma={vma}": lambda name=name, vma=vma: check_shard_map(name, vma)
        for name in FUNCTIONS
        for vma in ((True, False) if name in ("layer", "psum", "predicate") else (True,))
    },
    "grad inside of shard_map": check_grad_inside_shard_map,
    "predicate that differs": check_predicate_that_differs_over_devices,
    "pmap": check_pmap,
    "jit, automatic": lambda: check_sharded_jit(AUTO),
    "jit, explicit": lambda: check_sharded_jit(EXPLICIT),
}


def main(file):
    warnings.simplefilter("error")
    assert jax.device_count() == DEVICES
    failures = {}
    for name, check in CHECKS.items():
        try:
            check()
        except Exception:  # noqa: BLE001  (reported by the test)
            failures[name] = traceback.format_exc()
    Path(file).write_text(json.dumps([list(CHECKS), failures]), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
