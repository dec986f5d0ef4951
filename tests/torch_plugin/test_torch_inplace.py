"""In-place changes of what is differentiated: right, or refused."""

import pytest
import torch

from adprotocol import grad

TWO = torch.tensor(2.0)


def doubled_squared(x):
    x.mul_(2)
    return x**2


def test_a_tracked_tensor_changed_in_place_is_differentiated_at_what_was_given():
    x = TWO.clone().requires_grad_()
    assert grad(doubled_squared)(x) == 16.0
    assert x == 2.0


@pytest.mark.parametrize("make", [torch.clone, torch.nn.Parameter])
def test_a_leaf_changed_in_place_is_refused_by_pytorch(make):
    x = make(TWO)
    with pytest.raises(RuntimeError, match="in-place operation"):
        grad(doubled_squared)(x)
    assert x == 2.0
