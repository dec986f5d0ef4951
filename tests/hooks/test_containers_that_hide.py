"""Containers that hide what they hold: each question looks inside, or is refused."""

import collections
import functools
import types
from dataclasses import dataclass
from typing import Any

import autograd
import numpy as np
import pytest
from hiding import HIDING, History, record, with_item

import adprotocol
from adprotocol import non_differentiable, prevent_gradient, within_gradient
from adprotocol.errors import ADProtocolError, GradientPreventedError, OpaqueValueError


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


def test_a_cached_function_is_a_function():
    cached = functools.lru_cache(lambda x: x)
    cached(np.float64(2.0))
    assert within_gradient({"f": cached}) is False


def test_the_error_names_what_is_hidden_and_where():
    with pytest.raises(OpaqueValueError, match=r"History at 'layers\.0', which holds an autograd ArrayBox"):
        autograd.grad(lambda x: x * within_gradient({"layers": [History([x])]}))(1.0)


@dataclass
class Output(collections.OrderedDict):
    """The outputs of transformers: each field that is set is an item too."""

    loss: Any = None
    state: Any = None

    def __post_init__(self):
        for name in ("loss", "state"):
            if getattr(self, name) is not None:
                self[name] = getattr(self, name)

    def __setattr__(self, name, value):
        if name in self.keys() and value is not None:
            super().__setitem__(name, value)
        super().__setattr__(name, value)


def test_a_dataclass_that_is_a_dict_is_rebuilt_with_its_fields_and_items(gradient):
    def f(x):
        output = non_differentiable(with_item(Output(loss=2.0 * x), [x]))
        assert list(output) == ["loss", "held"]
        assert output.loss is output["loss"]
        assert within_gradient(output) is False
        assert type(output) is Output
        return output["loss"] * output["held"][0] * x

    assert gradient(f)(3.0) == 18.0


def test_a_dataclass_that_is_a_dict_is_auxiliary_output_and_a_model():
    jnp = pytest.importorskip("jax.numpy", reason="needs JAX")
    model = Output(loss=jnp.float32(2.0), state=jnp.int32(3))
    (_, aux), found = adprotocol.value_and_grad(lambda m: (m.loss ** m["state"], Output(state=m.loss)), has_aux=True)(
        model
    )
    assert found.loss == found["loss"] == 12.0
    assert found.state is None
    assert aux.state == 2.0
    assert adprotocol.combine(*adprotocol.partition(model))["loss"] == 2.0
