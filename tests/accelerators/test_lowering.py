"""Programs lowered for GPUs and TPUs, and compiled: what they contain beside the same programs written by hand.

JAX lowers to StableHLO for platforms that are not there. Where the answer is known
while JAX traces, nothing of the question is in the lowered program. Where it is
staged, the lowered program has a branch on a constant, as if the user had written
``jax.lax.cond(True, ...)``; the program is the same for every platform, and XLA, here
on the CPU, leaves the chosen branch alone.
"""

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, PartitionSpec

from adprotocol import NonDifferentiable, cond, non_differentiable, within_gradient

X = np.linspace(0.2, 0.8, 4, dtype=np.float32)


def text_for(platform, function, *args):
    return jax.jit(function).trace(*args).lower(lowering_platforms=(platform,)).as_text()


def operations(function, *args):
    """Count the operations of the lowered program by name; it is the same for a GPU and a TPU."""
    text, other = (text_for(platform, function, *args) for platform in ("tpu", "cuda"))
    assert text == other
    return Counter(re.findall(r"\b(?:stablehlo|chlo|sdy)\.\w+", text))


def compiled(function, *args):
    return jax.jit(function).lower(*args).compile()


def instructions(program):
    """Count the instructions of a program that XLA compiled, those inside fusions included."""
    return len(re.findall(r"^\s+(?:ROOT )?%\S+ = ", program.as_text(), flags=re.MULTILINE))


def train(x):
    return jnp.tanh(x) * 3.0


def evaluate(x):
    return jnp.sin(x) * 5.0 + 1.0


def asked(x):
    return cond(within_gradient(x), train, evaluate, x)


def scanned(f):
    return lambda x: lax.scan(lambda carry, _: (f(carry), None), x, None, length=3)[0]


def sharded(f):
    mesh = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    return jax.shard_map(f, mesh=mesh, in_specs=PartitionSpec("i"), out_specs=PartitionSpec("i"))


def gradient(f):
    return jax.grad(lambda x: f(x).sum())


def tangent(f):
    return lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1]


TRANSFORMATIONS = {
    "jit": jax.jit,
    "vmap": jax.vmap,
    "checkpoint": jax.checkpoint,
    "scan": scanned,
    "shard_map": sharded,
    "scan of checkpoint": lambda f: scanned(jax.checkpoint(f)),
}
on_every_transformation = pytest.mark.parametrize("around", TRANSFORMATIONS.values(), ids=TRANSFORMATIONS)
# The transformation outside of all, and whether it differentiates.
OUTSIDE = {"nothing": (lambda f: f, False), "grad": (gradient, True)}
DIFFERENTIATED = {
    "plain": lambda f: f,
    "grad": gradient,
    "jvp": tangent,
    "grad of jit": lambda f: gradient(jax.jit(f)),
    "grad of scan": lambda f: gradient(scanned(f)),
    "grad of vmap": lambda f: gradient(jax.vmap(f)),
    "vmap of grad": lambda f: jax.vmap(gradient(f)),
}
on_everything_outside = pytest.mark.parametrize(("outside", "answer"), OUTSIDE.values(), ids=OUTSIDE)


def around(*names):
    return pytest.mark.parametrize("around", [DIFFERENTIATED[name] for name in names], ids=names)


def by_hand(answer):
    """Return the branch for an answer that is staged: the branch for False sees a constant."""
    return lambda x: lax.cond(jnp.asarray(answer), train, lambda x: evaluate(lax.stop_gradient(x)), x)


@on_everything_outside
@on_every_transformation
def test_a_branch_on_the_answer_is_the_branch_on_a_constant(around, outside, answer):
    ours = operations(outside(around(asked)), X)
    chosen = operations(outside(around(train if answer else evaluate)), X)
    staged = operations(outside(around(by_hand(answer))), X)
    if not answer:
        # The staged False is a boolean, which JAX makes an index; it makes the constant an index before.
        staged["stablehlo.convert"] += 1
    assert ours in (chosen, staged)
    assert chosen.total() > 2


@on_everything_outside
@on_every_transformation
def test_xla_leaves_the_chosen_branch(around, outside, answer):
    ours, chosen = (compiled(outside(around(f)), X) for f in (asked, train if answer else evaluate))
    assert instructions(ours) <= instructions(chosen)
    np.testing.assert_allclose(ours(X), chosen(X), rtol=1e-6)


def test_the_count_would_notice_a_branch_that_stays():
    kept = lambda x: cond(x[0] > 0.5, train, evaluate, x)
    assert instructions(compiled(kept, X)) > max(instructions(compiled(f, X)) for f in (train, evaluate))
    assert operations(kept, X)["stablehlo.case"] == 1


@around("grad", "jvp", "vmap of grad", "grad of vmap")
def test_nothing_is_staged_where_the_answer_is_known(around):
    assert operations(around(asked), X) == operations(around(train), X)


@around("plain", "grad", "grad of jit", "vmap of grad")
def test_a_branch_on_data_is_that_of_jax(around):
    ours = lambda x: cond((x > 0.5).any(), train, evaluate, x)
    native = lambda x: lax.cond((x > 0.5).any(), train, evaluate, x)
    assert operations(around(ours), X) == operations(around(native), X)


@around("plain", "grad", "grad of jit", "grad of scan")
def test_constants_and_labels_are_those_of_stop_gradient(around):
    expected = operations(around(lambda x: jnp.sin(lax.stop_gradient(x)) * x), X)
    assert expected["stablehlo.sine"] == 1
    for ours in (
        lambda x: jnp.sin(non_differentiable(x)) * x,
        lambda x: jnp.sin(non_differentiable({"x": [x]})["x"][0]) * x,
        lambda x: jnp.sin(NonDifferentiable(x).value) * x,
        lambda x: jnp.sin(NonDifferentiable(x)) * x,
        lambda x: non_differentiable(jnp.sin)(x) * x,
    ):
        assert operations(around(ours), X) == expected, ours
