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
import pytest
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
    """``jax.lax.cond`` itself waits forever for collectives, and is wrong for what is equal on all devices."""

    def by_device(x):
        return cond(x.sum() > 4, lambda x: 2.0 * x, lambda x: x, x)

    for function in (shards(by_device), jax.jit(shards(by_device)), jax.jit(jax.grad(summed(shards(by_device))))):
        with pytest.raises(UndecidableError, match="differs along 'i'"):
            function(X)


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
        logs = lambda x: adprotocol.where(x > 4, jnp.log, jnp.negative, jnp.outer(jnp.ones(2), x))
        close(jax.jit(jax.grad(summed(logs)))(x), 2 * jnp.where(X > 4, 1 / X, -1))
        if mesh is AUTO:
            constrain = lambda x: lax.with_sharding_constraint(layer(x), spread)
            close(jax.jit(constrain)(X), 5 * X)
            close(jax.jit(jax.grad(summed(constrain)))(X), 6 * X)
        check_frozen_part(mesh)


def check_frozen_part(mesh):
    """A frozen part is what a closed-over one is, for the compiler too."""
    spread, whole = (NamedSharding(mesh, spec) for spec in (SPREAD, PartitionSpec()))
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
        for vma in ((True, False) if name == "predicate" else (True,))
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
