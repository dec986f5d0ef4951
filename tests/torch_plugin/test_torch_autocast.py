"""Calls of `grad` in ``torch.autocast``, which keeps what it has cast, with its history, until it ends."""

import pytest
import torch

from adprotocol import grad, within_gradient


@pytest.fixture
def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))


X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)


def loss(net, x):
    return (net(x).float() ** 2).mean()


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


def native(net, names):
    with autocast():
        found = torch.autograd.grad(loss(net, X), [p for name, p in net.named_parameters() if name in names])
    return dict(zip([name for name, _ in net.named_parameters() if name in names], found, strict=True))


ALL = ["0.weight", "0.bias", "2.weight", "2.bias"]
BEFORE = {
    "nothing": lambda net: None,
    "grad": lambda net: grad(loss)(net, X),
    "an evaluation": lambda net: torch.no_grad()(net)(X),
    "a call with gradients": lambda net: net(X),
    "a backward pass": lambda net: loss(net, X).backward(),
    "grad of a part": lambda net: grad(loss, where="0.*")(net, X),
    "grad under no_grad": lambda net: torch.no_grad()(grad(loss))(net, X),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
@pytest.mark.parametrize("where", [None, "2.*", "*.weight"])
@pytest.mark.parametrize("flags", [True, False])
def test_a_second_call_is_right(net, before, where, flags):
    names = [name for name in ALL if where is None or (name.startswith("2") if where == "2.*" else "weight" in name)]
    want = native(net, names)
    with autocast():
        before(net)
        if where is not None:
            net.requires_grad_(flags)
        found = grad(loss, where=where)(net, X)
    assert [name for name, g in found.items() if g is not None] == names
    for name in names:
        assert torch.equal(found[name], want[name])


def test_what_comes_after_a_call_is_right(net):
    with autocast():
        want = torch.autograd.grad(loss(net, X), net[0].weight)[0]
    net[2].requires_grad_(False)
    with autocast():
        grad(loss, where="2.*")(net, X)
        answer = within_gradient(net[2](torch.ones(1, 4)))
        found = torch.autograd.grad(loss(net, X), net[0].weight)[0]
    assert answer is False
    assert torch.equal(found, want)
