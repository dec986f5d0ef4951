"""How the cost grows with the leaves of a structure and the nodes of a graph, beside the same by hand."""

import by_hand
import pytest
import torch
from interleave import long_call
from row import compared

import adprotocol

SECONDS = 1.0
LEAVES = [10, 100, 1000, 10_000, 100_000]
NODES = [10, 100, 1000, 10_000, 100_000]


def each_asked(model):
    return [adprotocol.within_gradient(leaf) for leaf in model.values()]


def split_by_hand(model):
    trained = {name: leaf if leaf.is_floating_point() else None for name, leaf in model.items()}
    return trained, {name: None if leaf.is_floating_point() else leaf for name, leaf in model.items()}


CALLS = {
    "within_gradient": (adprotocol.within_gradient, "each leaf by itself", each_asked),
    "partition": (adprotocol.partition, "by hand", split_by_hand),
}


@pytest.mark.parametrize("leaves", LEAVES)
@pytest.mark.parametrize("what", CALLS)
def test_leaves(side_by_side, record, what, leaves):
    ours, reference, theirs = CALLS[what]
    model = {f"w{i}": torch.ones(2) for i in range(leaves)}
    found = side_by_side(long_call(ours, model), long_call(theirs, model), seconds=SECONDS)
    record(compared(f"{what}, a dict of {leaves:,} leaves", reference, found))


def steps(count):
    def deep(x):
        for _ in range(count):
            x = x + 1.0
        return x.sum()

    return deep


@pytest.mark.parametrize("nodes", NODES)
def test_nodes_of_a_gradient(side_by_side, record, nodes):
    x, deep = torch.ones(2), steps(nodes)
    ours = adprotocol.value_and_grad(deep)
    torch.testing.assert_close(ours(x), by_hand.of_tensor(deep, x))
    found = side_by_side(long_call(ours, x), long_call(by_hand.of_tensor, deep, x), seconds=SECONDS)
    record(compared(f"value_and_grad, a graph of {nodes:,} nodes", "by hand", found))


@pytest.mark.parametrize("nodes", NODES)
def test_nodes_of_a_branch(side_by_side, record, nodes):
    x, deep = torch.ones(2, requires_grad=True), steps(nodes)

    def ours(x):
        return adprotocol.cond(True, deep, deep, x)  # noqa: FBT003  (its predicate)

    torch.testing.assert_close(ours(x), deep(x))
    found = side_by_side(long_call(ours, x), long_call(deep, x), seconds=SECONDS)
    record(compared(f"cond, a branch of {nodes:,} nodes", "the branch alone", found))
