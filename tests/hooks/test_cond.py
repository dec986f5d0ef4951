"""cond on plain values."""

import autograd
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from adprotocol import NonDifferentiable, cond
from adprotocol.errors import (
    BranchError,
    MixedFrameworksError,
    PredicateError,
    PredicateShapeError,
    UnclaimedTypeError,
)


class Unclaimed:
    shape, dtype = (), "bool"
    __array__ = None


@pytest.mark.parametrize(
    ("pred", "error", "words"),
    [
        (1.0, PredicateError, ""),
        (1, PredicateError, ""),
        (-2, PredicateError, "swap the branches"),  # what `~` makes of True
        ("True", PredicateError, ""),
        (None, PredicateError, ""),
        ([True], PredicateError, ""),
        pytest.param(object(), PredicateError, "", id="object"),
        (bool, PredicateError, ""),
        pytest.param(lambda: True, PredicateError, "", id="lambda"),
        (np.float64(1), PredicateError, ""),
        (np.array(1), PredicateError, ""),
        (np.array(True, dtype=object), PredicateError, ""),
        (np.array([True, False, True]), PredicateShapeError, ""),
        (np.array([True]), PredicateShapeError, ""),
        (np.array([], dtype=bool), PredicateShapeError, ""),
        (NonDifferentiable(np.array([True])), PredicateShapeError, ""),
        (NonDifferentiable(1.0), PredicateError, ""),
        (Unclaimed(), UnclaimedTypeError, ""),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_any_other_predicate_is_an_error(pred, error, words):
    def never(*_):
        pytest.fail("a branch ran")

    with pytest.raises(error) as caught:
        cond(pred, never, never, 1.0)
    assert isinstance(caught.value, TypeError)
    assert words in str(caught.value)
    shown = pred.value if isinstance(pred, NonDifferentiable) else pred
    assert type(shown).__name__ in str(caught.value)


@pytest.mark.parametrize("branch", [1.0, None, "s", np.ones(2), [abs]])
def test_a_branch_that_cannot_be_called_is_named(branch):
    with pytest.raises(BranchError, match="true_fun") as caught:
        cond(True, branch, abs, 1.0)
    assert isinstance(caught.value, TypeError)
    with pytest.raises(BranchError, match="false_fun"):
        cond(True, abs, branch, 1.0)  # also where it would not run


def test_two_frameworks_are_an_error_that_names_both():
    x, y, held = torch.ones(1), jnp.ones(1), np.empty(1, dtype=object)
    held[0] = x
    take = lambda *_: 1.0
    for pred, operands in (
        (True, (x, y)),
        (True, ([x], {"a": (y,)})),
        (jnp.array(True), (x,)),
        (torch.tensor(True), (y, 1.0)),
        (True, (held, y)),
    ):
        with pytest.raises(MixedFrameworksError, match=r"torch and jax|jax and torch"):
            cond(pred, take, take, *operands)

    def f(b):
        with pytest.raises(MixedFrameworksError, match="autograd"):
            cond(True, take, take, b, x)
        return b

    autograd.grad(f)(1.0)
