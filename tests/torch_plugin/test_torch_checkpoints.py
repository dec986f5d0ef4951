"""Questions inside `torch.utils.checkpoint`, whose backward pass runs the function again."""

from concurrent.futures import ThreadPoolExecutor

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


def reentrant(function, *args):
    return checkpoint(function, *args, use_reentrant=True)


def plain(function, *args):
    return function(*args)


# Each with what checkpoints a block in it.
WAYS = {
    "tracked": lambda m, x, run: run(m.block, x * m.stem),
    "used outside too": lambda m, x, run: run(m.block, x * m.stem) + m.block(x),
    "by a function": lambda m, x, run: run(lambda x: {"y": m.block(x)}, x * m.stem)["y"],
    "a teacher": lambda m, x, run: m.stem * torch.no_grad()(run)(m.block, x),
    "in a thread": lambda m, x, run: in_a_thread(lambda: run(m.block, x * m.stem)),
}
# Of data, whose gradients PyTorch loses with a warning, and of libraries.
LOST = {
    "data": lambda m, x: reentrant(m.block, x),
    "frozen": lambda m, x: reentrant(m.block, x * m.stem.detach()),
    "data, used outside too": lambda m, x: reentrant(m.block, x) + m.block(x),
    "data, by a function": lambda m, x: reentrant(lambda x: {"y": m.block(x)}, x)["y"],
    "library": lambda m, x: Own.apply(m.block, x * m.stem),
    "used outside too": lambda m, x: Own.apply(m.block, x * m.stem) + m.block(x),
}


def in_a_thread(function):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


SELECTED = ["block.*", "head.*", "stem"]


@pytest.mark.parametrize("way", LOST)
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("call", [grad, nested])
def test_a_gradient_that_the_engine_does_not_reach_is_refused(way, flag, call):
    net = Adapted(LOST[way]).requires_grad_(flag)
    kept = net.block.weight.grad = torch.full((1, 1), 7.0)
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        call(lambda m: m(torch.ones(1, 1)), where=SELECTED)(net)
    assert net.block.weight.grad is kept
    assert kept.item() == 7.0
    assert net.head.weight.grad is None


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")  # of the teacher
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("where", [SELECTED, ["head.*", "unused.*"]], ids=["selected", "frozen"])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("call", [grad, nested])
def test_a_gradient_through_a_reentrant_checkpoint(way, where, flag, call):
    answers, net = [], Adapted(None).requires_grad_(flag)

    def gradient(run):
        def way_of(m, x):
            answers.append(within_gradient(m.block.weight))
            return WAYS[way](m, x, run)

        net.way = way_of
        return call(lambda m: m(torch.ones(1, 1)) ** 2, where=where)(net)

    torch.testing.assert_close(gradient(reentrant), gradient(plain))
    assert set(answers) == {where is SELECTED}
    assert net.head.weight.requires_grad is flag


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("way", LOST)
def test_a_frozen_block_in_such_a_checkpoint_is_right(way):
    net = Adapted(LOST[way])
    gradient = grad(lambda m: m(torch.ones(1, 1)), where="head.weight")(net)["head.weight"]
    with torch.no_grad():
        torch.testing.assert_close(gradient, LOST[way](net, torch.ones(1, 1)))


def test_a_reentrant_checkpoint_that_closes_over_a_tensor():
    w, x = torch.tensor(3.0), torch.tensor(2.0)
    assert grad(lambda w: w**2 + reentrant(lambda y: w * x * y, w))(w) == 18.0
    assert grad(lambda w: grad(lambda v: reentrant(lambda v: w * x * v**2, v))(w))(w) == 24.0
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        grad(lambda w: w**2 + reentrant(lambda x: w * x, x))(w)
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        grad(lambda w: grad(lambda v: v * reentrant(lambda x: w * x, x))(w))(w)


def test_a_reentrant_checkpoint_is_run_again_for_the_derivative_with_the_random_numbers_of_the_first_run():
    runs, x = [], torch.ones(64)

    def block(x):
        runs.append(torch.is_grad_enabled())
        return torch.nn.functional.dropout(x * 3.0, 0.5)

    value, pull = adprotocol.vjp(lambda x: reentrant(block, x), x)
    assert runs == [True]
    torch.testing.assert_close(pull(torch.ones(64))[0], value.detach())
    assert runs == [True, True]


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
