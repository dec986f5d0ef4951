"""A plugin without the hooks for rules: what is not differentiated runs, and nothing else does."""

import pytest
from minimal_plugin import Array, Minimal

from adprotocol import custom_derivative, host_function
from adprotocol.errors import PluginError, RuleError
from adprotocol.hookspecs import hookimpl
from adprotocol.plugins import register, unregister


class Tracking(Minimal):
    @hookimpl
    def within_gradient(self, value):
        return value.tracked


class Weight(Array):
    """An array that may be differentiated."""

    dtype = "float64"
    shape = ()

    def __init__(self, number, *, tracked):
        self.number = number
        self.tracked = tracked


@pytest.fixture(autouse=True)
def plugin():
    record = register(Tracking(), "fakefw")
    yield
    unregister(record.name)


@custom_derivative
def double(weight, *, factor=2.0):
    return weight.number * factor


double.defvjp(lambda cotangent, returned, weight, *, factor=2.0: (None,))


def test_an_untracked_call_runs_the_function():
    assert double(Weight(3.0, tracked=False)) == 6.0
    assert double(Weight(3.0, tracked=False), factor=5.0) == 15.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: double(Weight(3.0, tracked=True)),
        lambda: custom_derivative(lambda pair: pair[0].number)([Weight(3.0, tracked=True)]),
    ],
    ids=["no hook", "no rule"],
)
def test_a_tracked_call_raises_rather_than_differentiate_the_function(call):
    with pytest.raises(RuleError, match=r"the plugin 'fakefw' cannot apply|has no rule"):
        call()


def test_a_host_function_needs_the_hook():
    with pytest.raises(PluginError, match="has no hook host_call"):
        host_function(lambda weight: weight)(Weight(3.0, tracked=False))
