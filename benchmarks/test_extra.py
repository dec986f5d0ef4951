"""What has no target: containers, `cond`, `non_differentiable`, a JAX tracer."""

import jax
import torch
from interleave import call
from row import Row, compared, duration

from adprotocol import cond, non_differentiable, within_gradient


def any_tensor(tensors):
    return any(t.requires_grad and torch.is_grad_enabled() for t in tensors.values())


def test_dict(side_by_side, record):
    tensors = {f"layer{i}": torch.ones(3) for i in range(10)}
    assert within_gradient(tensors) is False
    assert any_tensor(tensors) is False
    found = side_by_side(call(within_gradient, tensors), call(any_tensor, tensors))
    record(compared("within_gradient, dict of 10 plain torch tensors", "any(…) over its values", found))


def test_dict_tracked(side_by_side, record):
    tensors = {f"layer{i}": torch.ones(3, requires_grad=True) for i in range(10)}
    assert within_gradient(tensors) is True
    assert any_tensor(tensors) is True
    found = side_by_side(call(within_gradient, tensors), call(any_tensor, tensors))
    record(compared("within_gradient, dict of 10 that require grad", "any(…), stops at the first", found))


def test_jax_grad(side_by_side, record):
    seen = []

    def bare(x):
        return isinstance(x, jax.core.Tracer)

    def asked(x):
        assert within_gradient(x) is True
        assert bare(x)
        seen.append(side_by_side(call(within_gradient, x), call(bare, x)))
        return x * x

    assert jax.grad(asked)(3.0) == 6.0
    record(compared("within_gradient, tracer of eager jax.grad", "isinstance(x, Tracer)", *seen))


def _cond(side_by_side, record, what, x):
    def identity(x):
        return x

    def other(x):
        return x + 1.0

    chosen = True
    assert cond(chosen, identity, other, x) is x
    found = side_by_side(call(cond, chosen, identity, other, x), call(identity, x))
    reference = f"the branch alone: {duration(found.reference)}"
    record(Row(what, duration(found.ours), reference, f"+ {duration(found.difference)}"))


def test_cond_plain(side_by_side, record):
    _cond(side_by_side, record, "cond(True, f, g, x), plain torch tensor", torch.ones(3))


def test_cond_tracked(side_by_side, record):
    _cond(side_by_side, record, "cond(True, f, g, x), torch tensor that requires grad",
          torch.ones(3, requires_grad=True))  # fmt: skip


def test_non_differentiable(side_by_side, record):
    x = torch.ones(3, requires_grad=True)
    assert not non_differentiable(x).requires_grad
    found = side_by_side(call(non_differentiable, x), call(torch.Tensor.detach, x))
    record(compared("non_differentiable, torch tensor that requires grad", "x.detach()", found))
