"""Tensors that only a hook or a custom ``backward`` computes with: PyTorch's graph does not show them."""

import pytest
import torch

from adprotocol import grad

TWO, THREE = torch.tensor(2.0), torch.tensor(3.0)


def scaled_by_a_hook(x, factor):
    y = x * 1.0
    y.register_hook(lambda g: g * factor)
    return y**2


def scaled_by_a_rule(x, factor):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, x):
            return x * 1.0

        @staticmethod
        def backward(_ctx, g):
            return g * factor

    return Scaled.apply(x) ** 2


@pytest.mark.parametrize("scaled", [scaled_by_a_hook, scaled_by_a_rule])
def test_as_an_auxiliary_output_they_are_differentiated(scaled):
    def inner(factor):
        return grad(lambda x: (scaled(x, factor), factor), has_aux=True)(TWO)[0]

    assert inner(THREE) == 12.0
    assert grad(inner)(THREE) == 4.0
