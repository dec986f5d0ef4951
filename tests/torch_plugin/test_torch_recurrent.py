"""Recurrent modules keep a list of their parameters besides the table of them."""

import pytest
import torch
from torch.autograd import forward_ad

from adprotocol import grad
from adprotocol.errors import UndecidableError

X = torch.randn(4, 1, 2, generator=torch.Generator().manual_seed(0))


class Recurrent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTM(2, 3)

    def forward(self, x):
        return self.cell(x)[0]


def loss(module):
    return module(X).sum()


def second(module):
    return grad(lambda module: grad(loss)(module)["cell.bias_ih_l0"].sum())(module)["cell.bias_ih_l0"]


@pytest.fixture
def module():
    torch.manual_seed(0)
    return Recurrent()


@pytest.fixture
def scripted(module):
    return torch.jit.script(module)


def test_scripted(module, scripted):
    wanted = grad(loss)(module)
    torch.testing.assert_close(grad(loss)(scripted), wanted)
    assert second(module).abs().sum() > 1.0
    torch.testing.assert_close(second(scripted), second(module))
    for p in scripted.parameters():
        p.requires_grad_(requires_grad=False)
    torch.testing.assert_close(grad(loss, where="*")(scripted), wanted)
    assert not any(p.requires_grad for p in scripted.parameters())


def test_scripted_and_partly_frozen(module, scripted):
    wanted = grad(loss)(module)["cell.weight_ih_l0"]
    found = grad(loss, where="cell.weight_ih_l0")(scripted)
    torch.testing.assert_close(found["cell.weight_ih_l0"], wanted)
    assert found["cell.bias_ih_l0"] is None


def test_scripted_inside_torch_func_is_refused(scripted):
    with pytest.raises(UndecidableError, match=r"before torch\.jit\.script"):
        torch.vmap(lambda c: grad(lambda m: c * loss(m))(scripted)["cell.bias_ih_l0"])(torch.ones(1))
    with forward_ad.dual_level(), pytest.raises(UndecidableError, match=r"before torch\.jit\.script"):
        grad(loss)(scripted)


@pytest.mark.parametrize("fails", [False, True])
def test_the_lists_are_as_before_after_a_call(module, fails):
    def maybe(module):
        value = loss(module)
        return 1 / 0 if fails else value

    for where in ("cell.weight_ih_l0", "cell.bias*"):
        if fails:
            with pytest.raises(ZeroDivisionError):
                grad(maybe, where=where)(module)
        else:
            grad(maybe, where=where)(module)
        assert all(kept is p for kept, p in zip(module.cell._flat_weights, module.parameters(), strict=True))
        assert all(ref() is p for ref, p in zip(module.cell._flat_weight_refs, module.parameters(), strict=True))
    scripted = torch.jit.script(module)
    found = torch.autograd.grad(loss(scripted), list(scripted.parameters()), allow_unused=True)
    assert None not in found
