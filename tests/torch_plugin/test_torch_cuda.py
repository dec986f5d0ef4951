"""PyTorch on a CUDA device."""

import pytest
import torch

from adprotocol import cond, non_differentiable, within_gradient

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
    da, db = torch.autograd.grad(result.sum(), (a, b))
    assert (da.item(), db.item()) == (2.0, 0.0)


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
