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
    ("pred", "error", "builtin"),
    [
        (1.0, PredicateError, TypeError),
        (1, PredicateError, TypeError),
        ("True", PredicateError, TypeError),
        (None, PredicateError, TypeError),
        ([True], PredicateError, TypeError),
        pytest.param(object(), PredicateError, TypeError, id="object"),
        (bool, PredicateError, TypeError),
        pytest.param(lambda: True, PredicateError, TypeError, id="lambda"),
        (np.float64(1), PredicateError, TypeError),
        (np.array(1), PredicateError, TypeError),
        (np.array(True, dtype=object), PredicateError, TypeError),
        (np.array([True, False, True]), PredicateShapeError, ValueError),
        (np.array([True]), PredicateShapeError, ValueError),
        (np.array([], dtype=bool), PredicateShapeError, ValueError),
        (NonDifferentiable(np.array([True])), PredicateShapeError, ValueError),
        (NonDifferentiable(1.0), PredicateError, TypeError),
        (Unclaimed(), UnclaimedTypeError, TypeError),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_any_other_predicate_is_an_error(pred, error, builtin):
    def never(*_):
        pytest.fail("a branch ran")

    with pytest.raises(error) as caught:
        cond(pred, never, never, 1.0)
    assert isinstance(caught.value, builtin)
    assert isinstance(caught.value, TypeError)
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
    x, y = torch.ones(1), jnp.ones(1)
    take = lambda *_: 1.0
    for pred, operands in (
        (True, (x, y)),
        (True, ([x], {"a": (y,)})),
        (jnp.array(True), (x,)),
        (torch.tensor(True), (y, 1.0)),
    ):
        with pytest.raises(MixedFrameworksError, match=r"torch and jax|jax and torch"):
            cond(pred, take, take, *operands)
    array = np.empty(1, dtype=object)
    array[0] = x
    with pytest.raises(MixedFrameworksError, match="torch and jax"):
        cond(True, take, take, array, y)

    def f(b):
        with pytest.raises(MixedFrameworksError, match="autograd"):
            cond(True, take, take, b, x)
        return b

    autograd.grad(f)(1.0)


def test_inverted_python_bool_is_refused_with_the_remedy():
    with pytest.raises(PredicateError, match="swap the branches"):
        cond(-2, lambda: 1, lambda: 2)  # what `~` makes of True
