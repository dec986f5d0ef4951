"""What stands for a parameter during a call is one: by class, attributes and, where it is differentiated, hooks."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import adprotocol
from adprotocol import grad

X = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)


class Scaled(nn.Parameter):
    """A parameter with a scale, as quantised weights and muP's have one."""

    def __new__(cls, data, scale=2.0, requires_grad=True):
        parameter = super().__new__(cls, data, requires_grad)
        parameter.scale = scale
        return parameter

    def dequantised(self):
        return self * self.scale


class Net(nn.Module):
    """A layer and a readout that look at what their parameters are."""

    def __init__(self):
        super().__init__()
        self.body = nn.Parameter(torch.ones(3))
        self.body.decays = True
        self.readouts = nn.ModuleList([nn.ParameterList([Scaled(torch.ones(3))])])

    def forward(self, x):
        readout = self.readouts[0][0]
        assert isinstance(readout, Scaled)
        decay = sum((p**2).sum() for p in self.parameters() if getattr(p, "decays", False))
        assert self.get_parameter("readouts.0.0") is readout
        return (x * self.body * readout.dequantised()).sum() + decay


WANTED = {
    "body": lambda x: {"body": 2 * x.sum(0) + 2},
    "readouts.*": lambda x: {"readouts.0.0": 2 * x.sum(0)},
    "*": lambda x: {"body": 2 * x.sum(0) + 2, "readouts.0.0": 2 * x.sum(0)},
}


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("where", WANTED)
def test_it_has_class_and_attributes(where, flag):
    net = Net().requires_grad_(flag)
    gradient = grad(Net.forward, where=where)(net, X)
    wanted = WANTED[where](X)
    for name, found in gradient.items():
        assert (found is None) == (name not in wanted)
        if found is not None:
            torch.testing.assert_close(found, wanted[name])
            assert type(found) is torch.Tensor
    assert [set(vars(p)) for p in net.parameters()] == [{"decays"}, {"scale"}]


def test_gradient_hooks_run_once_for_each_of_two_derivatives():
    def twice_native(p):
        (first,) = torch.autograd.grad((p**3).sum(), p, create_graph=True)
        return torch.autograd.grad((first**2).sum(), p)[0]

    def cube(module):
        return (module.p**3).sum()

    module = nn.Module()
    module.p = nn.Parameter(torch.tensor([1.0, 2.0]))
    module.p.register_hook(lambda g: 2 * g)
    wanted = twice_native(module.p)
    for flag in (True, False):
        module.requires_grad_(flag)
        found = grad(lambda m: (grad(cube, where="p")(m)["p"] ** 2).sum(), where="p")(module)["p"]
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("times", [1, 2])
def test_gradient_hooks_run_in_each_pull_of_a_nested_derivative(times):
    p = torch.nn.Parameter(torch.tensor(2.0))
    p.register_hook(lambda gradient: 10.0 * gradient)

    def square(parameters):
        return parameters["p"] ** 2

    def by_pull(parameters):
        _, pull = adprotocol.vjp(square, parameters)
        return sum(pull(torch.tensor(1.0))[0]["p"] ** 2 for _ in range(times))

    # The inner gradient is 10 * 2p, its square 400 p², with the derivative 800 p, which the hook of p multiplies again.
    expected = torch.tensor(times * 10.0 * 800.0 * 2.0)
    assert adprotocol.grad(by_pull)({"p": p})["p"] == expected
    assert adprotocol.grad(lambda q: times * adprotocol.grad(square)(q)["p"] ** 2)({"p": p})["p"] == expected
    assert len(p._backward_hooks) == 1


@pytest.mark.parametrize("norm", [parametrizations.weight_norm, parametrizations.spectral_norm, nn.utils.spectral_norm])
def test_parametrisations_see_parameters(norm):
    torch.manual_seed(0)
    layer = norm(nn.Linear(3, 2)).eval()
    wanted = torch.autograd.grad(layer(X).sum(), layer.bias)[0]
    gradient = grad(lambda layer: layer(X).sum(), where="bias")(layer)["bias"]
    torch.testing.assert_close(gradient, wanted)


class Kept(nn.Module):
    def forward(self, x):
        assert isinstance(x, nn.Parameter)
        return x * x.scale


def test_a_parametrisation_reads_the_original():
    layer = nn.Linear(3, 1, bias=False)
    layer.weight = Scaled(torch.ones(1, 3), scale=4.0)
    parametrize.register_parametrization(layer, "weight", Kept(), unsafe=True)
    layer.requires_grad_(False)
    gradient = grad(lambda layer: layer(X).sum(), where="*.original")(layer)["parametrizations.weight.original"]
    torch.testing.assert_close(gradient, 4 * X.sum(0, keepdim=True))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("where", ["0.*", "1.*", None])
def test_a_module_made_under_inference_mode_and_frozen_in_part(where, mode):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 1)).double()

    with torch.inference_mode():
        net = make()
    net[2].requires_grad_(requires_grad=False)
    plain, x = make(), torch.linspace(-1, 1, 6).double().reshape(2, 3)
    plain[2].requires_grad_(requires_grad=False)

    def loss(net):
        return (net(x) ** 3).sum()

    expected = grad(loss, where=where)(plain)
    with mode():
        found = [grad(loss, where=where)(net), adprotocol.vjp(loss, net, where=where)[1](1.0)[0]]
    for gradient in found:
        torch.testing.assert_close(gradient, expected)
