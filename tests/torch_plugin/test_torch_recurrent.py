"""Recurrent modules keep a list of their parameters besides the table of them."""

import pytest
import torch

from adprotocol import grad

X = torch.randn(4, 1, 2, generator=torch.Generator().manual_seed(0))


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTM(2, 3)

    def forward(self, x):
        return self.cell(x)[0]


def loss(module):
    return module(X).sum()


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Recurrent()


@pytest.fixture
def scripted(module):
    return torch.jit.script(module)


def test_scripted_and_partly_frozen(module, scripted):
    wanted = grad(loss)(module)["cell.weight_ih_l0"]
    found = grad(loss, where="cell.weight_ih_l0")(scripted)
    torch.testing.assert_close(found["cell.weight_ih_l0"], wanted)
    assert found["cell.bias_ih_l0"] is None
