"""Programs on which the package and the program by hand once differed, made small."""

import pytest
import torch
from torch.func import jacfwd, jvp, vmap
from torch.utils.checkpoint import checkpoint

from adprotocol import cond, value_and_grad, within_gradient
from adprotocol.errors import UndecidableError

X = torch.tensor(0.7, dtype=torch.float64)


def compiled(f):
    torch._dynamo.reset()
    return torch.compile(f, backend="eager", fullgraph=True)


def test_a_compiled_branch_that_returns_what_an_ended_vmap_computed():
    def inside(x, y):
        return cond(within_gradient(x), lambda z: z, lambda z: vmap(lambda w: w * 2.0)(y.expand(2)).sum(), y)

    f = compiled(lambda x: jvp(lambda y: inside(x, y), (x,), (torch.ones_like(x),)))
    assert f(X) == (4.0 * X, 4.0)


def test_a_call_around_another_with_the_same_module_differentiates_both():
    module = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    weight = module.weight.item()

    def inner(x):
        value, gradient = value_and_grad(lambda m: m(x).sum())(module)
        return 0.5 * value + gradient["weight"].sum()

    value, gradient = value_and_grad(lambda m: inner(m(X.expand(1))))(module)
    # 0.5 w (w x) + w x
    assert value.item() == pytest.approx(0.5 * weight**2 * 0.7 + weight * 0.7)
    assert gradient["weight"].item() == pytest.approx(weight * 0.7 + 0.7)


def test_a_question_in_torch_func_in_a_reentrant_checkpoint_is_refused():
    def layer(x, is_training=None):
        def inside(y):
            return cond(within_gradient(x) if is_training is None else is_training, torch.sin, torch.cos, y)

        return checkpoint(jacfwd(inside), x, use_reentrant=True)

    # The first run would answer False, the second True.
    x = X.clone().requires_grad_()
    with pytest.raises(UndecidableError, match="use_reentrant=False"):
        layer(x)
    layer(x, is_training=True).backward()
    assert x.grad == -torch.sin(X)
