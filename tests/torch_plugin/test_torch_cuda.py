"""PyTorch on a CUDA device."""

import numpy as np
import pytest
import torch

from adprotocol import (
    conformance,
    custom_derivative,
    grad,
    host_function,
    value_and_grad,
)
from adprotocol.errors import UndecidableError

pytestmark = pytest.mark.cuda


@pytest.fixture
def x():
    return torch.tensor([2.0], device="cuda")


def test_a_gradient_penalty_while_an_older_graph_is_alive(x):
    # The engine runs on a thread of the device, which numbers its nodes by itself.
    module = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).cuda()

    def penalty(m):
        return (grad(lambda x: m(x).sum())(x) ** 2).sum()

    def penalty_by_hand():
        point = x.clone().requires_grad_()
        return (torch.autograd.grad(module(point).sum(), point, create_graph=True)[0] ** 2).sum()

    older = module(x)
    for penalise in (penalty, lambda _: penalty_by_hand()):
        _, gradients = value_and_grad(penalise)(module)
        native = torch.autograd.grad(penalty_by_hand(), list(module.parameters()), allow_unused=True)
        for found, want in zip(gradients.values(), native, strict=True):
            assert torch.allclose(found, torch.zeros_like(found) if want is None else want)
    with pytest.raises(UndecidableError, match="computed, before the call"):
        value_and_grad(lambda m: m(x).sum() * older.sum())(module)


@pytest.mark.slow
def test_the_plugin_conforms_on_the_device():
    report = conformance.run("torch", device="cuda:0")
    assert report.ok, report.sentence()
    assert report.device == "cuda:0"


def test_a_host_function_with_a_rule_and_autocast(x):
    cube = custom_derivative(host_function(lambda x: np.asarray(x) ** 3, like=lambda x: x))
    cube.defvjp(lambda ct, y, x: (30 * ct * y / x,))
    assert cube(x).device == x.device
    tracked = x.clone().requires_grad_()
    cube(tracked).sum().backward()
    assert tracked.grad.item() == 120.0
    assert torch.func.grad(lambda x: cube(x).sum())(x).item() == 120.0
    assert torch.vmap(torch.func.grad(cube))(x).item() == 120.0
    compiled = torch.compile(lambda x: cube(x).sum(), fullgraph=True, backend="aot_eager")
    tracked = x.clone().requires_grad_()
    compiled(tracked).backward()
    assert tracked.grad.item() == 120.0

    product = custom_derivative(lambda a, b: a @ b)
    product.defvjp(lambda ct, _y, a, b: (ct @ b.T, a.T @ ct))
    a, b = torch.ones(2, 2, device="cuda", requires_grad=True), torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", torch.float16):
        result = product(a, b)
    assert result.dtype == torch.float16
    assert torch.autograd.grad(result.sum(), a)[0].dtype == torch.float32
