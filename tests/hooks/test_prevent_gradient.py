"""`prevent_gradient` on every framework: it passes what nobody differentiates, and raises where somebody does."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from ad_backends import on_every_backend
from minimal_plugin import Array, Minimal

from adprotocol import prevent_gradient, within_gradient
from adprotocol.errors import (
    ADProtocolError,
    ArgumentError,
    GradientPreventedError,
    MixedFrameworksError,
    PluginError,
)
from adprotocol.hookspecs import hookimpl
from adprotocol.plugins import register, unregister

MESSAGE = "the table has no derivative"
prevented = partial(pytest.raises, GradientPreventedError, match=MESSAGE)


def guard(value):
    return prevent_gradient(value, MESSAGE)


@on_every_backend
def test_the_error_says_what_was_given_by_whom_it_is_differentiated_and_the_remedy(ad):
    with pytest.raises(RuntimeError) as caught:
        ad.derivative(lambda x: guard(x).sum())(ad.make([1.0, 2.0]))
    text = str(caught.value)
    assert isinstance(caught.value, ADProtocolError)
    assert text.startswith(MESSAGE)
    assert "shape (2,)" in text
    assert "float" in text
    assert f"differentiated by {ad.name}: " in text
    assert "non_differentiable" in text


@pytest.mark.parametrize(
    "value", [1, 2.5, 1j, True, "text", b"", None, print, int, len, [], {}, (), np.ones(3)], ids=str
)
def test_values_of_no_framework_pass(value):
    assert guard(value) is value


def test_a_message_that_is_no_text_is_refused():
    with pytest.raises(ArgumentError, match=r"an int as message; give the text"):
        prevent_gradient(1.0, 3)
    with pytest.raises(TypeError):
        prevent_gradient(1.0)


def test_object_arrays_are_guarded_under_jit():
    def loss(x):
        held = np.empty(2, dtype=object)
        held[0], held[1] = 1.0, x
        return guard(held)[1] * 2.0

    assert float(jax.jit(loss)(1.5)) == 3.0
    with prevented():
        jax.grad(jax.jit(loss))(1.5)


def test_values_of_two_frameworks_are_each_asked_alone():
    # A container of two frameworks is one value for `within_gradient`, but each leaf passes or raises for itself.
    mixed = [jnp.ones(2), torch.ones(2)]
    assert guard(mixed) is mixed
    with pytest.raises(MixedFrameworksError):
        within_gradient(mixed)


def test_a_module_passes_where_no_gradient_is_recorded_and_is_refused_where_one_is():
    module = torch.nn.Linear(2, 1)
    with prevented() as caught:
        guard(module)
    assert "at 'bias'" in str(caught.value)
    with torch.no_grad():
        assert guard(module) is module
    module.requires_grad_(False)
    assert guard(module) is module


class Answer(Array):
    """A staged boolean of a system that traces."""


class Staging(Minimal):
    """Leaves its answers open, and has no hook that would guard a value."""

    @hookimpl
    def within_gradient(self, value):
        return Answer()


class Guarding(Staging):
    """The same, with the hook."""

    @hookimpl
    def prevent_gradient(self, value, message):
        return (message, value)


@pytest.fixture
def registered(request):
    record = register(request.param(), "fakefw")
    yield
    unregister(record.name)


@pytest.mark.parametrize("registered", [Staging], indirect=True)
@pytest.mark.parametrize("given", [Array(), [1.0, Array()]], ids=["array", "container"])
@pytest.mark.usefixtures("registered")
def test_a_staged_answer_of_a_plugin_without_the_hook_is_an_error(given):
    with pytest.raises(PluginError, match=rf"'fakefw' has no hook prevent_gradient.*{MESSAGE}"):
        guard(given)


@pytest.mark.parametrize("registered", [Guarding], indirect=True)
@pytest.mark.usefixtures("registered")
def test_the_hook_of_a_plugin_gets_each_leaf_and_the_message_with_its_path():
    array = Array()
    assert guard(array) == (MESSAGE, array)
    assert guard({"a": [1.0, array]}) == {"a": [1.0, (f"{MESSAGE} (at 'a.1')", array)]}
