"""How long the compilers take to trace our calls, beside the same program without them, or by hand."""

from functools import partial

import jax
import jax.numpy as jnp
import pytest
import torch
from interleave import long_call
from row import compared

import adprotocol

SECONDS = 4.0


def body(model):
    total = 0.0
    for leaf in model.values():
        total = total + (leaf * leaf).sum()
    return total


def doubled(model):
    return body(model) * 2.0


def traced(make):
    """Return what traces a function anew at each call.

    The branches in it are made in the call: JAX keeps the trace of one that it has seen in a `lax.cond`, whatever that
    reads by now, and ours runs each branch anew.
    """
    return lambda *args: jax.jit(make()).trace(*args)


@pytest.mark.parametrize("leaves", [1, 10, 100])
def test_jax_cond(side_by_side, record, leaves):
    model = {f"w{i}": jnp.ones(4) for i in range(leaves)}

    def ours():
        return lambda model: adprotocol.cond(adprotocol.within_gradient(model), partial(body), partial(doubled), model)

    def theirs():
        return lambda model: jax.lax.cond(model["w0"].sum() > 0, partial(body), partial(doubled), model)

    found = side_by_side(long_call(traced(ours), model), long_call(traced(theirs), model), seconds=SECONDS)
    what = f"jax.jit traces the question, cond and both branches, {leaves} leaves"
    record(compared(what, "jax.lax.cond on a comparison, the same branches", found, at_most=1.3))


@pytest.mark.parametrize("leaves", [10, 100])
def test_jax_cond_of_layers(side_by_side, record, leaves):
    layers = [{f"w{i}": jnp.ones(4) for i in range(leaves)} for _ in range(10)]
    flag = jnp.bool_(leaves > 0)

    def program(cond):
        return lambda: lambda flag, layers: sum(cond(flag, partial(body), partial(doubled), layer) for layer in layers)

    ours, theirs = traced(program(adprotocol.cond)), traced(program(jax.lax.cond))
    found = side_by_side(long_call(ours, flag, layers), long_call(theirs, flag, layers), seconds=SECONDS)
    what = f"jax.jit traces cond in 10 layers of {leaves} leaves"
    record(compared(what, "jax.lax.cond, the same branches", found, at_most=1.2))


def asked(model):
    if adprotocol.within_gradient(model):
        return doubled(model)
    return body(model)


def branched(model):
    return adprotocol.cond(True, body, doubled, model)  # noqa: FBT003  (its predicate)


def differentiated(model):
    return adprotocol.value_and_grad(body)(model)


def by_torch_func(model):
    return torch.func.grad_and_value(body)(model)


def split(model):
    return body(adprotocol.combine(*adprotocol.partition(model)))


def split_by_hand(model):
    trained = {name: leaf if leaf.is_floating_point() else None for name, leaf in model.items()}
    rest = {name: None if leaf.is_floating_point() else leaf for name, leaf in model.items()}
    return body({name: rest[name] if leaf is None else leaf for name, leaf in trained.items()})


def compiled(fun):
    """Return what compiles a function anew at each call, for a backend that runs the graph as it is."""

    def call(*args):
        torch.compiler.reset()
        return torch.compile(fun, backend="eager", fullgraph=True)(*args)

    return call


@pytest.mark.parametrize(
    ("what", "ours", "reference", "theirs", "limits", "reason"),
    [
        ("a question", asked, "the body alone", body, (1.3, 1.3), ""),
        ("cond", branched, "the body alone", body, (1.4, 1.4), ""),
        (
            "value_and_grad",
            differentiated,
            "torch.func.grad_and_value",
            by_torch_func,
            (2.1, 1.8),
            "has Dynamo trace the flattening and the checks too",
        ),
        ("partition and combine", split, "by hand", split_by_hand, (3.0, 3.0), ""),
    ],
)
@pytest.mark.parametrize("leaves", [10, 100])
def test_dynamo(side_by_side, record, leaves, what, ours, reference, theirs, limits, reason):  # noqa: PLR0913, PLR0917
    model = {f"w{i}": torch.ones(4) for i in range(leaves)}
    found = side_by_side(long_call(compiled(ours), model), long_call(compiled(theirs), model), seconds=2 * SECONDS)
    what, limit = f"torch.compile traces {what}, {leaves} leaves", limits[leaves == 100]
    record(compared(what, reference, found, at_most=limit, reason=reason))
