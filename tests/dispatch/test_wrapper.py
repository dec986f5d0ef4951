"""What a traceback shows of this library: the call, and none of its insides."""

from __future__ import annotations

import traceback

import autograd.numpy as anp
import jax
import jax.numpy as jnp
import pytest
import torch

from adprotocol import cond, grad, value_and_grad
from adprotocol.errors import OutputError

VALUES = {
    "a number": 1.0,
    "autograd": anp.ones(2),
    "jax": jnp.ones(2),
    "torch": torch.ones(2),
    "a tensor that is tracked": torch.ones(2, requires_grad=True),
    "a module": torch.nn.Linear(2, 2),
}


def fails(*_values):
    raise ZeroDivisionError


def branches(x):
    return cond(True, fails, fails, x)


def frames(call, *values):
    with pytest.raises(ZeroDivisionError) as caught:
        call(*values)
    found = traceback.extract_tb(caught.value.__traceback__)[1:]  # behind this one
    return ["a user's" if frame.filename == __file__ else frame.name for frame in found]


@pytest.mark.parametrize("name", VALUES)
def test_a_branch_is_behind_one_frame(name):
    assert frames(cond, True, fails, fails, VALUES[name]) == ["cond", "a user's"]


@pytest.mark.parametrize("name", VALUES)
def test_a_function_that_is_differentiated_is_behind_one_frame(name):
    assert frames(value_and_grad(fails), VALUES[name]) == ["differentiated", "a user's"]
    assert frames(grad(fails), VALUES[name]) == ["differentiated", "differentiated", "a user's"]


def test_each_call_of_the_library_shows():
    wanted = ["differentiated", "a user's", "cond", "a user's"]
    assert frames(value_and_grad(branches), torch.ones(2)) == wanted
    assert frames(value_and_grad(lambda x: value_and_grad(branches)(x)[0]), 1.0) == [*wanted[:2], *wanted]


def test_a_staged_branch_shows_no_insides():
    found = frames(jax.jit(lambda x: cond(x[0] > 0, fails, fails, x)), jnp.ones(2))
    assert found == ["a user's", "cond", "a user's"]


def test_an_error_of_the_library_shows_where_it_was_raised():
    with pytest.raises(OutputError) as caught:
        grad(lambda x: x)(torch.ones(2))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "check_scalar"
