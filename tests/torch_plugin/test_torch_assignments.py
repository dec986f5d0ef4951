"""What the function assigns to tensors of a module in whose place a call has put others: it stays."""

import pytest
import torch

from adprotocol import grad
from adprotocol.errors import TreeError

ONE = torch.tensor(1.0)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor([2.0]))
        self.b = torch.nn.Parameter(torch.tensor([3.0]))


def change(net):
    net.b.data.mul_(2.0)


def replace(net):
    net.b = torch.nn.Parameter(torch.tensor([7.0]))


def remove(net):
    del net.b


CHANGES = [change, replace, remove]


def after(net):
    return {name: p.tolist() for name, p in net.named_parameters()}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("fails", [False, True])
def test_of_a_frozen_parameter(how, fails):
    plain, net = Net(), Net()
    how(plain)
    held = net.b

    def loss(net):
        how(net)
        if fails:
            raise ZeroDivisionError
        return (net.a * (net.b if hasattr(net, "b") else 1.0)).sum()

    if fails:
        with pytest.raises(ZeroDivisionError):
            grad(loss, where="a")(net)
    else:
        want = plain.b.sum().item() if hasattr(plain, "b") else 1.0
        assert grad(loss, where="a")(net)["a"].item() == want
    assert after(net) == after(plain)
    assert (getattr(net, "b", None) is held) == (how is change)
    assert all(p.requires_grad for p in net.parameters())


def test_of_a_teacher_under_no_grad():
    net = Net()

    def loss(x, net):
        change(net)
        return x * net.b.sum()

    with torch.no_grad():
        assert grad(loss)(ONE, net) == 6.0
    assert after(net) == {"a": [2.0], "b": [6.0]}


@pytest.mark.parametrize("where", [None, "0.*"])
def test_a_lazy_parameter(where):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    lazy = net[0].weight
    x = torch.ones(2, 4)
    found = grad(lambda net: net(x).sum(), where=where)(net)
    assert net[0].weight is lazy
    assert lazy.shape == (3, 4)
    assert type(lazy) is torch.nn.Parameter
    assert lazy.requires_grad
    assert type(net[0]) is torch.nn.Linear
    selected = [name for name, _ in net.named_parameters() if where is None or name.startswith(where[0])]
    want = torch.autograd.grad(net(x).sum(), [dict(net.named_parameters())[name] for name in selected])
    for name, slope in zip(selected, want, strict=True):
        assert torch.allclose(found[name], slope)
    assert all(g is None for name, g in found.items() if name not in selected)


def test_a_lazy_parameter_that_is_frozen_is_refused():
    net = torch.nn.Sequential(torch.nn.LazyLinear(3), torch.nn.Linear(3, 1))
    with pytest.raises(TreeError, match="uninitialized parameter"):
        grad(lambda net: net(torch.ones(2, 4)).sum(), where="1.*")(net)
