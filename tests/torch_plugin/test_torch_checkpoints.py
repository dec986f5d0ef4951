"""Questions inside `torch.utils.checkpoint`, whose backward pass runs the function again."""

import pytest
import torch
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint
from torch_release import needs_levels_around_checkpoint

import adprotocol
from adprotocol import within_gradient

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


@needs_levels_around_checkpoint
@pytest.mark.parametrize("level", [jvp, vmap, dual_level])
def test_an_answer_that_another_level_does_not_change_is_right(level):
    # The leaf is tracked by the tape, before and after the level; the constant by nothing.
    x = leaf()
    for about, scale in ((x, 1.5), (torch.tensor(0.3), 0.5)):
        value = level(lambda y, about=about: kept(lambda y: layer(x, about), y))(torch.tensor(1.0).double())
        (got,) = torch.autograd.grad(value, x)
        weight = 2.0 if level is vmap else 1.0
        assert got.item() == pytest.approx(weight * scale * torch.cos(torch.tensor(scale * X)).item())


@pytest.mark.parametrize("level", [jvp, dual_level])
@pytest.mark.parametrize("times", [1, 2])
def test_a_level_inside_the_checkpoint_comes_again(level, times):
    x = leaf()
    constant = torch.tensor(0.3, dtype=torch.float64)
    value = kept(lambda x: torch.sin(level(lambda y: layer(x, y))(constant)), x)
    for _ in range(times):
        (got,) = torch.autograd.grad(value, x, retain_graph=True)
    by_hand = leaf()
    (want,) = torch.autograd.grad(torch.sin(torch.sin(1.5 * by_hand)), by_hand)
    assert got.item() == pytest.approx(want.item())


@needs_levels_around_checkpoint
def test_a_backward_pass_within_the_level_is_right():
    x = leaf()
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.tensor(0.3, dtype=torch.float64), torch.ones((), dtype=torch.float64))
        kept(lambda y: layer(x, y), dual).backward()
    assert x.grad.item() == pytest.approx(1.5 * torch.cos(torch.tensor(1.5 * X)).item())
