"""On a CUDA device: every hook without synchronisation, and captured in a CUDA graph."""

import every_hook
import pytest
import torch

from adprotocol import cond, partition, value_and_grad

pytestmark = pytest.mark.cuda
hook = pytest.mark.parametrize("hook", every_hook.HOOKS, ids=lambda hook: hook.__name__)


def summed(f):
    return lambda x: f(x).sum()


AROUND = {
    "plain": lambda f: f,
    "func.grad": lambda f: torch.func.grad(summed(f)),
    "vmap": torch.func.vmap,
    "vmap of grad": lambda f: torch.func.vmap(torch.func.grad(summed(f))),
}
around = pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)


@pytest.fixture
def never_synchronise():
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode(before)


@pytest.fixture
def x():
    return torch.tensor([0.5, 2.0], device="cuda")


@around
@hook
def test_no_synchronisation(hook, around, x, never_synchronise):
    assert around(hook)(x).is_cuda


@hook
def test_no_synchronisation_on_the_tape(hook, x, never_synchronise):
    x.requires_grad_()
    assert torch.autograd.grad(hook(x).sum(), x)[0].is_cuda


def test_a_read_is_noticed(x, never_synchronise):
    for read in (bool, float, lambda x: cond(x > 0, abs, abs, 1.0)):
        with pytest.raises(RuntimeError, match="synchronizing"):
            read(x[0])


@hook
def test_a_captured_graph_computes_again_what_the_hook_computes(hook, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # as the manual asks: run before capture
        hook(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = hook(x)
    x.copy_(torch.tensor([3.0, -1.0]))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.allclose(result, hook(x.clone()))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_an_operand_of_the_other_branch_stays_on_its_device(shape, x, never_synchronise):
    here = torch.ones(shape, requires_grad=True)
    x.requires_grad_()
    result = cond(True, lambda x, y: x * 2, lambda x, y: y, x, here)
    gradient, unused = torch.autograd.grad(result.sum(), (x, here), allow_unused=True)
    assert (result.device.type, gradient.device.type, here.device.type) == ("cuda", "cuda", "cpu")
    assert unused is None  # as for any argument that a function does not use


def test_a_module_with_a_frozen_part(x, never_synchronise):
    first, last = torch.nn.Linear(2, 3, device="cuda"), torch.nn.Linear(3, 1, device="cuda")
    module = torch.nn.Sequential(first, torch.nn.Tanh(), last)
    partition(module, "2.*")
    _, gradients = value_and_grad(lambda m: m(x).sum(), where="2.*")(module)
    assert gradients["2.weight"].is_cuda
    assert gradients["0.weight"] is None
