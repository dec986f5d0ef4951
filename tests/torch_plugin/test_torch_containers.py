"""Containers, numbers and predicates of PyTorch and NumPy that are not tensors."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from adprotocol import cond, grad, non_differentiable, within_gradient

PACKED = pack_sequence([torch.ones(3), 2.0 * torch.ones(2)])


def test_a_packed_sequence():
    slope = grad(lambda packed: (packed.data**2).sum())(PACKED)
    assert type(slope) is PackedSequence
    assert slope.data.tolist() == (2.0 * PACKED.data).tolist()
    assert slope.batch_sizes is None
    tracked = PackedSequence(PACKED.data.clone().requires_grad_(), PACKED.batch_sizes)
    assert within_gradient(tracked) is True
    constant = non_differentiable(tracked)
    assert within_gradient(constant) is False
    assert constant.batch_sizes.tolist() == PACKED.batch_sizes.tolist()


@pytest.mark.parametrize("make", [np.float32, lambda x: np.array([x, x])])
def test_numpy_in_a_graph(make):
    # Dynamo compiles one function at most eight times, whichever tests ask for it.
    torch.compiler.reset()
    model = {"a": torch.ones(2), "b": make(2.0)}
    f = lambda model: (model["a"] * model["b"]).sum()
    want = grad(f)(model)
    found = torch.compile(grad(f), backend="eager", fullgraph=True)(model)
    for name, slope in want.items():
        assert torch.equal(found[name], slope)
        assert found[name].dtype == slope.dtype
    only = torch.compile(grad(f, where="a"), backend="eager", fullgraph=True)(model)
    assert only["b"] is None
    assert torch.equal(only["a"], want["a"])


def test_a_predicate_of_sizes_in_an_export():
    class Module(torch.nn.Module):
        def forward(self, x):
            return cond(x.shape[0] > 2, lambda x: x + 1.0, lambda x: x - 1.0, x)

    sizes = {"x": {0: torch.export.Dim("n", min=1, max=100)}}
    exported = torch.export.export(Module(), (torch.ones(4),), dynamic_shapes=sizes, strict=False).module()
    assert exported(torch.ones(5)).tolist() == [2.0] * 5
    assert exported(torch.ones(2)).tolist() == [0.0] * 2
