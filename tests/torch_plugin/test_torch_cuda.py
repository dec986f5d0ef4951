"""PyTorch on a CUDA device."""

import numpy as np
import pytest
import torch

from adprotocol import (
    cond,
    conformance,
    custom_derivative,
    grad,
    host_function,
    non_differentiable,
    partition,
    value_and_grad,
    within_gradient,
)
from adprotocol.errors import UndecidableError

pytestmark = pytest.mark.cuda


@pytest.fixture
def x():
    return torch.tensor([2.0], device="cuda")


@pytest.fixture
def never_synchronise():
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode(before)


def test_asking_and_a_python_predicate_do_not_synchronise(x, layer, never_synchronise):
    x.requires_grad_()
    layer(x).sum().backward()
    non_differentiable({"x": x})
    with torch.no_grad():
        assert within_gradient(x) is False


def test_answers_on_the_device(x, layer):
    assert layer(x).item() == 10.0
    assert torch.func.grad(lambda x: layer(x).sum())(x).item() == 3.0
    assert torch.compile(layer, fullgraph=True, backend="aot_eager")(x).item() == 10.0


def test_predicate_on_the_device_and_operand_of_the_other_branch(x):
    a, b = x.clone().requires_grad_(), torch.ones((), requires_grad=True)
    result = cond(x[0] > 0, lambda a, b: a * 2, lambda a, b: a * b, a, b)
    da, db = torch.autograd.grad(result.sum(), (a, b), allow_unused=True)
    assert (da.item(), db) == (2.0, None)


def test_streams_and_graphs(x, layer):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert layer(x).item() == 10.0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = layer(x)
    x.fill_(4.0)
    graph.replay()
    assert y.item() == 20.0


def test_gradients_are_computed_on_the_device_without_synchronising(x, never_synchronise):
    model = {"scale": torch.full((1,), 3.0, device="cuda"), "shift": x, "order": 2}
    partition(model)
    value, gradient = value_and_grad(lambda m: (m["scale"] * m["shift"] ** m["order"]).sum(), where="s*")(model)
    torch.cuda.set_sync_debug_mode("default")
    assert value.item() == 12.0
    assert (gradient["scale"].item(), gradient["shift"].item(), gradient["order"]) == (4.0, 12.0, None)
    assert gradient["scale"].is_cuda


def test_module_on_the_device_with_a_frozen_layer(x):
    module = torch.nn.Sequential(torch.nn.Linear(1, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)).cuda()
    _, gradient = value_and_grad(lambda m: m(x).sum(), where="2.*")(module)
    native = torch.autograd.grad(module(x).sum(), [module[2].weight, module[2].bias])
    assert gradient["0.weight"] is None
    assert torch.equal(gradient["2.weight"], native[0])
    assert torch.equal(gradient["2.bias"], native[1])


def test_python_float_beside_tensors_of_the_device(x):
    _, gradient = value_and_grad(lambda m: (m["scale"] * m["x"]).sum())({"scale": 3.0, "x": x})
    assert (gradient["scale"].item(), gradient["x"].item()) == (2.0, 3.0)


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
