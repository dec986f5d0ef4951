"""ADPROTOCOL_CHECK_BRANCHES: what eager tests find of the branch not taken."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from adprotocol import cond as plain
from adprotocol._hooks import branch_check
from adprotocol.errors import BranchError, BranchMismatchError, PredicateError

cond = branch_check.checking(plain)
ARRAYS = {"numpy": np.asarray, "jax": jnp.asarray, "torch": torch.as_tensor}


@pytest.fixture(params=ARRAYS)
def array(request):
    return ARRAYS[request.param]


@pytest.mark.parametrize("pred", [True, False, np.True_])
def test_equal_branches_pass_and_the_chosen_one_is_returned(array, pred):
    x = array([1.0, 2.0])
    got = cond(pred, lambda x: {"y": 2.0 * x, "n": "name"}, lambda x: {"y": x * 3.0, "n": "name"}, x)
    np.testing.assert_allclose(got["y"], [2.0, 4.0] if pred else [3.0, 6.0])


@pytest.mark.parametrize("pred", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: x[:1],
        lambda x: x > 0.0,
        lambda x: (x, x),
        lambda x: {"y": x},
        lambda _: None,
        lambda _: 1.0,
        lambda _: "name",
    ],
)
def test_a_mismatch_is_found_whichever_branch_runs(array, pred, wrong):
    x = array([1.0, 2.0])
    for branches in ((lambda x: 2.0 * x, wrong), (wrong, lambda x: 2.0 * x)):
        with pytest.raises(BranchMismatchError, match=r"(?s)Make them equal.*raised because ADPROTOCOL_CHECK_BRANCHES"):
            cond(pred, *branches, x)


def test_a_predicate_that_is_an_array_is_checked_too():
    for make in (jnp.asarray, torch.as_tensor):
        x = make([1.0, 2.0])
        with pytest.raises(BranchMismatchError):
            cond((x > 0.0).all(), lambda x: x, lambda x: x.sum(), x)


def test_numbers_match_numbers_and_scalars_that_can_hold_them():
    assert cond(True, lambda: 1.0, lambda: 0) == 1.0
    assert cond(True, lambda: jnp.float32(1.0), lambda: 0.0) == 1.0
    assert cond(True, lambda: np.float64(1.0), lambda: 0.0) == 1.0
    with pytest.raises(BranchMismatchError):
        cond(True, lambda: jnp.int32(1), lambda: 0.5)


def test_staged_branches_are_compared_by_the_framework():
    calls = []

    def branch(x):
        calls.append(x)
        return x

    jax.jit(lambda x: cond(x > 0.0, branch, lambda x: 2.0 * x, x))(1.0)
    assert len(calls) == 1
    torch.vmap(lambda x: cond(x > 0.0, branch, lambda x: 2.0 * x, x))(torch.ones(2))
    assert len(calls) == 2


def test_other_errors_are_as_without_it():
    with pytest.raises(BranchError):
        cond(True, 1.0, lambda: 2.0)
    with pytest.raises(PredicateError):
        cond(1, lambda: 1.0, lambda: 2.0)
    calls = []
    with pytest.raises(ZeroDivisionError):
        cond(True, lambda: 1 / 0, lambda: calls.append(1))
    assert calls == []


PROGRAM = """
import sys, adprotocol
from adprotocol.errors import BranchMismatchError
try:
    adprotocol.cond(True, lambda: 1.0, lambda: "a")
except BranchMismatchError:
    print("found")
"""


@pytest.mark.parametrize(("value", "printed"), [("1", "found\n"), ("0", ""), ("", "")])
def test_the_environment_decides(value, printed):
    environment = {**os.environ, branch_check.VARIABLE: value}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == printed
