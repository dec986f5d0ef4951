"""Containers that hide what they hold: each question looks inside, or is refused."""

import types

import autograd
import numpy as np
import pytest
from hiding import HIDING, record

import adprotocol
from adprotocol import non_differentiable, prevent_gradient, within_gradient
from adprotocol.errors import ADProtocolError, GradientPreventedError


def attempt(question):
    try:
        return question()
    except GradientPreventedError:
        return "prevented"
    except ADProtocolError:
        return "refused"


@pytest.fixture(params=["autograd", "jax"])
def gradient(request):
    if request.param == "autograd":
        return autograd.grad
    return pytest.importorskip("jax", reason="needs JAX").grad


@pytest.mark.parametrize(
    "within", [lambda v: v, lambda v: [v], lambda v: types.SimpleNamespace(v=v)], ids=["", "in a list", "in an object"]
)
@pytest.mark.parametrize("hide", HIDING)
def test_what_is_hidden_is_seen_or_refused(hide, within, gradient):
    seen = []

    def f(x):
        hidden = within(HIDING[hide](x))
        seen.append(attempt(lambda: within_gradient(hidden)))
        seen.append(attempt(lambda: prevent_gradient(hidden, "no") and "passed"))
        return x * 1.0

    gradient(f)(2.0)
    answer, prevented = seen
    assert answer is True or answer == "refused"
    assert prevented in ("prevented", "refused")


@pytest.mark.parametrize("hide", HIDING)
def test_what_is_hidden_is_made_constant_or_refused(hide, gradient):
    asked = []

    def f(x):
        constant = attempt(lambda: non_differentiable(HIDING[hide](x)))
        asked.append("refused" if type(constant) is str and constant == "refused" else within_gradient(constant))
        return x * 1.0

    gradient(f)(2.0)
    assert asked[0] in (False, "refused")


@pytest.mark.parametrize("hide", HIDING)
def test_what_takes_a_gradient_is_not_frozen_for_being_hidden(hide):
    jnp = pytest.importorskip("jax.numpy", reason="needs JAX")
    model = {"w": jnp.float32(2.0), "hidden": HIDING[hide](jnp.float32(3.0))}
    try:
        found = adprotocol.grad(lambda model: model["w"] ** 2)(model)
    except ADProtocolError:
        return
    assert [leaf for leaf in adprotocol.extend.tree_leaves((found["hidden"],)) if leaf is not None]


@pytest.mark.parametrize("hide", HIDING)
def test_what_hides_no_array_is_a_constant(hide):
    hidden = HIDING[hide](3)
    assert within_gradient(hidden) is False
    guarded = prevent_gradient([hidden], "no")[0]
    assert guarded is hidden or isinstance(guarded, np.void)  # a record is copied
    assert within_gradient(non_differentiable(hidden)) is False


def test_a_record_is_made_constant_with_all_its_fields():
    def f(x):
        constant = non_differentiable(record(x))
        assert isinstance(constant, np.void)
        assert within_gradient(record(x)) is True
        return constant["held"] * x

    assert autograd.grad(f)(3.0) == 3.0
