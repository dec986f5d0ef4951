"""A checkpoint that an outer derivative runs again, after the call of `grad` around it has put everything back."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from adprotocol import cond, grad, within_gradient

C = 0.7


def run(fun, *args):
    return checkpoint(fun, *args, use_reentrant=False)


def plain(fun, *args):
    return fun(*args)


class Net(torch.nn.Module):
    def __init__(self, run, flags=(True, True)):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(2.0), requires_grad=flags[0])
        self.b = torch.nn.Parameter(torch.tensor(3.0), requires_grad=flags[1])
        self.run = run

    def block(self, h):
        return ((h * self.a).sin() * self.b * h).sin()

    def forward(self, x):
        return self.run(self.block, x)


class Outer(torch.nn.Module):
    def __init__(self, run, flags=(True, True)):
        super().__init__()
        self.inner = Net(plain, flags)
        self.run = run

    @property
    def a(self):
        return self.inner.a

    def forward(self, x):
        return self.run(self.inner, x)


def answering(run, flags=(True, True)):
    net = Net(run, flags)

    def block(h):
        h = cond(within_gradient(net.a), lambda h: (h * net.a).sin(), lambda h: 5.0 * h, h)
        return cond(within_gradient(net.b), lambda h: (h * net.b).sin(), lambda h: 7.0 * h * net.b, h)

    net.block = block
    return net


def in_two_calls(run, flags=(True, True)):
    """The block differentiates in itself, with respect to what the call around it differentiates alone."""
    net = Net(run, flags)

    def block(h):
        slope = grad(lambda p: (p["a"] ** 3).sin())({"a": net.a * 1.0})["a"]
        return (slope * h * net.b).sin()

    net.block = block
    return net


MODELS = [Net, Outer, answering, in_two_calls]


def by_backward(slope):
    c = torch.tensor(C, requires_grad=True)
    slope(c).backward()
    return c.grad.item()


OUTER = {
    "backward": by_backward,
    "adprotocol.grad": lambda slope: grad(slope)(torch.tensor(C)).item(),
}
SELECTIONS = {
    "freezes b": ("*a", (True, True)),
    "trains a": ("*a", (False, False)),
    "trains a, freezes b": ("*a", (False, True)),
    "trains both": (["*a", "*b"], (False, False)),
    "by flags": (None, (True, True)),
}


def slope_of(make, run, where, flags):
    net = make(run, flags)
    name = "inner.a" if make is Outer else "a"

    def slope(c):
        return grad(lambda n, c: n(c), where=where)(net, c)[name]

    return slope


@pytest.mark.parametrize("make", MODELS)
@pytest.mark.parametrize(("where", "flags"), SELECTIONS.values(), ids=SELECTIONS)
@pytest.mark.parametrize("outer", OUTER)
def test_the_outer_derivative_is_that_without_the_checkpoint(make, where, flags, outer):
    found = OUTER[outer](slope_of(make, run, where, flags))
    assert found == pytest.approx(OUTER[outer](slope_of(make, plain, where, flags)), rel=1e-5)


@pytest.mark.parametrize("times", [1, 2])
def test_parameters_and_flags_are_as_before_after_each_pass(times):
    net = Net(run, (False, True))
    a, b = net.a, net.b
    c = torch.tensor(C, requires_grad=True)
    slope = grad(lambda n, c: n(c), where="a")(net, c)["a"]
    for _ in range(times):
        slope.backward(retain_graph=True)
        assert net.a is a
        assert net.b is b
        assert (a.requires_grad, b.requires_grad) == (False, True)
        assert a.grad is None
        assert b.grad is None


def test_a_flag_that_is_set_since_stays():
    net = Net(run, (False, False))
    c = torch.tensor(C, requires_grad=True)
    slope = grad(lambda n, c: n(c), where="a")(net, c)["a"]
    net.a.requires_grad_()
    slope.backward()
    assert net.a.requires_grad
    assert c.grad.item() == pytest.approx(by_backward(slope_of(Net, plain, "a", (False, False))), rel=1e-5)
