"""`partition` and `combine` beside Equinox's on the same structures."""

from __future__ import annotations

import dataclasses

import equinox
import jax
import jax.numpy as jnp
import pytest
from interleave import long_call
from row import compared

from adprotocol import combine, partition

SECONDS = 3.0
REFERENCE = "equinox.partition(tree, is_inexact_array)"


class Layer(equinox.Module):
    w: jax.Array
    b: jax.Array
    units: int
    activation: object
    name: str = equinox.field(static=True)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Registered:
    w: jax.Array
    b: jax.Array
    scale: jax.Array
    units: int


@dataclasses.dataclass(frozen=True)
class Plain:
    w: jax.Array
    b: jax.Array
    scale: jax.Array
    units: int


def arrays(count):
    """Return so many arrays, each an object of its own."""
    return list(jnp.ones((count, 3)))


def nested(leaves):
    """Return dicts of lists of dicts, 10 arrays in each block."""
    left = iter(arrays(leaves))
    return {f"block{i}": [{"w": next(left), "b": next(left)} for _ in range(5)] for i in range(leaves // 10)}


def modules(leaves):
    """Return Equinox modules of four leaves and a static field."""
    left = iter(arrays(leaves // 2))
    return [Layer(next(left), next(left), 3, jax.nn.relu, "dense") for _ in range(leaves // 4)]


def dataclass_of(cls):
    def make(leaves):
        left = iter(arrays(leaves // 4 * 3))
        return [cls(next(left), next(left), next(left), 3) for _ in range(leaves // 4)]

    return make


TREES = {
    "dicts and lists": (nested, nested),
    "Equinox modules": (modules, modules),
    "dataclasses that JAX knows": (dataclass_of(Registered), dataclass_of(Registered)),
    # equinox.partition cannot take these apart: it gets those of the same fields.
    "plain dataclasses": (dataclass_of(Plain), dataclass_of(Registered)),
}


def reference(tree):
    return equinox.partition(tree, equinox.is_inexact_array)


def same_leaves(ours, theirs):
    """Return whether two structures hold the identical objects in one order, None aside."""
    return all(a is b for a, b in zip(held(ours), held(theirs), strict=True))


def held(tree):
    # Of the plain dataclasses too, which JAX takes for leaves.
    found = []
    for leaf in jax.tree_util.tree_leaves(tree):
        found += [x for x in vars(leaf).values() if x is not None] if isinstance(leaf, Plain) else [leaf]
    return found


SIZES = [12, 100_000]


def both(kind, leaves):
    """Return the structure that ours is given, and that Equinox is."""
    make, make_theirs = TREES[kind]
    tree = make(leaves)
    return tree, tree if make is make_theirs else make_theirs(leaves)


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("leaves", SIZES)
def test_partition(side_by_side, record, kind, leaves):
    tree, theirs = both(kind, leaves)
    if tree is theirs:
        assert all(map(same_leaves, partition(tree), reference(theirs)))
    assert [len(held(part)) for part in partition(tree)] == [len(held(part)) for part in reference(theirs)]
    found = side_by_side(long_call(partition, tree), long_call(reference, theirs), seconds=SECONDS)
    record(compared(f"partition, {kind}, {len(held(tree)):,} leaves", REFERENCE, found, at_most=1.05))


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("leaves", SIZES)
def test_combine(side_by_side, record, kind, leaves):
    tree, theirs = both(kind, leaves)
    parts, their_parts = partition(tree), reference(theirs)
    assert same_leaves(combine(*parts), tree)
    found = side_by_side(long_call(combine, *parts), long_call(equinox.combine, *their_parts), seconds=SECONDS)
    record(compared(f"combine, {kind}, {len(held(tree)):,} leaves", "equinox.combine", found, at_most=1.3))


@pytest.mark.parametrize("kind", ["dicts and lists", "Equinox modules"])
def test_glob(side_by_side, record, kind):
    tree = TREES[kind][0](100_000)
    selected, rest = partition(tree, "*.w")
    assert len(held(selected)) == len(held(partition(tree, lambda name, _: name.endswith(".w"))[0]))
    assert len(held(selected)) + len(held(rest)) == 100_000
    found = side_by_side(long_call(partition, tree, "*.w"), long_call(reference, tree), seconds=SECONDS)
    record(compared(f"partition(tree, where='*.w'), {kind}, 100,000 leaves", REFERENCE, found, at_most=1.05))
