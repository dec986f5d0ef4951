"""What the function assigns to tensors of a module in whose place a call has put others: it stays."""

import pytest
import torch

from adprotocol import grad, vjp

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
    with pytest.raises(ValueError, match=r"uninitialized parameter.*initialize the parameters before"):
        grad(lambda net: net(torch.ones(2, 4)).sum(), where="1.*")(net)


class ActNorm(torch.nn.Module):
    """Set its parameters from the first batch, as the layers of normalising flows do."""

    def __init__(self):
        super().__init__()
        self.log_scale, self.shift = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        self.register_buffer("is_set", torch.tensor(0.0))

    def forward(self, x):
        if not self.is_set:
            self.log_scale.data = -x.std(0).log().data
            self.shift.data = -(x.mean(0) * self.log_scale.exp()).data
            self.is_set = torch.tensor(1.0)
        return x * self.log_scale.exp() + self.shift


def flow():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(2, 2), ActNorm(), torch.nn.Linear(2, 1))


def table():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Embedding(3, 2, max_norm=0.1), torch.nn.Linear(2, 1))
    net[0].weight.data.mul_(5.0)
    return net


def squared_norm(gradient):
    return sum((part**2).sum() for part in gradient.values() if part is not None)


CALLS = {
    "grad": lambda loss, where: grad(loss, where=where),
    "nested": lambda loss, where: grad(lambda net: squared_norm(grad(loss, where=where)(net))),
    "pull": lambda loss, where: lambda net: vjp(loss, net, where=where)[1](1.0),
    "pull inside": lambda loss, where: grad(lambda net: squared_norm(vjp(loss, net, where=where)[1](1.0)[0])),
    "no_grad": lambda loss, where: torch.no_grad()(grad(lambda net: squared_norm(grad(loss, where=where)(net)))),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("where", [None, "0.*", "1.*"])
@pytest.mark.parametrize(
    ("make", "x"), [(flow, 5 * torch.linspace(-1, 2, 12).reshape(6, 2).sin() + 3), (table, torch.tensor([0, 2]))]
)
def test_what_a_call_assigns_to_a_parameter_reaches_it(make, x, where, call):
    net, plain = make(), make()
    held = list(net.parameters())

    def loss(net):
        return (net(x) ** 2).mean()

    expected = loss(plain)
    CALLS[call](loss, where)(net)
    assert all(one is other for one, other in zip(net.parameters(), held, strict=True))
    torch.testing.assert_close(net.state_dict(), plain.state_dict())
    torch.testing.assert_close(loss(net), expected)


def test_what_a_call_assigns_reaches_a_parameter_where_the_call_fails():
    net, plain = flow(), flow()
    x = torch.linspace(-1, 2, 12).reshape(6, 2).sin()

    def loss(net):
        net(x)
        raise ZeroDivisionError

    plain(x)
    with pytest.raises(ZeroDivisionError):
        grad(loss, where="2.*")(net)
    torch.testing.assert_close(net.state_dict(), plain.state_dict())


def test_a_step_between_call_and_pull_stays():
    net, x = flow(), torch.linspace(-1, 2, 12).reshape(6, 2).sin()
    _, pull = vjp(lambda net: net(x).sum(), net, where="2.*")
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.data = torch.full_like(parameter, 7.0)
    pull(1.0)
    assert all((parameter == 7.0).all() for parameter in net.parameters())
