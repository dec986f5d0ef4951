"""ADPROTOCOL_CHECK_BRANCHES: what eager tests find of the branch not taken."""

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import adprotocol
from adprotocol import cond as plain
from adprotocol._hooks import branch_check
from adprotocol._hooks import where as elementwise
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


def test_a_frozen_error_of_the_other_branch_comes_out_as_it_is():
    @dataclasses.dataclass(frozen=True)
    class RefusedError(Exception):
        why: str

    def refuse(_):
        raise RefusedError("unused")

    with pytest.raises(RefusedError):
        cond(True, lambda x: x, refuse, jnp.ones(()))


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
import adprotocol, numpy
from adprotocol.errors import BranchMismatchError
x = numpy.array([1.0, 2.0, -1.0])
for call in (
    lambda: adprotocol.cond(True, lambda: 1.0, lambda: "a"),
    lambda: adprotocol.where(x > 0.0, lambda x: x - x.mean(), lambda x: x, x),
):
    try:
        call()
    except BranchMismatchError:
        print("found")
"""


@pytest.mark.parametrize(("value", "printed"), [("1", "found\nfound\n"), ("0", ""), ("", "")])
def test_the_environment_decides(value, printed):
    environment = {**os.environ, branch_check.VARIABLE: value}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert done.stdout == printed


# The functions of where.

where = branch_check.checking_where(adprotocol.where, elementwise.choose)


@pytest.mark.parametrize("library", ARRAYS)
def test_a_function_of_where_that_mixes_elements_is_found(library):
    x = ARRAYS[library]([1.0, 2.0, -1.0])
    centred = lambda x: x - sum(x[i] for i in range(3)) / 3.0
    for mask, functions in ((x > 0.0, (centred, abs)), (x < 0.0, (abs, centred))):
        name = "true_fun" if functions[0] is centred else "false_fun"
        with pytest.raises(
            BranchMismatchError, match=rf"(?s){name} of adprotocol.where returned .*0\.33.* and .*0\.66"
        ):
            where(mask, *functions, x)
        with pytest.raises(BranchMismatchError, match=name):
            where(mask, *[lambda x, f=f: {"y": f(x), "n": 1} for f in functions], x)


@pytest.mark.parametrize("library", ARRAYS)
def test_functions_of_where_that_are_elementwise_pass(library):
    x = ARRAYS[library]([4.0, 0.0, -1.0])
    with np.errstate(all="ignore"):
        got = where(x > 0.0, lambda x: x**0.5 / x, lambda x: x * 0.0 + 2.0, x)
    np.testing.assert_allclose(np.asarray(got), [0.5, 2.0, 2.0])
    assert where(True, lambda x: x, lambda x: 1 / 0, 3.0) == 3.0
    rows = ARRAYS[library]([[4.0, 0.0], [-1.0, 1.0]])
    got = where(rows[:, :1] > 0.0, lambda x: x / (x[:, :1] + x[:, 1:]), lambda x: x, rows)
    np.testing.assert_allclose(np.asarray(got), [[1.0, 0.0], [-1.0, 1.0]])


def test_functions_of_where_are_differentiated_and_staged_with_the_check():
    root = lambda xp: lambda x: where(x > 0.0, xp.sqrt, lambda x: 0.0 * x, x).sum()
    mixing = lambda x: where(x > 0.0, lambda x: x - x.mean(), lambda x: x, x).sum()
    x = np.array([4.0, 0.0, -1.0], np.float32)
    for gradient in (jax.grad(root(jnp)), jax.jit(jax.grad(root(jnp)))):
        np.testing.assert_allclose(gradient(jnp.array(x)), [0.25, 0.0, 0.0])
    np.testing.assert_allclose(torch.func.grad(root(torch))(torch.tensor(x)), [0.25, 0.0, 0.0])
    with pytest.raises(BranchMismatchError):
        mixing(torch.tensor(x, requires_grad=True))
    with pytest.raises(BranchMismatchError):
        jax.grad(mixing)(jnp.array(x))
    jax.jit(mixing)(jnp.array(x))  # a program that is staged compares nothing


def test_a_function_of_where_that_fails_for_an_element_not_chosen_is_not_compared():
    matrices = np.array([np.zeros((2, 2)), np.eye(2)])
    got = where(np.array([False, True])[:, None, None], np.linalg.inv, lambda m: m, matrices)
    np.testing.assert_allclose(got, matrices)
