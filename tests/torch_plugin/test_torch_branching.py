"""cond on PyTorch, in eager mode and under torch.func."""

import pytest
import torch
from torch.func import grad, jacfwd, jacrev, jvp, vmap

import adprotocol
from adprotocol import cond
from adprotocol.errors import BranchError

XS = torch.tensor([-1.0, 0.0, 4.0])


def leaf(value, dtype=torch.float32):
    return torch.tensor(value, dtype=dtype, requires_grad=True)


def test_an_operand_of_the_other_branch_has_what_pytorch_gives():
    a, b, c = leaf(2.0), leaf([1.0, 2.0]), leaf(3.0)
    for pred in (True, torch.tensor(True)):
        y = cond(pred, lambda a, b, c: a * 5, lambda a, b, c: b.sum() * c, a, b, c)
        assert [g is None for g in torch.autograd.grad(y, (a, b, c), allow_unused=True)] == [False, True, True]
        assert adprotocol.grad(lambda t, pred=pred: cond(pred, lambda a, b: a * 5, lambda a, b: b.sum(), *t))([a, b])[
            1
        ].tolist() == [0.0, 0.0]
    y = cond(False, lambda a, b, c: a * 5, lambda a, b, c: b.sum() * c, a, b, c)
    y.backward()
    assert (a.grad, c.grad) == (None, 3.0)
    assert torch.equal(b.grad, torch.full((2,), 3.0))


def in_a_list(x):
    return cond(x > 0, lambda: torch.stack([x, torch.sqrt(x)])[1], lambda: torch.zeros(()))


def with_in_place(x):
    return cond(x > 0, lambda x: x.clone().mul_(1.0).sqrt_(), lambda x: x * 0.0, x)


class Root(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x.sqrt()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx, g):
        return g / (2 * ctx.saved_tensors[0])

    @staticmethod
    def jvp(ctx, t):
        return t / (2 * ctx.saved_tensors[0])


def custom_function(x):
    return cond(x > 0, Root.apply, lambda x: x * 0.0, x)


SAFE = [in_a_list, with_in_place, custom_function]


@pytest.mark.parametrize("f", SAFE, ids=lambda f: f.__name__)
def test_batched_predicate_keeps_nan_of_the_branch_not_taken_out(f):
    want = torch.tensor([0.0, 0.0, 0.25])
    x = XS.clone().requires_grad_()
    y = vmap(f)(x)
    assert torch.equal(y, torch.tensor([0.0, 0.0, 2.0]))
    assert torch.equal(torch.autograd.grad(y.sum(), x)[0], want)
    assert torch.equal(vmap(grad(f))(XS), want)
    assert torch.equal(vmap(jacrev(f))(XS), want)
    assert torch.equal(grad(lambda x: vmap(f)(x).sum())(XS), want)
    assert torch.equal(vmap(vmap(grad(f)))(XS[None].expand(2, 3)), want.expand(2, 3))
    assert torch.equal(grad(lambda x: vmap(vmap(f))(x).sum())(XS[None]), want[None])
    assert torch.equal(vmap(jacfwd(f))(XS).float(), want)
    assert torch.equal(jvp(vmap(f), (XS,), (torch.ones(3),))[1], want)


def test_an_in_place_change_of_integers_stays_in_its_branch():
    def change(n):
        n[0].add_(10)
        return n * 1

    copied = lambda n: change(n.clone())
    ints = torch.zeros(2, 2, dtype=torch.int64)
    result = vmap(lambda x, n: cond(x > 0, copied, lambda n: n * 1, n))(torch.tensor([-1.0, 1.0]), ints)
    assert result.tolist() == [[0, 0], [10, 0]]
    with pytest.raises(BranchError, match="in place"):  # the caller's own: it would be lost
        vmap(lambda x, n: cond(x > 0, change, lambda n: n * 1, n))(torch.tensor([-1.0, 1.0]), ints)
