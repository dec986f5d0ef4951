"""Questions inside `torch.utils.checkpoint`, whose backward pass runs the function again."""

import threading

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch_release import needs_levels_around_checkpoint

import adprotocol
from adprotocol import grad, within_gradient
from adprotocol.errors import UndecidableError

X = 0.7


def leaf(value=X):
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def layer(x, y, answer=None):
    """Return sin(1.5 x), the branch for y being tracked, or sin(0.5 x)."""
    answer = within_gradient(y) if answer is None else answer
    return adprotocol.cond(answer, lambda: torch.sin(1.5 * x), lambda: torch.sin(0.5 * x))


def kept(function, *args):
    return checkpoint(function, *args, use_reentrant=False)


def jvp(function):
    def pushed(y):
        value, tangent = torch.func.jvp(function, (y,), (torch.ones_like(y),))
        return value + tangent

    return pushed


def dual_level(function):
    def pushed(y):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(function(forward_ad.make_dual(y, torch.ones_like(y)))).primal

    return pushed


def vmap(function):
    return lambda y: torch.vmap(function)(torch.stack([y, 0.5 * y])).sum()


@needs_levels_around_checkpoint
@pytest.mark.parametrize(("level", "is_tracked"), [(jvp, False), (dual_level, False), (vmap, True)])
def test_the_remedy_is_right(level, is_tracked):
    x = leaf()
    y = x * 1.0 if is_tracked else torch.tensor(0.3, dtype=torch.float64)
    value = level(lambda y: kept(lambda y, answer: layer(x, y, answer), y, within_gradient(y)))(y)
    value.backward()
    want = torch.func.grad(lambda x: torch.sin(1.5 * x) * (2 if level is vmap else 1))(x.detach())
    assert x.grad.item() == pytest.approx(want.item())


# What backward() alone differentiates.


class Own(torch.autograd.Function):
    """A checkpoint of a library: it closes over a block, and runs backward() inside."""

    @staticmethod
    def forward(ctx, block, x):
        ctx.block = block
        ctx.save_for_backward(x)
        with torch.no_grad():
            return block(x)

    @staticmethod
    def backward(ctx, cotangent):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.block(x)
        torch.autograd.backward(y, cotangent)
        return None, x.grad


class Adapted(torch.nn.Module):
    def __init__(self, way):
        super().__init__()
        self.stem = torch.nn.Parameter(torch.ones(()))
        self.block, self.head = (torch.nn.Linear(1, 1, bias=False) for _ in range(2))
        self.unused = torch.nn.Linear(1, 1)
        self.way = way

    def forward(self, x):
        return self.head(self.way(self, x)).sum()


def nested(fun, where):
    return grad(lambda m: grad(fun, where=where)(m)["head.weight"].sum(), where=where)


WAYS = {
    "data": lambda m, x: checkpoint(m.block, x, use_reentrant=True),
    "frozen": lambda m, x: checkpoint(m.block, x * m.stem.detach(), use_reentrant=True),
    "library": lambda m, x: Own.apply(m.block, x * m.stem),
    "data, used outside too": lambda m, x: checkpoint(m.block, x, use_reentrant=True) + m.block(x),
    "data, by a function": lambda m, x: checkpoint(lambda x: {"y": m.block(x)}, x, use_reentrant=True)["y"],
    "used outside too": lambda m, x: Own.apply(m.block, x * m.stem) + m.block(x),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("call", [grad, nested])
def test_a_gradient_that_the_engine_does_not_reach_is_refused(way, flag, call):
    net = Adapted(WAYS[way]).requires_grad_(flag)
    kept = net.block.weight.grad = torch.full((1, 1), 7.0)
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        call(lambda m: m(torch.ones(1, 1)), where=["block.*", "head.*", "stem"])(net)
    assert net.block.weight.grad is kept
    assert kept.item() == 7.0
    assert net.head.weight.grad is None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_frozen_block_in_such_a_checkpoint_is_right(way):
    net = Adapted(WAYS[way])
    gradient = grad(lambda m: m(torch.ones(1, 1)), where="head.weight")(net)["head.weight"]
    with torch.no_grad():
        torch.testing.assert_close(gradient, WAYS[way](net, torch.ones(1, 1)))


def no_grad_teacher(m, x):
    with torch.no_grad():
        return checkpoint(m.block, x, use_reentrant=True)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize(
    ("way", "where"),
    [(WAYS["data"], ["head.*", "unused.*"]), (WAYS["frozen"], ["head.*", "un*"]), (no_grad_teacher, "*")],
)
@pytest.mark.parametrize("call", [grad, nested], ids=["grad", "nested"])
def test_zeros_beside_a_reentrant_checkpoint_that_loses_nothing(way, where, call):
    net = Adapted(way)
    gradient = call(lambda m: m(torch.ones(1, 1)) ** 2, where=where)(net)
    assert gradient["unused.weight"].item() == 0.0
    y = net.block(torch.ones(1, 1)).item()
    expected = 2 * y * y * (net.head.weight.item() if call is grad else 1)
    torch.testing.assert_close(gradient["head.weight"].item(), expected)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_reentrant_checkpoint_that_loses_a_closed_over_tensor_is_refused():
    w, x = torch.tensor(3.0), torch.tensor(2.0)
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        grad(lambda w: w**2 + checkpoint(lambda x: w * x, x, use_reentrant=True))(w)
    # One of an outer derivative, and one that no call differentiates.
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        grad(lambda w: grad(lambda v: v * checkpoint(lambda x: w * x, x, use_reentrant=True))(w))(w)
    v = torch.tensor(5.0, requires_grad=True)
    assert grad(lambda w: w * checkpoint(lambda x: v * x, x, use_reentrant=True))(w) == 10.0


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_reentrant_checkpoints_of_another_thread_are_no_hindrance():
    net, other = Adapted(lambda m, x: m.block(x)), Adapted(WAYS["data"])
    begun, stop = threading.Event(), threading.Event()

    def evaluate():
        while not stop.is_set():
            other(torch.ones(1, 1))
            begun.set()

    def loss(m):
        begun.clear()
        begun.wait(10)
        return m(torch.ones(1, 1))

    thread = threading.Thread(target=evaluate)
    thread.start()
    try:
        assert grad(loss)(net)["unused.weight"].item() == 0.0
    finally:
        stop.set()
        thread.join()


def test_zeros_for_a_parameter_that_the_function_ignores_and_an_error_where_it_ignores_all():
    net = Adapted(lambda m, x: m.block(x))
    kept = net.block.weight.grad = torch.full((1, 1), 7.0)
    gradient = grad(lambda m: m(torch.ones(1, 1)))(net)
    assert gradient["unused.weight"].item() == 0.0
    assert net.block.weight.grad is kept
    for constant in (lambda m: m(torch.ones(1, 1)).detach(), lambda m: torch.tensor(1.0)):
        with pytest.raises(UndecidableError, match="does not depend on"):
            grad(constant)(net)
        with pytest.raises(UndecidableError, match="does not depend on"):
            torch.vmap(lambda x, constant=constant: grad(constant)(net)["stem"] * x)(torch.ones(2))
