"""What a concrete `cond` adds to its branch."""

import jax
import numpy as np
import pytest
import torch
from interleave import call
from row import added

from adprotocol import cond


def identity(x):
    return x


def successor(x):
    return x + 1.0


def as_numpy(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else x


BRANCHES = {"identity": identity, "x + 1": successor}


@pytest.mark.parametrize(
    ("what", "operand", "name", "microseconds"),
    [
        ("plain torch tensor", lambda: torch.ones(3), "identity", 0.7),
        ("plain torch tensor", lambda: torch.ones(3), "x + 1", 0.9),
        ("torch tensor that requires grad", lambda: torch.ones(3, requires_grad=True), "identity", 1.0),
        ("torch tensor that requires grad", lambda: torch.ones(3, requires_grad=True), "x + 1", 2.5),
        ("computed torch tensor", lambda: torch.ones(3, requires_grad=True) * 2, "x + 1", None),
        ("jax.Array", lambda: jax.numpy.ones(3), "identity", None),
        ("float", lambda: 1.0, "identity", None),
    ],
)
def test_cond(side_by_side, record, what, operand, name, microseconds):  # noqa: PLR0913, PLR0917
    x, chosen, branch = operand(), True, BRANCHES[name]
    assert np.array_equal(as_numpy(cond(chosen, branch, identity, x)), as_numpy(branch(x)))
    found = side_by_side(call(cond, chosen, branch, successor, x), call(branch, x))
    record(added(f"cond(True, {name}, …), {what}", "the branch alone", found, microseconds))
