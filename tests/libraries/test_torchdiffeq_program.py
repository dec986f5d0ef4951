"""torchdiffeq: a neural ODE whose dynamics ask whether they are trained."""

import pytest

torchdiffeq = pytest.importorskip("torchdiffeq", reason="needs torchdiffeq: make libraries")
torch = pytest.importorskip("torch", reason="needs PyTorch")

import adprotocol
from adprotocol import cond, within_gradient


class Dynamics(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        self.asked = []

    def forward(self, t, y):
        tracked = within_gradient(dict(self.named_parameters()))
        self.asked.append(tracked)
        return cond(tracked, lambda y: self.net(y**3), lambda y: self.net(y**3), y)


def test_the_gradient_of_a_solution_is_that_of_backward():
    torch.manual_seed(0)
    dynamics, y0, t = Dynamics(), torch.tensor([2.0, 0.5]), torch.linspace(0.0, 1.0, 5)

    def loss(dynamics):
        return torchdiffeq.odeint(dynamics, y0, t, method="rk4").abs().mean()

    value, gradient = adprotocol.value_and_grad(loss)(dynamics)
    assert set(dynamics.asked) == {True}
    native = loss(dynamics)
    native.backward()
    assert torch.equal(value, native.detach())
    for name, parameter in dynamics.named_parameters():
        torch.testing.assert_close(gradient[name], parameter.grad)
    dynamics.asked.clear()
    with torch.no_grad():
        loss(dynamics)
    assert set(dynamics.asked) == {False}
