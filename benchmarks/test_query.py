"""`within_gradient` beside a one-line function that asks the framework directly."""

import autograd
import jax
import numpy as np
import torch
from autograd.tracer import isbox
from interleave import call
from row import compared

from adprotocol import within_gradient


def bare_torch(x):
    return x.requires_grad and torch.is_grad_enabled()


def bare_jax(x):
    return isinstance(x, jax.core.Tracer)


def bare_false(x):
    return False


def test_torch_tracked(side_by_side, record):
    x = torch.ones(3, requires_grad=True)
    assert within_gradient(x) is True
    assert bare_torch(x) is True
    found = side_by_side(call(within_gradient, x), call(bare_torch, x))
    record(compared("within_gradient, torch tensor that requires grad", "requires_grad and is_grad_enabled()", found,
                    at_most=1.5))  # fmt: skip


def test_torch_untracked(side_by_side, record):
    x = torch.ones(3)
    assert within_gradient(x) is False
    assert bare_torch(x) is False
    found = side_by_side(call(within_gradient, x), call(bare_torch, x))
    record(compared("within_gradient, plain torch tensor", "requires_grad and is_grad_enabled()", found, at_most=2.5))


def test_jax_array(side_by_side, record):
    x = jax.numpy.ones(3)
    assert within_gradient(x) is False
    assert bare_jax(x) is False
    found = side_by_side(call(within_gradient, x), call(bare_jax, x))
    record(compared("within_gradient, concrete jax.Array", "isinstance(x, Tracer)", found, at_most=1.2))


def test_numpy_array(side_by_side, record):
    x = np.ones(3)
    assert within_gradient(x) is False
    found = side_by_side(call(within_gradient, x), call(bare_false, x))
    record(compared("within_gradient, NumPy array", "return False", found, below_ns=150))


def test_float(side_by_side, record):
    assert within_gradient(1.0) is False
    found = side_by_side(call(within_gradient, 1.0), call(bare_false, 1.0))
    record(compared("within_gradient, float", "return False", found, below_ns=150))


def test_autograd_box(side_by_side, record):
    seen = []

    def asked(x):
        assert within_gradient(x) is True
        assert isbox(x)
        seen.append(side_by_side(call(within_gradient, x), call(isbox, x)))
        return x * x

    assert autograd.grad(asked)(3.0) == 6.0
    record(compared("within_gradient, autograd box", "isbox(x)", *seen, at_most=2.5, below_ns=150))
