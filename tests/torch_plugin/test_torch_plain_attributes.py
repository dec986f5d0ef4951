"""A question about a module whose tensors are plain attributes."""

import collections
import dataclasses

import pytest
import torch
from torch.autograd import forward_ad

from adprotocol import cond, grad, prevent_gradient, within_gradient
from adprotocol.errors import GradientPreventedError


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Module()
        self.inner.w = torch.nn.Parameter(torch.tensor(2.0))

    def forward(self, x):
        return cond(within_gradient(self), lambda x: 3.0 * x * self.inner.w, lambda x: 5.0 * x * self.inner.w, x)


ONE = torch.tensor(1.0)


def with_attribute(value):
    net = Net()
    del net.inner.w
    net.inner.w = value
    return net


def test_the_recipe_of_forward_mode():
    with forward_ad.dual_level():
        net = with_attribute(forward_ad.make_dual(torch.tensor(2.0), ONE))
        assert within_gradient(net) is True
        assert [part.item() for part in forward_ad.unpack_dual(net(ONE))] == [6.0, 3.0]
        with pytest.raises(GradientPreventedError):
            prevent_gradient(net, "no")


@dataclasses.dataclass
class State:
    hidden: object


@pytest.mark.parametrize(
    "wrap",
    [lambda t: t, lambda t: [t], lambda t: {"a": (t,)}, lambda t: collections.deque([t]), State],
    ids=["tensor", "list", "dict", "deque", "dataclass"],
)
def test_a_tensor_that_is_tracked_in_reverse_mode(wrap):
    w = torch.tensor(2.0, requires_grad=True)
    net = Net()
    net.inner.requires_grad_(False)
    net.held = wrap(w)
    assert within_gradient(net) is True
    with torch.no_grad():
        assert within_gradient(net) is False
    net.held = wrap(w.detach())
    assert within_gradient(net) is False
    assert grad(lambda w: (setattr(net, "held", wrap(w)), w * within_gradient(net))[1])(w.detach()) == 1.0
    assert torch.func.grad(lambda w: (setattr(net, "held", wrap(w)), w * within_gradient(net))[1])(w.detach()) == 1.0


@pytest.mark.parametrize("flag", [True, False])
def test_in_a_graph(flag):
    net = with_attribute(torch.tensor(2.0, requires_grad=flag))
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert compiled(ONE) == (6.0 if flag else 10.0)


class Variable:
    """An array of a library that no plugin claims, as Keras's variables are, around a parameter."""

    def __init__(self, value):
        self.value, self.shape, self.dtype = value, value.shape, value.dtype

    def __array__(self):
        return self.value.detach().numpy()


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("wrap", [list, lambda held: {"a": tuple(held)}])
def test_what_no_plugin_claims_besides_the_parameters_is_no_hindrance(flag, wrap):
    net = Net()
    net.inner.w.requires_grad_(flag)
    net.variables = wrap([Variable(net.inner.w)])
    assert within_gradient(net) is flag
    assert within_gradient(net, ONE) is flag
    assert net(ONE).item() == (6.0 if flag else 10.0)
    if flag:
        with pytest.raises(GradientPreventedError):
            prevent_gradient(net, "no")
    else:
        assert prevent_gradient(net, "no") is net
    net.inner.w.requires_grad_(False)
    net.variables = wrap([Variable(ONE), torch.ones(1, requires_grad=True)])
    assert within_gradient(net) is True


def test_a_question_looks_no_further_than_it_has_to():
    looked = []

    class Parameters(dict):
        def values(self):
            looked.append(self.name)
            return super().values()

    layers = torch.nn.Sequential(*[torch.nn.Linear(1, 1) for _ in range(5)])
    for name, layer in layers.named_children():
        layer._parameters = Parameters(layer._parameters)
        layer._parameters.name = name

    def ask():
        looked.clear()
        return within_gradient(layers), list(looked)

    assert ask() == (True, ["0"])
    layers[0].requires_grad_(False)
    assert ask() == (True, ["0", "1"])
    with torch.no_grad():
        assert ask() == (False, [])
        assert torch.func.grad(lambda w: (setattr(layers[1], "held", w), w * within_gradient(layers))[1])(ONE) == 1.0
    layers[1].held = None
    layers.requires_grad_(False)
    assert ask() == (False, list("01234"))
    with forward_ad.dual_level():
        layers[4].held = [forward_ad.make_dual(ONE, ONE)]
        assert ask()[0] is True
